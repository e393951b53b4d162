"""Two processes on one machine, of runs on columns: they equal one process with twice the batch."""

import json
import os
import subprocess
import sys

import pytest
import torch

import two_processes_columns

HANGS = 800  # seconds; a limit against waiting forever, also on a busy machine


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        (line["loss"], line.get("temperature", 0.0), line.get("gradient_norm", 0.0)) for line in lines if "loss" in line
    ]


@pytest.mark.slow
@pytest.mark.timeout(HANGS + 300)
def test_two_processes_equal_one_with_twice_the_batch(tmp_path):
    done = subprocess.run(
        [sys.executable, two_processes_columns.__file__, str(tmp_path / "two"), "2"],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    two_processes_columns.train(tmp_path / "one", devices=1)
    for name in two_processes_columns.RUNS:
        one, two = (torch.tensor(losses(tmp_path / folder / name)) for folder in ("one", "two"))
        assert len(one) == len(two) == 3 * (48 // 16), name
        torch.testing.assert_close(two[:, :2], one[:, :2], rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}: {m}")
        torch.testing.assert_close(two[:, 2], one[:, 2], rtol=1e-3, atol=1e-5, msg=lambda m: f"{name}: {m}")
        assert one[0, 0] != one[-1, 0]
