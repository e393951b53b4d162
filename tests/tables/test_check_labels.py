import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.tables import ArraySource, check, open_source, p_no_positive, render_check
from coulomb.tables.check_labels import label_findings, label_like, label_table


def table(counts, batch_size, unknown=0):
    labels = np.concatenate([np.full(count, label) for label, count in enumerate(counts)] + [np.full(unknown, -1)])
    names = [f"class-{label}" for label in range(len(counts))]
    source = ArraySource(np.zeros((len(labels), 2, 2), np.uint8), labels, class_names=names)
    return label_table(source, list(range(len(labels))), batch_size)


def test_rare_classes_are_listed_worst_first_with_remedies():
    result = table([500, 300, 6, 3], 64)
    (rare,) = [finding for finding in label_findings(result) if "rare class" in finding]
    assert "2 rare classes would get little supervised signal" in rare
    assert rare.index("class-3") < rare.index("class-2")
    assert f"class-3 {p_no_positive(3, 809, 64):.0%} (3 images)" in rare
    assert "class-1" not in rare
    assert "--sampler class_balanced brings them to 0%" in rare
    assert "--method paco" in rare


def test_larger_batch_is_suggested_if_it_suffices():
    result = table([500, 300, 9], 64)
    (rare,) = [finding for finding in label_findings(result) if "rare class" in finding]
    batch = int(rare.split("batches of ")[1].split()[0])
    assert p_no_positive(9, 809, batch) <= 0.5 < p_no_positive(9, 809, batch - 1)


def test_no_unreasonably_large_batch_is_suggested():
    result = table([5000, 3000, 2], 16)
    (rare,) = [finding for finding in label_findings(result) if "rare class" in finding]
    assert "batches of" not in rare


def test_no_findings_for_balanced_classes():
    result = table([100] * 10, 256)
    assert label_findings(result) == []


def test_classes_with_a_single_image_are_reported_once():
    result = table([100, 1], 32)
    assert not any("rare class" in finding for finding in label_findings(result))
    assert any("single image" in finding for finding in label_findings(result))


def test_check_includes_label_findings():
    labels = np.repeat([0, 1], [200, 2])
    images = np.random.default_rng(0).integers(0, 256, (202, 4, 4), dtype=np.uint8)
    assert any("rare class" in finding for finding in check(ArraySource(images, labels), batch_size=32)["findings"])


def test_p_no_positive_counts_training_images_only():
    labels = np.repeat([0, 1, 2], [100, 20, 5])
    source = ArraySource(np.zeros((125, 2, 2), np.uint8), labels)
    learned = np.flatnonzero(np.arange(125) % 5 != 0)
    result = label_table(source, list(range(125)), 16, learned)
    assert [entry["count"] for entry in result["classes"]] == [100, 20, 5]
    wanted = [p_no_positive(int((labels[learned] == label).sum()), 100, 16) for label in range(3)]
    assert [entry["p_no_positive"] for entry in result["classes"]] == wanted
    assert result["p_no_positive"] == pytest.approx(np.average(wanted, weights=[80, 16, 4]))


def test_p_no_positive_depends_on_the_sampler():
    source = ArraySource(np.zeros((120, 2, 2), np.uint8), np.repeat([0, 1], [100, 20]))
    result = label_table(source, list(range(120)), 8, sampler="class_balanced")
    assert [entry["p_no_positive"] for entry in result["classes"]] == pytest.approx([0.5**7] * 2)


def test_without_a_batch_size_only_counts():
    result = label_table(ArraySource(np.zeros((4, 2, 2), np.uint8), [0, 0, 1, 1]), [0, 1, 2, 3])
    assert "p_no_positive" not in result and label_findings(result) == []


COLUMNS = {
    "breed": ["pug", "dachshund", "pug", "dachshund", "", "pug", "poodle", "poodle"],
    "house": [0, 0, 1, 1, 2, 2, 3, 3],
    "caption": [f"a dog, number {number}" for number in range(8)],
    "weight": [0.5, 1.25, 0.5, 1.25, 3.5, 0.5, 0.5, 0.5],
    "constant": [7] * 8,
}


@pytest.fixture
def paths(tmp_path):
    for number in range(8):
        Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(tmp_path / f"{number}.png")
    return [f"{number}.png" for number in range(8)]


def csv_list(paths, folder):
    names = ["path", *COLUMNS]
    rows = [",".join(f'"{value}"' for value in row) for row in zip(paths, *COLUMNS.values(), strict=True)]
    (folder / "list.csv").write_text("\n".join([",".join(names), *rows]))
    return folder / "list.csv"


def parquet_list(paths, folder):
    pq.write_table(pa.table({"path": paths, **COLUMNS}), folder / "list.parquet")
    return folder / "list.parquet"


def parquet_images(paths, folder):
    images = [{"bytes": (folder / path).read_bytes(), "path": path} for path in paths]
    pq.write_table(pa.table({"image": images, **COLUMNS}), folder / "images.parquet")
    return folder / "images.parquet"


def hub(paths, folder):
    import datasets

    images = datasets.Dataset.from_dict({"image": [str(folder / path) for path in paths], **COLUMNS})
    return images.cast_column("image", datasets.Image())


def arrays(paths, folder):
    np.savez(folder / "data.npz", images=np.zeros((8, 8, 8), np.uint8), **{k: np.array(v) for k, v in COLUMNS.items()})
    return folder / "data.npz"


@pytest.mark.parametrize("make", [csv_list, parquet_list, parquet_images, hub, arrays])
def test_columns_that_could_be_labels_are_listed(make, paths, tmp_path):
    data = make(paths, tmp_path)
    source = open_source(data)
    assert source.labels is None
    result = label_like(pickle.loads(pickle.dumps(source)) if make is not hub else source)
    assert [(entry["name"], entry["values"]) for entry in result] == [("breed", 3), ("house", 4)]
    assert result[0]["examples"] == ["dachshund", "poodle", "pug"] and result[0]["unlabeled"] == 1
    used = open_source(data, labels="breed")
    assert used.class_names == ["dachshund", "poodle", "pug"]
    assert [entry["name"] for entry in label_like(used)] == ["house"]
    if make is hub:
        return  # its images are outside the hub's download folder and refused
    text = render_check(check(source))
    assert "breed: 3 values (dachshund, poodle, pug); use it with --labels breed" in text
    assert "No labels are used, but column 'breed' could hold them" in text


def test_columns_named_like_labels_come_first(paths, tmp_path):
    table = {"path": paths, "camera": ["a", "b"] * 4, "fine_label": [0, 1, 2, 3] * 2}
    pq.write_table(pa.table(table), tmp_path / "list.parquet")
    assert [entry["name"] for entry in label_like(open_source(tmp_path / "list.parquet"))] == ["fine_label", "camera"]


def test_a_folder_has_no_columns(paths, tmp_path):
    assert label_like(open_source(tmp_path)) == []
