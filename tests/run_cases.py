"""Helpers for tests of whole runs: a run that is interrupted, and the metrics that must be reproducible."""

import json

import pytest

import coulomb
import coulomb.training.record.journal


class PowerCut(BaseException):
    """An exception that no code handles."""


def stopped_at(step, data, out, **options):
    """Trains until the line of update ``step`` is written, then interrupts the run; returns its folder."""
    write = coulomb.training.record.journal.Journal.write

    def stop(self, line):
        write(self, line)
        if "loss" in line and line["step"] == step:
            raise PowerCut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coulomb.training.record.journal.Journal.write", stop)
        with pytest.raises(PowerCut):
            coulomb.train(data, out=out, evaluate=False, progress=False, **{"checkpoint_every": 4} | options)
    return out


def comparable(folder):
    """Returns the lines of ``metrics.jsonl`` without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("images_per_second", "seconds")} for line in lines]
