"""Rows, bars and the confusion matrix of an evaluation."""

from pathlib import Path

from coulomb.metrics.class_accuracy import frequency_group
from coulomb.report.collect import RunData
from coulomb.report.scores import (
    MAX_BARS,
    MAX_CLASSES,
    class_bars,
    class_rows,
    confusion_matrix,
    frequencies,
    further_scores,
    scores,
)

TRAINED = {
    "knn": 0.9,
    "classifier": 0.8,
    "retrieval": {"recall_at": {"1": 0.7, "10": 0.9}, "map_at_r": 0.4},
    "clustering": {"nmi": 0.5},
    "fine_tune": {"1": {"accuracy": 0.95}, "0.01": {"accuracy": 0.6}},
    "by_frequency": {"many": {"classes": 1, "knn": 0.9}, "medium": None, "few": {"classes": 2, "knn": 0.1}},
    "per_class": [{"label": i, "class": f"c{i}", "train": 10, "test": 5, "knn": 0.5} for i in range(120)],
}


def test_a_classifier_only_the_trained_encoder_has():
    rows = {row.key: row for row in scores({"trained": TRAINED, "raw_pixels": {"knn": 0.3}})}
    assert rows["classifier"].values.keys() == {"trained"} and rows["knn"].values.keys() == {"trained", "raw_pixels"}


def test_further_rows_in_order():
    rows = further_scores({"trained": TRAINED})
    assert [row.values["trained"].mean for row in rows] == [0.7, 0.9, 0.4, 0.5, 0.6, 0.95]
    assert [row.label for row in rows[-2:]] == [
        "fine-tuned with 1 % of the labels",
        "fine-tuned with 100 % of the labels",
    ]


def test_frequencies_need_two_groups():
    heads, rows = frequencies({"trained": TRAINED})
    assert heads == ["many: 1 class", "few: 2 classes"] and rows == [("k nearest neighbors", [0.9, 0.1])]
    assert frequencies({"trained": {"by_frequency": {"many": {"classes": 3, "knn": 1}, "few": None}}}) == ([], [])


def test_a_long_table_is_cut_and_counted():
    rows, count = class_rows({"trained": TRAINED})
    assert len(rows) == 100 and count == 120 and rows[3]["class"] == "c3"


def test_what_is_damaged_is_left_out():
    broken = {
        "retrieval": 3,
        "clustering": {"nmi": "x"},
        "fine_tune": {"some": 1},
        "by_frequency": [],
        "per_class": [7],
    }
    for evaluation in ({}, {"trained": broken}, {"trained": None}):
        assert further_scores(evaluation) == [] and frequencies(evaluation) == ([], [])
        assert class_rows(evaluation) == ([], 0)


def with_classes(trains, **more):
    rows = [
        {"label": i, "class": f"c{i}", "train": n, "test": 5, "knn": 1 - i / 1000, "frequency": frequency_group(n)}
        | more
        for i, n in enumerate(trains)
    ]
    return {"trained": {"per_class": rows}}


def test_a_long_tail_is_shown_in_groups_by_training_images():
    found = class_bars(with_classes([7, 60, 500]))
    assert [(name, [bar.name for bar in bars]) for name, bars in found.groups] == [
        ("many", ["c2"]), ("medium", ["c1"]), ("few", ["c0"]),
    ]  # fmt: skip


def test_classes_of_about_one_size_stay_in_their_order():
    found = class_bars(with_classes([50, 60, 55]))
    assert [(name, [bar.name for bar in bars]) for name, bars in found.groups] == [("", ["c0", "c1", "c2"])]
    assert found.classifier == "k nearest neighbors"


def test_the_runs_own_classifier_comes_first_and_many_classes_show_the_worst():
    found = class_bars(with_classes([50] * 200, classifier=0.5))
    assert found.classifier == "the run’s classifier"
    bars = class_bars(with_classes([50] * 200)).groups[0][1]
    assert len(bars) == MAX_BARS
    assert bars[0].name == "c199"


def test_no_table_no_bars():
    assert class_bars({}) is None
    assert class_bars(with_classes([5], knn=None)) is None


def run_with_names(**options):
    return RunData(Path("x"), data={"classes": ["cat", "dog"]}, **options)


def table(*rows):
    return {"trained": {"per_class": [{"label": i, "taken_for": row} for i, row in enumerate(rows)]}}


def test_the_confusion_matrix_of_the_evaluation():
    found = confusion_matrix(run_with_names(evaluation=table({"0": 3, "1": 1}, {"1": 5})))
    assert [[share for share, _ in row] for row in found.rows] == [[0.75, 0.25], [0, 1]]
    assert found.rows[0][1][1] == "cat predicted as dog: 1 of 4 images, 25.0\u202f%"
    assert found.errors == [("cat", "dog", "1 of 4")]
    assert "of the evaluation’s kNN" in found.note


def test_too_many_classes_keep_their_mistakes_only():
    n = MAX_CLASSES + 1
    found = confusion_matrix(run_with_names(evaluation=table(*({str((i + 1) % n): 1} for i in range(n)))))
    assert found.rows == []
    assert len(found.errors) == 10


def test_strange_tables():
    for rows in ([7], [{"label": None, "taken_for": {"0": 1}}], [{"label": 0, "taken_for": {"x": 1, "0": "a"}}], None):
        assert confusion_matrix(run_with_names(evaluation={"trained": {"per_class": rows}})) is None
