"""Damaged checkpoints are refused by name, and the previous one replaces them with a warning and exact results."""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
import torch

import coulomb
import forked
from coulomb.ground.errors import InputError
from coulomb.training.checkpoint_callback import Checkpoints
from coulomb.training.checkpoints import checkpoint_to_resume, find_problem, keep_checkpoint, read_checkpoint
from coulomb.training.module import ContrastiveTraining
from coulomb.training.plan.config import Config
from coulomb.training.stopping import Signals
from run_cases import comparable, stopped_at

CONTENT = {"state_dict": {}, "optimizer_states": [], "lr_schedulers": [], "loops": {}}


def save(path, step):
    torch.save(CONTENT | {"global_step": step, "padding": torch.zeros(1000)}, path)
    return path


@pytest.fixture
def last(tmp_path):
    """``last.ckpt`` of step 3 and ``previous.ckpt`` of step 2."""
    path = tmp_path / "last.ckpt"
    for step in (1, 2, 3):
        keep_checkpoint(save(tmp_path / "last.tmp", step), path)
    return path


def flip(path, at=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size // 2), "is cut short or is not a checkpoint"),
    "one byte short": (lambda path: os.truncate(path, path.stat().st_size - 1), "is damaged|is cut short"),
    "a flipped bit": (flip, "its bytes do not match the checksum"),
    "text": (lambda path: path.write_text("not a checkpoint"), "is not a checkpoint"),
    "another archive": (lambda path: zipfile.ZipFile(path, "w").writestr("a", "b"), "do not match|not a checkpoint"),
    "another checkpoint": (lambda path: save(path, 9), "its bytes do not match the checksum"),
}


def test_the_previous_checkpoint_is_kept(last):
    assert sorted(path.name for path in last.parent.iterdir()) == ["checksums.json", "last.ckpt", "previous.ckpt"]
    assert read_checkpoint(last)["global_step"] == 3
    assert read_checkpoint(last.with_name("previous.ckpt"))["global_step"] == 2
    assert checkpoint_to_resume(last) == (last, None)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_are_refused(last, kind):
    damage, words = DAMAGE[kind]
    last.unlink()
    save(last, 3)
    keep_checkpoint(save(last.with_suffix(".tmp"), 4), last)
    damage(last)
    with pytest.raises(InputError, match=f"last.ckpt: .*({words}).*--resume continues from previous.ckpt") as error:
        read_checkpoint(last)
    assert "\n" not in str(error.value)
    chosen, sentence = checkpoint_to_resume(last)
    assert chosen.name == "previous.ckpt"
    assert "continuing from previous.ckpt, which is of step 3: the steps after it are trained again" in sentence
    damage(chosen)
    with pytest.raises(InputError, match=r"last\.ckpt: .*, and previous\.ckpt .*; restore one of them"):
        checkpoint_to_resume(last)
    chosen.unlink()
    with pytest.raises(InputError, match=r"last\.ckpt: .*, and no earlier checkpoint was kept; restore it"):
        checkpoint_to_resume(last)


@pytest.mark.parametrize(
    "content",
    [{}, [1], {"state_dict": [1]} | CONTENT, CONTENT, CONTENT | {"global_step": "3"}, CONTENT | {"state_dict": 3}],
    ids=str,
)
def test_a_file_with_other_content_is_not_a_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "last.ckpt")
    assert "is not a checkpoint of coulomb train" in find_problem(tmp_path / "last.ckpt")


def test_compressed_archives_and_code_are_not_loaded(tmp_path):
    path = save(tmp_path / "whole.ckpt", 1)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "last.ckpt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert "is not a checkpoint" in find_problem(tmp_path / "last.ckpt")
    torch.save(CONTENT | {"global_step": 1, "code": os.system}, path)
    assert "UnpicklingError" in find_problem(path)


def test_a_run_of_an_earlier_version_has_no_checksums(last):
    last.with_name("checksums.json").unlink()
    assert checkpoint_to_resume(last) == (last, None)
    last.with_name("checksums.json").write_text("[1]")
    with pytest.raises(InputError, match=r"checksums\.json: holds \[1\].*delete it"):
        checkpoint_to_resume(last)


def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    assert checkpoint_to_resume(tmp_path / "last.ckpt") == (None, None)


@pytest.mark.parametrize("call", ["replace", "hardlink_to"])
def test_a_kill_between_any_two_steps_leaves_a_checkpoint(last, monkeypatch, call):
    """Interrupted before each renaming, the folder has a checkpoint that can be loaded."""

    class Killed(BaseException):
        pass

    from pathlib import Path

    whole = getattr(Path, call)
    for survives in range(4):
        calls = []

        def counted(self, *arguments, calls=calls, survives=survives):
            calls.append(self)
            if len(calls) > survives:
                raise Killed
            return whole(self, *arguments)

        save(last.with_suffix(".tmp"), 4)
        with monkeypatch.context() as patch:
            patch.setattr(Path, call, counted)
            with contextlib.suppress(Killed):
                keep_checkpoint(last.with_suffix(".tmp"), last)
        chosen, sentence = checkpoint_to_resume(last)
        assert chosen == last and sentence is None


def test_without_hard_links_the_file_is_renamed(last, monkeypatch):
    from pathlib import Path

    def refuse(self, target):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    keep_checkpoint(save(last.with_suffix(".tmp"), 4), last)
    assert read_checkpoint(last)["global_step"] == 4
    assert read_checkpoint(last.with_name("previous.ckpt"))["global_step"] == 3


