"""Warnings of the doctor during a training."""

from types import SimpleNamespace

from coulomb.evaluation.doctor import Watcher
from coulomb.evaluation.doctor.live import PATIENCE
from coulomb.training.record.journal import Journal
from coulomb.training.watching.records import Alarm

CONFIG = {"method": "simclr", "temperature": 0.2, "warmup_epochs": 0.0, "method_options": {}}


def collapsed(journal, looks, first=0):
    for look in range(first, first + looks):
        now = {"step": 20 * (look + 1), "epoch": look + 1}
        journal.write(now | {"loss": 4.0, "no_signal": 6.2})
        journal.write(now | {"embedding_std": 0.01})


def listening(journal):
    alarm = Alarm(journal, Watcher(CONFIG, {"train": 100}))
    alarm.on_train_start(SimpleNamespace(is_global_zero=True), None)
    return alarm


def test_a_collapse_is_logged_once(tmp_path, caplog):
    journal = Journal(tmp_path / "metrics.jsonl")
    alarm = listening(journal)
    collapsed(journal, 3 * PATIENCE)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("complete-collapse at epoch")
    alarm.on_train_end(None, None)
    assert journal.listeners == []


def test_a_resumed_run_does_not_repeat_warnings(tmp_path, caplog):
    journal = Journal(tmp_path / "metrics.jsonl")
    collapsed(journal, PATIENCE)
    listening(journal)
    collapsed(journal, PATIENCE, first=PATIENCE)
    assert caplog.records == []


def test_only_one_process_listens(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl")
    Alarm(journal, Watcher(CONFIG, {})).on_train_start(SimpleNamespace(is_global_zero=False), None)
    assert journal.listeners == []
