"""The colors of the marks of the map."""

from pathlib import Path

import numpy as np

from coulomb.report.collect import RunData, Samples
from coulomb.report.coloring import COLORS, SHAPES, group_marks, map_colorings


def samples_of(labels, neighbors=None, clusters=None, held_out=None):
    n = len(labels)
    around = np.zeros((n, 1), int) if neighbors is None else neighbors
    held = n if held_out is None else held_out
    return Samples(np.zeros((n, 1, 1, 3), np.uint8), np.asarray(labels), ["x"] * n, held, around, clusters)


def colorings(samples):
    run = RunData(Path("x"), data={"classes": ["a", "b", "c"]})
    return {one.key: one for one in map_colorings(run, samples, samples.neighbors)}


def test_clusters_are_named_by_their_majority():
    labels = np.repeat([0, 1, 2], 10)
    labels[0] = 1  # a mislabeled image
    clusters = np.repeat([1, 2, 0], 10)
    one = colorings(samples_of(labels, clusters=clusters))["cluster"]
    assert [mark.name for mark in one.marks] == [
        "1: mostly c (100\u202f%)",
        "2: mostly a (90\u202f%)",
        "3: mostly b (100\u202f%)",
    ]
    assert one.of_sample == clusters.tolist()


def test_an_image_agrees_if_half_of_its_labeled_neighbors_have_its_class():
    neighbors = np.array([[1, 2], [0, 3], [3, 3], [2, 0]])
    one = colorings(samples_of([0, 0, 1, -1], neighbors))["neighbors"]
    assert one.of_sample == [0, 0, -1, -1]
    assert colorings(samples_of([0, 0, 1, 1], np.array([[2], [0], [3], [0]])))["neighbors"].of_sample == [1, 0, 0, 1]


def test_without_labels_there_are_clusters_alone():
    assert list(colorings(samples_of(np.full(30, -1), clusters=np.zeros(30, int)))) == ["cluster"]
    assert colorings(samples_of(np.full(30, -1))) == {}


def test_training_images_have_a_color():
    one = colorings(samples_of(np.repeat([0, 1, 2], 10), held_out=20))["split"]
    assert [(mark.name, mark.count) for mark in one.marks] == [("held out", 20), ("training images", 10)]


def test_more_groups_than_marks_share_the_last():
    groups = np.repeat(np.arange(30), np.arange(1, 31))
    marks = group_marks(groups, {i: str(i) for i in range(30)})
    assert len(marks) == COLORS * SHAPES
    assert marks[-1].label == -1
    assert sum(mark.count for mark in marks) == len(groups)
