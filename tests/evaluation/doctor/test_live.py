"""Live health checks during training."""

import math

from coulomb.evaluation.doctor import Watcher
from coulomb.evaluation.doctor.live import MOST_LINES, PATIENCE

CONFIG = {"method": "simclr", "temperature": 0.2, "warmup_epochs": 2.0, "method_options": {}}


def warnings(watcher, checks, loss=4.0, std=0.9, first=0):
    sentences = []
    for look in range(first, first + checks):
        for step in range(20 * look + 1, 20 * look + 21):
            line = {"step": step, "epoch": look + 3, "loss": loss, "no_signal": math.log(511)}
            sentences += watcher.read(line)
        sentences += watcher.read({"step": 20 * look + 20, "epoch": look + 3, "embedding_std": std})
    return sentences


def watcher():
    return Watcher(CONFIG, {"train": 1000, "class_counts": None})


def test_healthy_run_gives_no_warning():
    assert warnings(watcher(), 10) == []


def test_collapse_is_reported_once_after_several_checks():
    live = watcher()
    assert warnings(live, PATIENCE - 1, std=0.01) == []
    (sentence,) = warnings(live, 1, std=0.01, first=PATIENCE - 1)
    assert sentence.startswith("complete-collapse at epoch")
    assert warnings(live, 5, std=0.01, first=PATIENCE) == []


def test_without_remedies_a_warning_ends_with_the_consequence():
    live = Watcher(CONFIG, {}, remedies=False)
    (sentence,) = warnings(live, PATIENCE, std=0.01)
    assert "--" not in sentence and sentence.endswith("at chance level.")
    (advised,) = warnings(watcher(), PATIENCE, std=0.01)
    assert "--lr" in advised


def test_problem_must_be_found_in_consecutive_checks():
    live = watcher()
    for look in range(6):
        assert warnings(live, 1, std=0.01 if look % 2 else 0.9, first=look) == []


def test_live_no_signal_and_high_rate():
    (sentence,) = warnings(watcher(), 8, loss=math.log(511))
    assert "no-signal" in sentence
    (sentence,) = warnings(watcher(), 8, loss=9.0)
    assert "learning-rate-too-high" in sentence  # and not no-signal as well: it is explained


def test_no_warning_before_the_end_of_the_warm_up():
    live = Watcher(CONFIG | {"warmup_epochs": 100.0}, {"train": 1000})
    assert warnings(live, 8, std=0.01) == []


def test_watcher_memory_is_bounded():
    live = watcher()
    for step in range(5 * MOST_LINES):
        live.read({"step": step, "epoch": 1, "loss": 1.0})
    assert len(live.lines) <= 2 * MOST_LINES
