import numpy as np
import pytest

from coulomb.data import ArraySource, check, p_no_positive
from coulomb.data.check_labels import label_findings, label_table


def table(counts, batch_size, unknown=0):
    labels = np.concatenate([np.full(count, label) for label, count in enumerate(counts)] + [np.full(unknown, -1)])
    names = [f"class-{label}" for label in range(len(counts))]
    source = ArraySource(np.zeros((len(labels), 2, 2), np.uint8), labels, class_names=names)
    return label_table(source, list(range(len(labels))), batch_size)


def test_rare_classes_are_named_worst_first_with_remedies():
    found = table([500, 300, 6, 3], 64)
    (rare,) = [said for said in label_findings(found) if "rare classes" in said]
    assert "2 rare classes would get little supervised signal" in rare
    assert rare.index("class-3") < rare.index("class-2")
    assert f"class-3 {p_no_positive(3, 809, 64):.0%} (3 images)" in rare
    assert "class-1" not in rare
    assert "--sampler class_balanced brings them to 0%" in rare
    assert "--method paco" in rare


def test_a_larger_batch_is_suggested_where_one_would_do():
    found = table([500, 300, 9], 64)
    (rare,) = [said for said in label_findings(found) if "rare classes" in said]
    batch = int(rare.split("batches of ")[1].split()[0])
    assert p_no_positive(9, 809, batch) <= 0.5 < p_no_positive(9, 809, batch - 1)


def test_no_batch_is_suggested_that_is_out_of_reach():
    found = table([5000, 3000, 2], 16)
    (rare,) = [said for said in label_findings(found) if "rare classes" in said]
    assert "batches of" not in rare


def test_balanced_classes_are_left_in_peace():
    found = table([100] * 10, 256)
    assert label_findings(found) == []


def test_a_single_image_is_said_once():
    found = table([100, 1], 32)
    assert not any("rare classes" in said for said in label_findings(found))
    assert any("single image" in said for said in label_findings(found))


def test_check_hands_it_on():
    labels = np.repeat([0, 1], [200, 2])
    images = np.random.default_rng(0).integers(0, 256, (202, 4, 4), dtype=np.uint8)
    assert any("rare classes" in said for said in check(ArraySource(images, labels), batch_size=32)["findings"])


def test_chances_are_those_of_the_images_that_are_learned_from():
    labels = np.repeat([0, 1, 2], [100, 20, 5])
    source = ArraySource(np.zeros((125, 2, 2), np.uint8), labels)
    learned = np.flatnonzero(np.arange(125) % 5 != 0)
    found = label_table(source, list(range(125)), 16, learned)
    assert [entry["count"] for entry in found["classes"]] == [100, 20, 5]
    wanted = [p_no_positive(int((labels[learned] == label).sum()), 100, 16) for label in range(3)]
    assert [entry["p_no_positive"] for entry in found["classes"]] == wanted
    assert found["p_no_positive"] == pytest.approx(np.average(wanted, weights=[80, 16, 4]))


def test_chances_follow_the_sampler():
    source = ArraySource(np.zeros((120, 2, 2), np.uint8), np.repeat([0, 1], [100, 20]))
    found = label_table(source, list(range(120)), 8, sampler="class_balanced")
    assert [entry["p_no_positive"] for entry in found["classes"]] == pytest.approx([0.5**7] * 2)


def test_without_a_batch_size_there_are_counts_alone():
    found = label_table(ArraySource(np.zeros((4, 2, 2), np.uint8), [0, 0, 1, 1]), [0, 1, 2, 3])
    assert "p_no_positive" not in found and label_findings(found) == []
