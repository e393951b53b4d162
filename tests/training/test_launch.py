"""A run that was killed or stopped resumes bit-identically; a run that fails before its first update leaves no files."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.methods import METHODS
from run_cases import comparable, stopped_at

OPTIONS = (
    "--epochs 4 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 "
    "--checkpoint-every 3 --knn-every 2 --no-evaluate --quiet"
).split()


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "coulomb", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process):
    _, output = process.communicate(timeout=200)
    return process.returncode, output


def lines(run):
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_kill_and_resume_is_bit_identical(digit_tree, tmp_path, workers):
    options = [*OPTIONS, "--workers", workers] + (["--cache-gb", 0] if workers else [])
    kill_and_resume(digit_tree, tmp_path, options, options)


# Small queues, so that they have wrapped around when the run is killed.
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
    """Kills a run at a random step and resumes it; the result must be bit-identical to an uninterrupted run."""
    whole = command("train", digit_tree, "--out", tmp_path / "whole", *whole_options)
    code, output = finish(whole)
    assert code == 0, output
    total = max(line["step"] for line in lines(tmp_path / "whole"))

    killed = tmp_path / "killed"
    at = random.Random(os.getpid()).randint(4, total - 3)
    process = command("train", digit_tree, "--out", killed, *options, start_new_session=True)
    while process.poll() is None and max((line["step"] for line in safe_lines(killed)), default=0) < at:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    assert process.returncode == -signal.SIGKILL, f"finished before it was killed at step {at}"

    bank = [part for part in options if str(part).startswith("bank_path=")]  # outside the folder: must be passed again
    resumed = command("train", "--resume", killed, "--no-evaluate", "--quiet", *(["--option", *bank] if bank else []))
    code, output = finish(resumed)
    assert code == 0, output
    assert comparable(killed) == comparable(tmp_path / "whole"), f"killed at step {at} of {total}"
    assert (killed / "encoder.safetensors").read_bytes() == (tmp_path / "whole" / "encoder.safetensors").read_bytes()


def safe_lines(run):
    try:
        return lines(run)
    except json.JSONDecodeError:
        return []


@pytest.mark.slow
def test_a_split_by_group_is_that_of_the_first_start(tmp_path, quick, caplog):
    """Resuming and evaluating use the same groups; a run without groups is warned about them."""
    houses = np.arange(60) // 3
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16), dtype=np.uint8)
    data = tmp_path / "data.npz"
    np.savez(data, images=pixels, labels=np.arange(60) % 3, house=houses)
    out = stopped_at(9, str(data), tmp_path / "run", **quick, group="house")
    split = json.loads((out / "split.json").read_text())
    train, test = (np.array(split[side]).astype(int) for side in ("train", "test"))  # their ids are their numbers
    assert split["group"] == "house" and not set(houses[train]) & set(houses[test])
    assert np.bincount(test % 3).tolist() == [4, 4, 4]
    assert not caplog.messages or "--group" not in " ".join(caplog.messages)
    run = coulomb.train(resume_from=out, progress=False)
    assert json.loads((out / "split.json").read_text()) == split
    assert coulomb.evaluate(out, progress=False)["protocol"]["split"] == run.evaluation["protocol"]["split"]
    assert (
        "no house is in both" in run.evaluation["protocol"]["split"] and "no house is in both" in run.report.read_text()
    )
    coulomb.train(str(data), out=tmp_path / "leak", evaluate=False, progress=False, **quick)
    assert any("--group house keeps every house on one side" in message for message in caplog.messages)


MORE = {
    "moco": [{"symmetric": True, "queue_size": 20}],
    "paco": [{"queue_size": 20}, {"generalized": True, "queue_size": 20}],
    "instdisc": [{"full": True}, {"full": False, "noise_samples": 16, "normalizer": "ema"}],
}
CASES = [(name, own) for name in METHODS for own in MORE.get(name, [{}])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "own"), CASES, ids=str)
def test_every_method_resumes_bit_identically(digit_tree, tmp_path, quick, name, own):
    options = quick | {"method": name, "method_options": own, "knn_every": 2, "workers": 0}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    stopped_at(11, digit_tree, tmp_path / "run", **options)  # the last checkpoint is of step 8
    run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    assert (run.path / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()


def test_a_mapped_bank_is_restored_from_the_checkpoint(digit_tree, tmp_path, quick):
    found = []
    for name in ("whole", "cut"):
        own = {"full": True, "bank_path": str(tmp_path / f"{name}.bank")}
        options = quick | {"method": "instdisc", "method_options": own, "workers": 0, "checkpoint_every": 4}
        if name == "whole":
            coulomb.train(digit_tree, out=tmp_path / name, evaluate=False, progress=False, **options)
        else:
            stopped_at(11, digit_tree, tmp_path / name, **options)
            with pytest.raises(InputError, match=r"bank_path=.* outside the run folder.*--option bank_path="):
                coulomb.train(resume_from=tmp_path / name, evaluate=False, progress=False)
            named = {"bank_path": own["bank_path"]}
            coulomb.train(resume_from=tmp_path / name, method_options=named, evaluate=False, progress=False)
        found.append((comparable(tmp_path / name), (tmp_path / f"{name}.bank").read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"view_options": {"hues": 0}},
        {"batch_size": 5000},
        {"max_corrupt": 0.0},
        {"method": "moco", "method_options": {"queue_size": -1}},
        {"accelerator": "gpu"},
        {"sampler": "square_root", "labels": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("existing", [False, True], ids=["new folder", "empty folder"])
def test_a_failed_start_leaves_nothing(digit_tree, tmp_path, quick, wrong, existing, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    data = digit_tree
    if "max_corrupt" in wrong:
        data = tmp_path / "data"
        data.mkdir()
        for number in range(12):
            Image.new("L", (20, 20), number).save(data / f"{number}.png")
        (data / "0.png").write_bytes(b"no picture")
    out = tmp_path / "runs" / "new"
    if existing:
        out.mkdir(parents=True)
    with pytest.raises(InputError):
        coulomb.train(data, out=out, progress=False, **quick | wrong)
    assert out.exists() == existing and not list(out.glob("*"))
    assert (tmp_path / "runs").exists() == existing


def test_an_error_in_the_first_update_leaves_nothing(digit_tree, tmp_path, quick, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("coulomb.training.module.ContrastiveTraining.checked_loss", fail)
    with pytest.raises(ZeroDivisionError):
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_is_not_to_be_resumed(tmp_path, quick, digit_tree):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("kept")
    with pytest.raises(InputError, match="choose another folder, or remove it"):
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick)


def test_two_images_are_refused_with_a_remedy_that_works(tmp_path, quick):
    folder = tmp_path / "two"
    folder.mkdir()
    for number in range(2):
        Image.effect_noise((20, 20), 100 + number).save(folder / f"{number}.png")
    with pytest.raises(
        InputError, match=r"1 training image \(2 images, 1 held out\); .* or pass the held-out ones as test"
    ):
        coulomb.train(folder, out=tmp_path / "run", progress=False, **quick)
    options = quick | {"batch_size": 2, "epochs": 1}
    run = coulomb.train(folder, test=folder, out=tmp_path / "run", progress=False, **options)
    assert run.report.exists()


def test_data_must_be_given():
    for begin in (coulomb.train, coulomb.train_seeds):
        with pytest.raises(InputError, match=r"data: missing; give .*'digits'"):
            begin()


@pytest.mark.slow
def test_nothing_is_printed_without_progress(digit_tree, tmp_path, quick, capfd):
    coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick | {"epochs": 1})
    assert capfd.readouterr() == ("", "")
