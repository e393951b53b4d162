"""Runs of an experiment, and their means over seeds."""

import json

import pytest

from coulomb.ground.errors import InputError, NonFiniteError
from coulomb_lab import arms as module
from coulomb_lab.arms import Arm, Settings, run_arm, select_arms
from coulomb_lab.experiment import mean_over_seeds


@pytest.fixture
def training(monkeypatch):
    """Stand-ins for training and measuring; the list of what was done."""
    done = []

    def start(options, **_):
        done.append(("start", options))
        return None, "prepared"

    def resume(path, *_, **__):
        done.append(("resume", path.name))
        return None, "prepared"

    def measure(run, prepared, draws):
        assert prepared == "prepared"
        done.append(("measure", run.path.name))
        return {"knn": 0.5}

    for name, made in {"start": start, "resume": resume, "measure": measure}.items():
        monkeypatch.setattr(module, name, made)
    monkeypatch.setattr(module, "epochs_within", lambda options, minutes: int(10 * minutes))
    return done


ARM = Arm("a", {"method": "moco", "method_options": {"momentum": 0.9}}, quick=3)


def test_a_finished_run_is_not_done_again(training, tmp_path):
    settings = Settings(epochs=2)
    assert run_arm(ARM, settings, tmp_path)["figures"] == {"knn": 0.5}
    assert [what for what, _ in training] == ["start", "measure"]
    assert run_arm(ARM, settings, tmp_path)["figures"] == {"knn": 0.5}
    assert len(training) == 2


def test_an_interrupted_run_is_resumed(training, tmp_path, monkeypatch):
    def interrupted(options, **_):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "config.yaml").write_text("epochs: 2")
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(module, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_arm(ARM, Settings(), tmp_path)
    assert json.loads((tmp_path / "a.json").read_text())["figures"] is None
    run_arm(ARM, Settings(), tmp_path)
    assert training[0] == ("resume", "a")


def test_one_that_had_not_begun_is_started_afresh(training, tmp_path):
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    run_arm(ARM, Settings(), tmp_path)
    assert training[0][0] == "start" and not (tmp_path / "a").exists()


def test_a_record_with_other_options_is_rejected(training, tmp_path):
    run_arm(ARM, Settings(epochs=2), tmp_path)
    with pytest.raises(InputError, match="epochs 2 then, 3 now.*another --out"):
        run_arm(ARM, Settings(epochs=3), tmp_path)


def test_a_run_that_broke_is_a_row_that_says_so(training, tmp_path, monkeypatch):
    def broken(options, **_):
        raise NonFiniteError("the loss became non-finite")

    monkeypatch.setattr(module, "start", broken)
    assert run_arm(ARM, Settings(), tmp_path)["figures"] == {"failed": "the loss became non-finite"}


def test_how_long_a_run_is(training, tmp_path):
    for number, (settings, epochs) in enumerate(
        [
            (Settings(), None),
            (Settings(quick=True), 3),
            (Settings(epochs=7), 7),
            (Settings(budget=2), 20),
            (Settings(data="x/", quick=True), 1),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        run_arm(ARM, settings, tmp_path / str(number))
        assert training[-2][1].get("epochs") == epochs
    for clash in ({"quick": True, "epochs": 3}, {"epochs": 3, "budget": 1.0}, {"budget": -1.0}, {"epochs": -1}):
        with pytest.raises(InputError):
            Settings(**clash)


def test_options_of_all_runs_and_of_one_are_joined():
    settings = Settings(options={"lr": 0.1, "method_options": {"queue_size": 8}}, test="t")
    assert ARM.training_options(settings, 5) == {
        "data": "digits",
        "test": "t",
        "seed": 5,
        "lr": 0.1,
        "method": "moco",
        "method_options": {"queue_size": 8, "momentum": 0.9},
    }


def test_runs_by_name():
    assert select_arms([Arm("a"), Arm("b")], ("b",)) == [Arm("b")]
    with pytest.raises(InputError, match="only='c'.*there are a, b"):
        select_arms([Arm("a"), Arm("b")], ("c",))


def test_numbers_have_a_mean_and_a_deviation():
    found = mean_over_seeds([{"knn": 0.8, "epochs": 3}, {"knn": 0.9, "epochs": 3}])
    assert found["knn"] == pytest.approx(0.85) and found["knn_std"] == pytest.approx(0.0707, abs=1e-4)
    assert (found["epochs"], found["epochs_std"], found["seeds"]) == (3, 0.0, 2)


def test_lists_and_tables_are_averaged_by_place():
    first = {"course": [{"epoch": 1, "knn": 0.4}, {"epoch": 2, "knn": None}], "name": "a", "uneven": [1]}
    second = {"course": [{"epoch": 1, "knn": 0.6}, {"epoch": 2, "knn": 0.7}], "name": "b", "uneven": [1, 2]}
    found = mean_over_seeds([first, second])
    assert found["course"] == [{"epoch": 1, "knn": 0.5}, {"epoch": 2, "knn": 0.7}]
    assert (found["name"], found["uneven"]) == ("a", [1])


def test_one_run_is_itself_and_failures_are_counted():
    assert mean_over_seeds([{"knn": 0.8}]) == {"knn": 0.8}
    assert mean_over_seeds([{"failed": "x"}, {"knn": 0.8}]) == {"knn": 0.8, "seeds": 1, "failed_seeds": 1}
    assert mean_over_seeds([{"failed": "x"}, {"failed": "y"}]) == {"failed": "x"}


def test_how_many_seeds_there_are():
    assert Settings(quick=True).all_seeds == (0,)
    assert Settings(seed=5).all_seeds == (5, 6, 7)
    assert Settings(seeds=2, quick=True).all_seeds == (0, 1)
    with pytest.raises(InputError, match="seeds=0"):
        Settings(seeds=0)
