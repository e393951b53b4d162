"""kill -9 in the middle of an epoch, resume, and compare with the run that was never stopped: bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from coulomb.methods import METHODS

OPTIONS = (
    "--epochs 4 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 "
    "--checkpoint-every 3 --knn-every 2 --no-evaluate --quiet"
).split()


def coulomb(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "coulomb", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process):
    _, said = process.communicate(timeout=200)
    return process.returncode, said


def lines(run):
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def comparable(run):
    return [{k: v for k, v in line.items() if k not in ("images_per_second", "seconds")} for line in lines(run)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_kill_and_resume_is_bit_identical(digit_tree, tmp_path, workers):
    options = [*OPTIONS, "--workers", workers] + (["--cache-gb", 0] if workers else [])
    kill_and_resume(digit_tree, tmp_path, options, options)


# What has a memory is killed with little of it, so that it has wrapped around by then.
OWN = {
    "moco": "--option queue_size=20 --option momentum=0.9",
    "paco": "--option queue_size=20 --option momentum=0.9",
    "byol": "--option momentum=0.9",
    "instdisc": "--option noise_samples=9 --option full=false --option bank_path={bank}",
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_bit_identical_after_a_kill(digit_tree, tmp_path, method):
    banks = [tmp_path / "whole.bank", tmp_path / "killed.bank"]
    own = [OWN.get(method, "").format(bank=bank).split() for bank in banks]
    kill_and_resume(digit_tree, tmp_path, *([*OPTIONS, "--method", method, *each, "--workers", 0] for each in own))
    if method == "instdisc":
        assert banks[0].read_bytes() == banks[1].read_bytes()


def kill_and_resume(digit_tree, tmp_path, whole_options, options):
    """A run that is killed at a random step and resumed beside one that is not; they must agree in every bit."""
    whole = coulomb("train", digit_tree, "--out", tmp_path / "whole", *whole_options)
    code, said = finish(whole)
    assert code == 0, said
    total = max(line["step"] for line in lines(tmp_path / "whole"))

    killed = tmp_path / "killed"
    at = random.Random(os.getpid()).randint(4, total - 3)
    process = coulomb("train", digit_tree, "--out", killed, *options, start_new_session=True)
    while process.poll() is None and max((line["step"] for line in safe_lines(killed)), default=0) < at:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    assert process.returncode == -signal.SIGKILL, f"finished before it was killed at step {at}"

    bank = [part for part in options if str(part).startswith("bank_path=")]  # outside the folder: named again
    resumed = coulomb("train", "--resume", killed, "--no-evaluate", "--quiet", *(["--option", *bank] if bank else []))
    code, said = finish(resumed)
    assert code == 0, said
    assert comparable(killed) == comparable(tmp_path / "whole"), f"killed at step {at} of {total}"
    assert (killed / "encoder.safetensors").read_bytes() == (tmp_path / "whole" / "encoder.safetensors").read_bytes()


def safe_lines(run):
    try:
        return lines(run)
    except json.JSONDecodeError:
        return []


def test_resume_refuses_what_is_no_run(tmp_path):
    code, said = finish(coulomb("train", "--resume", tmp_path / "nothing"))
    assert code == 2
    assert "not a run folder" in said
