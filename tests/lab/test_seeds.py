import pytest

from coulomb.errors import InputError
from coulomb.lab.arms import Settings
from coulomb.lab.experiment import over_seeds


def test_numbers_have_a_mean_and_a_deviation():
    found = over_seeds([{"knn": 0.8, "epochs": 3}, {"knn": 0.9, "epochs": 3}])
    assert found["knn"] == pytest.approx(0.85) and found["knn_std"] == pytest.approx(0.0707, abs=1e-4)
    assert (found["epochs"], found["epochs_std"], found["seeds"]) == (3, 0.0, 2)


def test_lists_and_tables_are_averaged_by_place():
    first = {"course": [{"epoch": 1, "knn": 0.4}, {"epoch": 2, "knn": None}], "name": "a", "uneven": [1]}
    second = {"course": [{"epoch": 1, "knn": 0.6}, {"epoch": 2, "knn": 0.7}], "name": "b", "uneven": [1, 2]}
    found = over_seeds([first, second])
    assert found["course"] == [{"epoch": 1, "knn": 0.5}, {"epoch": 2, "knn": 0.7}]
    assert (found["name"], found["uneven"]) == ("a", [1])


def test_one_run_is_itself_and_failures_are_counted():
    assert over_seeds([{"knn": 0.8}]) == {"knn": 0.8}
    assert over_seeds([{"failed": "x"}, {"knn": 0.8}]) == {"knn": 0.8, "seeds": 1, "failed_seeds": 1}
    assert over_seeds([{"failed": "x"}, {"failed": "y"}]) == {"failed": "x"}


def test_how_many_seeds_there_are():
    assert Settings(quick=True).all_seeds == (0,)
    assert Settings(seed=5).all_seeds == (5, 6, 7)
    assert Settings(seeds=2, quick=True).all_seeds == (0, 1)
    with pytest.raises(InputError, match="seeds=0"):
        Settings(seeds=0)
