"""Two processes on one machine: one run folder, one encoder, and each process has its part of the images."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

import two_processes
from run_cases import stopped_at

HANGS = 800  # seconds; a limit against waiting forever, also on a busy machine


@pytest.mark.slow
@pytest.mark.timeout(HANGS + 100)
def test_two_processes_train_one_run(digit_tree, tmp_path):
    options = "--epochs 2 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --quiet"
    command = [sys.executable, "-m", "coulomb", "train", digit_tree, "--out", tmp_path / "run", *options.split()]
    command += ["--devices", "2", "--accelerator", "cpu", "--workers", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=HANGS, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == list(range(1, 2 * (48 // 2 // 8) + 1))  # each process has half of the 48 training images
    # Negatives come from both processes: 2 · 8 images in 2 views.
    assert {line["no_signal"] for line in lines if "loss" in line} == {math.log(2 * 2 * 8 - 1)}
    assert (tmp_path / "run" / "report.html").exists()
    assert done.stdout.count("run folder:") == 1


@pytest.mark.slow
@pytest.mark.timeout(HANGS + 100)
def test_two_processes_equal_one_with_twice_the_batch(digit_tree, tmp_path, monkeypatch):
    """Begun on two processes, and begun on one that stops in the middle: optimizer, queues and banks go on as they were."""
    for name in two_processes.RUNS:
        options = two_processes.options(name, devices=1) | {"checkpoint_every": 5}
        stopped_at(7, digit_tree, tmp_path / "continued" / name, **options)
    for folder in ("two", "continued"):
        done = subprocess.run(
            [sys.executable, two_processes.__file__, str(digit_tree), str(tmp_path / folder), "2"],
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
    monkeypatch.setattr(two_processes.ContrastiveTraining, "on_train_end", None)  # is put back afterwards
    two_processes.train(digit_tree, tmp_path / "one", devices=1)
    for name in two_processes.RUNS:
        one, *others = (torch.tensor(losses(tmp_path / folder / name)) for folder in ("one", "two", "continued"))
        for other in others:
            assert len(one) == len(other) == 4 * (48 // 16)
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}: {m}")
        one, two = (gradients(tmp_path / processes / name) for processes in ("one", "two"))
        assert len(one) == 2
        torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-5, msg=lambda m: f"class gradients of {name}: {m}")
        first, second = (torch.load(tmp_path / "two" / name / f"stored.{rank}") for rank in (0, 1))
        assert first.keys() == second.keys() and ("queue_size" not in two_processes.RUNS[name] or first)
        assert all(torch.equal(first[key], second[key]) for key in first)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def gradients(folder):
    """Returns the mean gradient norm and the number of views per class, for each line that has them."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    told = [line for line in lines if "class_gradient_norm" in line]
    return torch.tensor([[line["class_gradient_norm"], line["class_gradient_views"]] for line in told])
