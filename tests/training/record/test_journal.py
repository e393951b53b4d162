import logging
import os

import pytest

from coulomb.ground.errors import InputError
from coulomb.training.record.journal import Journal, read_metrics


def test_lines_are_kept_in_full_precision(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write({"step": 1, "loss": 0.1 + 0.2})
    journal.write({"step": 2, "loss": 1 / 3})
    assert read_metrics(journal.path) == [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 1 / 3}]


def test_a_truncated_last_line_is_skipped(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write({"step": 1})
    with journal.path.open("a") as file:
        file.write('{"step": 3, "lo')
    assert read_metrics(journal.path) == [{"step": 1}]


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl")
    for step in range(5):
        journal.write({"step": step})
    kept = journal.forget_after(2)
    assert kept == read_metrics(journal.path) == [{"step": 0}, {"step": 1}, {"step": 2}]


def test_a_missing_file_has_no_lines(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError):
        Journal(tmp_path / "metrics.jsonl").write({"step": 1, "loss": float("nan")})


def test_tensorboard_reads_the_same_values(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    journal = Journal(tmp_path / "metrics.jsonl", tmp_path / "tensorboard")
    journal.write({"step": 7, "loss": 2.5, "epoch": 3})
    (file,) = (tmp_path / "tensorboard").iterdir()
    last = list(EventFileLoader(str(file)).Load())[-1]
    assert last.step == 7
    found = {value.tag: value.tensor.float_val[0] for value in last.summary.value}
    assert found == {"loss": 2.5, "epoch": 3.0}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_a_full_disk(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"metrics\.jsonl.*No space left.*--resume"):
        Journal(tmp_path / "metrics.jsonl").write({"step": 1})

    journal = Journal(tmp_path / "other.jsonl", tmp_path / "tensorboard")
    journal.events.unlink()
    journal.events.symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING):
        journal.write({"step": 1, "loss": 1.0})
        journal.write({"step": 2, "loss": 1.0})
    assert [line["step"] for line in read_metrics(journal.path)] == [1, 2]
    assert len([record for record in caplog.records if "No space left" in record.getMessage()]) == 1
