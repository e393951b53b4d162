from pathlib import Path

from coulomb.report.collect import Run
from coulomb.report.scores import MAX_BARS, class_bars


def run_of(trains, config=None, **more):
    rows = [
        {"label": i, "class": f"c{i}", "train": n, "test": 5, "knn": 1 - i / 1000} | more for i, n in enumerate(trains)
    ]
    return Run(Path("x"), config=config or {}, evaluation={"trained": {"per_class": rows}})


def test_a_long_tail_is_shown_in_groups_by_training_images():
    found = class_bars(run_of([7, 60, 500]))
    assert [(name, [bar.name for bar in bars]) for name, bars in found.groups] == [
        ("many", ["c2"]), ("medium", ["c1"]), ("few", ["c0"]),
    ]  # fmt: skip
    own = class_bars(run_of([7, 60, 500], {"many_above": 50, "few_below": 5}))
    assert [name for name, _ in own.groups] == ["many", "medium"]


def test_classes_of_about_one_size_stay_in_their_order():
    found = class_bars(run_of([50, 60, 55]))
    assert [(name, [bar.name for bar in bars]) for name, bars in found.groups] == [("", ["c0", "c1", "c2"])]
    assert found.way == "k nearest neighbours"


def test_the_runs_own_classifier_comes_first_and_many_classes_show_the_worst():
    found = class_bars(run_of([50] * 200, classifier=0.5))
    assert found.way == "the run’s own classifier"
    bars = class_bars(run_of([50] * 200)).groups[0][1]
    assert len(bars) == MAX_BARS
    assert bars[0].name == "c199"


def test_no_table_no_bars():
    assert class_bars(Run(Path("x"))) is None
    assert class_bars(run_of([5], knn=None)) is None
