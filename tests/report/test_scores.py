from coulomb.report.scores import class_rows, frequencies, further_scores, scores

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
    assert heads == ["many: 1 class", "few: 2 classes"] and rows == [("k nearest neighbours", [0.9, 0.1])]
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
