"""What is said during training."""

import math

from coulomb.doctor import Watcher
from coulomb.doctor.live import KEPT, PATIENCE

CONFIG = {"method": "simclr", "temperature": 0.2, "warmup_epochs": 2.0, "method_options": {}}


def said(watcher, looks, loss=4.0, std=0.9, first=0):
    sentences = []
    for look in range(first, first + looks):
        for step in range(20 * look + 1, 20 * look + 21):
            line = {"step": step, "epoch": look + 3, "loss": loss, "no_signal": math.log(511)}
            sentences += watcher.hear(line)
        sentences += watcher.hear({"step": 20 * look + 20, "epoch": look + 3, "embedding_std": std})
    return sentences


def watcher():
    return Watcher(CONFIG, {"train": 1000, "class_counts": None})


def test_health_is_silent():
    assert said(watcher(), 10) == []


def test_collapse_is_said_once_and_not_at_first_sight():
    listening = watcher()
    assert said(listening, PATIENCE - 1, std=0.01) == []
    (sentence,) = said(listening, 1, std=0.01, first=PATIENCE - 1)
    assert sentence.startswith("complete-collapse at epoch")
    assert said(listening, 5, std=0.01, first=PATIENCE) == []


def test_an_interrupted_row_of_looks_is_no_sickness():
    listening = watcher()
    for look in range(6):
        assert said(listening, 1, std=0.01 if look % 2 else 0.9, first=look) == []


def test_no_signal_and_explosion():
    (sentence,) = said(watcher(), 8, loss=math.log(511))
    assert "no-signal" in sentence
    (sentence,) = said(watcher(), 8, loss=9.0)
    assert "learning-rate-too-high" in sentence  # and not no-signal as well: it is explained


def test_nothing_is_said_before_the_end_of_the_warm_up():
    listening = Watcher(CONFIG | {"warmup_epochs": 100.0}, {"train": 1000})
    assert said(listening, 8, std=0.01) == []


def test_memory_is_bounded():
    listening = watcher()
    for step in range(5 * KEPT):
        listening.hear({"step": step, "epoch": 1, "loss": 1.0})
    assert len(listening.lines) <= 2 * KEPT