@pytest.mark.parametrize("kind", ["empty", "a flipped bit", "missing"])
def test_a_run_resumes_from_the_previous_checkpoint_with_the_same_result(digit_tree, tmp_path, quick, kind, caplog):
    options = quick | {"knn_every": 2, "workers": 0}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    out = stopped_at(11, digit_tree, tmp_path / "run", **options)
    last = out / "checkpoints" / "last.ckpt"
    last.unlink() if kind == "missing" else DAMAGE[kind][0](last)
    with caplog.at_level(logging.WARNING):
        run = coulomb.train(resume_from=out, evaluate=False, progress=False)
    assert "continuing from previous.ckpt, which is of step 6" in caplog.text
    assert "continuing from previous.ckpt" in (out / "train.log").read_text()
    assert comparable(run.path) == comparable(whole.path)
    assert (run.path / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()
    assert read_checkpoint(last)["global_step"] == 18
    assert last.with_name("damaged.ckpt").exists() == (kind != "missing")


def test_a_checkpoint_does_not_match_an_edited_configuration(digit_tree, tmp_path, quick):
    out = stopped_at(9, digit_tree, tmp_path / "run", **quick | {"workers": 0})
    config = (out / "config.yaml").read_text()
    for before, after, words in (
        ("encoder_width: 8", "encoder_width: 16", "does not match the run that config.yaml describes"),
        ("embedding_dim: 8", "embedding_dim: 4", "does not match the run that config.yaml describes"),
        ("optimizer: ", "optimizer: lars #", "optimizer='lars' in config.yaml: .* another optimizer"),
    ):
        assert before in config
        (out / "config.yaml").write_text(config.replace(before, after))
        with pytest.raises(InputError, match=words) as error:
            coulomb.train(resume_from=out, evaluate=False, progress=False)
        assert "\n" not in str(error.value)
        if "optimizer" not in before:
            with pytest.raises(InputError, match=words):
                coulomb.diagnose(out, progress=False)


def test_the_command_line_prints_one_line(digit_tree, tmp_path, quick):
    out = stopped_at(5, digit_tree, tmp_path / "run", **quick | {"workers": 0, "checkpoint_every": 50, "epochs": 2})
    checkpoints = out / "checkpoints"
    shutil.rmtree(checkpoints)
    checkpoints.mkdir()
    (checkpoints / "last.ckpt").write_bytes(b"")
    result = forked.coulomb("train", "--resume", out, "--quiet", cwd=tmp_path)
    assert result.returncode == 2 and "Traceback" not in result.stderr and "interrupted" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("coulomb: error:")]
    assert "last.ckpt: is empty, and no earlier checkpoint was kept" in line


@pytest.mark.slow
def test_a_kill_while_checkpoints_are_written(tmp_path):
    """Kills a process that only writes checkpoints, at four moments."""
    script = (
        "import sys, torch; from pathlib import Path; sys.path[:0] = [sys.argv[2]]\n"
        "from coulomb.training.checkpoints import keep_checkpoint\n"
        "folder = Path(sys.argv[1])\n"
        "for step in range(10**6):\n"
        "    parts = dict(state_dict={}, optimizer_states=[], lr_schedulers=[], loops={}, global_step=step)\n"
        "    torch.save(parts, folder / 'last.tmp'); keep_checkpoint(folder / 'last.tmp', folder / 'last.ckpt')\n"
        "    print(step, flush=True)\n"
    )
    reached = -1
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(coulomb.__path__[0] + "/..")],
            stdout=subprocess.PIPE,
            text=True,
        )
        steps = [int(process.stdout.readline()) for _ in range(3 + attempt)]
        process.send_signal(signal.SIGKILL)
        steps += [int(line) for line in process.communicate()[0].splitlines()]
        chosen, sentence = checkpoint_to_resume(tmp_path / "last.ckpt")
        assert sentence is None
        reached = read_checkpoint(chosen)["global_step"]
        assert reached in (steps[-1], steps[-1] + 1)
    assert json.loads((tmp_path / "checksums.json").read_text())["sha256"]


def saved_after(steps_per_epoch, epochs, every, accumulate, tmp_path, monkeypatch):
    saved = []
    checkpoints = Checkpoints(tmp_path / "last.ckpt", every, Signals())
    monkeypatch.setattr(checkpoints, "save", lambda trainer: saved.append(trainer.global_step))
    config = Config(epochs=epochs, accumulate=accumulate)
    module = SimpleNamespace(steps_per_epoch=steps_per_epoch, config=config)
    module.completes_update = lambda index: ContrastiveTraining.completes_update(module, index)
    updates, strategy = 0, SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    for index in range(steps_per_epoch * epochs):
        updates += module.completes_update(index)
        trainer = SimpleNamespace(global_step=updates, strategy=strategy, should_stop=False)
        checkpoints.on_train_batch_end(trainer, module, None, None, index)
    return saved


def test_every_epoch_and_every_period(tmp_path, monkeypatch):
    assert saved_after(5, 2, 3, 1, tmp_path, monkeypatch) == [3, 5, 6, 9, 10]


def test_only_complete_updates_are_saved(tmp_path, monkeypatch):
    """With seven batches per epoch and three per update, the first epoch is saved with the update that crosses its end."""
    assert saved_after(7, 2, 100, 3, tmp_path, monkeypatch) == [3, 5]
