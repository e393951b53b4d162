from pathlib import Path

import numpy as np

from coulomb.report.collect import Run, Samples
from coulomb.report.scores import MAX_CLASSES, confusion


def run_of(**options):
    return Run(Path("x"), data={"classes": ["cat", "dog"]}, **options)


def table(*rows):
    return {"trained": {"per_class": [{"label": i, "taken_for": row} for i, row in enumerate(rows)]}}


def test_the_evaluation_says_who_is_taken_for_whom():
    found = confusion(run_of(evaluation=table({"0": 3, "1": 1}, {"1": 5})), None)
    assert [[share for share, _ in row] for row in found.rows] == [[0.75, 0.25], [0, 1]]
    assert found.rows[0][1][1] == "cat taken for dog: 1 of 4 images, 25.0\u202f%"
    assert found.mistakes == [("cat", "dog", "1 of 4")]
    assert "as in the evaluation" in found.note


def test_an_older_run_is_judged_by_its_held_out_samples():
    labels = np.array([0, 0, 1, -1, 1])
    samples = Samples(
        np.zeros((5, 1, 1, 3), np.uint8), np.ones((5, 2)), labels, list("abcde"), np.array([1, 1, 1, 1, 0], bool)
    )
    neighbours = np.array([[1, 3], [2, 0], [3, 3], [0, 1], [0, 0]])  # b: one of each class, the nearer is a dog
    found = confusion(run_of(samples=samples), neighbours)
    assert found is None  # only cats can be judged: nothing to confuse
    neighbours[2] = [0, 1]
    found = confusion(run_of(samples=samples), neighbours)
    assert found.mistakes == [("dog", "cat", "1 of 1"), ("cat", "dog", "1 of 2")]
    assert "samples of this page" in found.note


def test_too_many_classes_keep_their_mistakes_only():
    n = MAX_CLASSES + 1
    found = confusion(run_of(evaluation=table(*({str((i + 1) % n): 1} for i in range(n)))), None)
    assert found.rows == []
    assert len(found.mistakes) == 10


def test_strange_tables():
    for rows in ([7], [{"label": None, "taken_for": {"0": 1}}], [{"label": 0, "taken_for": {"x": 1, "0": "a"}}], None):
        assert confusion(run_of(evaluation={"trained": {"per_class": rows}}), None) is None
