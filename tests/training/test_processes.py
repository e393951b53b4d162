"""Two processes on one machine: one run folder, one encoder, each process its own share of the images."""

import json
import math
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_processes_train_one_run(digit_tree, tmp_path):
    options = "--epochs 2 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --quiet"
    command = [sys.executable, "-m", "coulomb", "train", digit_tree, "--out", tmp_path / "run", *options.split()]
    command += ["--devices", "2", "--accelerator", "cpu", "--workers", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=200, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == list(range(1, 2 * (48 // 2 // 8) + 1))  # each process has half of the 48 training images
    # Negatives come from both processes: 2 · 8 images in 2 views.
    assert {line["no_signal"] for line in lines if "loss" in line} == {math.log(2 * 2 * 8 - 1)}
    assert (tmp_path / "run" / "report.html").exists()
    assert done.stdout.count("run folder:") == 1
