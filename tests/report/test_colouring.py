from pathlib import Path

import numpy as np

from coulomb.report.collect import Run, Samples
from coulomb.report.feature_map import COLOURS, SHAPES, colourings, marks_of
from coulomb.report.gallery import nearest


def three_blobs(labels, held_out=None, n=30):
    rng = np.random.default_rng(0)
    features = np.repeat(np.eye(3, 8), n // 3, axis=0) + 0.05 * rng.standard_normal((n, 8))
    seen = np.ones(n, bool) if held_out is None else held_out
    return Samples(np.zeros((n, 1, 1, 3), np.uint8), features.astype(np.float32), labels, ["x"] * n, seen)


def found(samples):
    run = Run(Path("x"), data={"classes": ["a", "b", "c"]})
    return {one.key: one for one in colourings(run, samples, nearest(samples.features), 0)}


def test_clusters_find_the_blobs_and_are_named_by_their_majority():
    labels = np.repeat([0, 1, 2], 10)
    labels[0] = 1  # a mislabelled image
    one = found(three_blobs(labels))
    named = {mark.name.split(": ")[1] for mark in one["cluster"].marks}
    assert named == {"mostly a (90\u202f%)", "mostly b (100\u202f%)", "mostly c (100\u202f%)"}
    assert len({(c, b) for c, b in zip(one["cluster"].of_sample, np.repeat([0, 1, 2], 10), strict=True)}) == 3
    assert one["neighbours"].of_sample == [1] + [0] * 29


def test_without_labels_there_are_clusters_alone():
    assert list(found(three_blobs(np.full(30, -1)))) == ["cluster"]


def test_split_is_a_colouring_where_training_images_are_there():
    held_out = np.arange(30) < 20
    one = found(three_blobs(np.repeat([0, 1, 2], 10), held_out))["split"]
    assert [(mark.name, mark.count) for mark in one.marks] == [("held out", 20), ("seen in training", 10)]


def test_samples_that_are_all_alike_have_no_clusters():
    samples = three_blobs(np.repeat([0, 1, 2], 10))
    samples.features[:] = 1
    assert list(found(samples)) == ["class", "neighbours"]


def test_more_groups_than_marks_share_the_last():
    groups = np.repeat(np.arange(30), np.arange(1, 31))
    marks = marks_of(groups, {i: str(i) for i in range(30)})
    assert len(marks) == COLOURS * SHAPES
    assert marks[-1].label == -1
    assert sum(mark.count for mark in marks) == len(groups)
