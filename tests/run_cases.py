"""What tests of whole runs share: a run that loses power, and the lines of its metrics that must repeat."""

import json

import pytest

import coulomb


class PowerCut(BaseException):
    """Nothing handles it."""


def stopped_at(step, data, out, **options):
    """A run that ended right after the line of update ``step`` was written; its folder."""
    write = coulomb.runs.journal.Journal.write

    def stop(self, line):
        write(self, line)
        if "loss" in line and line["step"] == step:
            raise PowerCut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coulomb.runs.journal.Journal.write", stop)
        with pytest.raises(PowerCut):
            coulomb.train(data, out=out, evaluate=False, progress=False, **{"checkpoint_every": 4} | options)
    return out


def comparable(folder):
    """The lines of ``metrics.jsonl`` without what the clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("images_per_second", "seconds")} for line in lines]
