"""Ctrl-C and SIGTERM end a run with a checkpoint, an exit code and a message."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import coulomb
from coulomb.cli import main
from coulomb.ground.errors import Stopped
from coulomb.ground.team import is_lost_connection
from coulomb.training.record.journal import Journal
from run_cases import comparable, stopped_at

SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]


def signalled_at(step, number, monkeypatch, times=1):
    """Sends this process a signal right after the line of update ``step`` is written."""
    write = Journal.write

    def send(self, line):
        write(self, line)
        if "loss" in line and line["step"] == step:
            for _ in range(times):
                os.kill(os.getpid(), number)

    monkeypatch.setattr(Journal, "write", send)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_stops_after_the_update_and_resuming_is_bit_identical(
    digit_tree, tmp_path, quick, monkeypatch, number, code
):
    handlers = [signal.getsignal(each) for each, _ in SIGNALS]
    with monkeypatch.context() as patch:
        signalled_at(5, number, patch)
        with pytest.raises(Stopped, match=r"stopped at step 5; resume with: coulomb train --resume .*run") as stopped:
            coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick)
    assert stopped.value.code == code
    assert [signal.getsignal(each) for each, _ in SIGNALS] == handlers
    assert max(line["step"] for line in comparable(tmp_path / "run")) == 5
    assert not (tmp_path / "run" / "lock").exists()
    coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **quick)
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_the_command_line_exits_with_code_and_message(
    digit_tree, tmp_path, monkeypatch, capsys, number, code, own_console
):
    options = "--epochs 2 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --workers 0 --quiet"
    monkeypatch.setattr(
        sys, "argv", ["coulomb", "train", str(digit_tree), "--out", str(tmp_path / "run"), *options.split()]
    )
    signalled_at(3, number, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    said = capsys.readouterr().err.strip().splitlines()
    assert said == [f"coulomb: stopped at step 3; resume with: coulomb train --resume {tmp_path / 'run'}"]


def test_a_second_signal_stops_immediately(digit_tree, tmp_path, quick, monkeypatch):
    signalled_at(5, signal.SIGINT, monkeypatch, times=2)
    with pytest.raises(Stopped, match="stopped at step 4;"):
        coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, checkpoint_every=2, **quick)


def test_a_signal_before_the_first_update_leaves_nothing(digit_tree, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("coulomb.training.plan.plan.decode", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped, match="before the first update; no files were written") as stopped:
        coulomb.train(digit_tree, out=tmp_path / "runs" / "new", progress=False, **quick)
    assert stopped.value.code == 143
    assert not list(tmp_path.iterdir())


def test_a_signal_in_the_evaluation_names_the_command_for_it(digit_tree, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("coulomb.api.assess", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped, match="the training is complete, evaluate it with: coulomb evaluate"):
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick)


def test_the_first_evaluation_is_not_repeated_after_a_kill_without_checkpoint(digit_tree, tmp_path, quick):
    stopped_at(2, digit_tree, tmp_path / "run", **quick | {"checkpoint_every": 1000})
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **quick)
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")


def test_lost_connections_are_distinguished_from_other_errors():
    assert is_lost_connection(
        RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    )
    assert is_lost_connection(torch.distributed.DistNetworkError("the client socket has failed to connect"))
    assert not is_lost_connection(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


TWO = (
    "--epochs 3000 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --workers 0 "
    "--devices 2 --accelerator cpu --knn-every 0 --no-evaluate --quiet"
).split()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["run", "rank 0", "rank 1"])
def test_two_processes(digit_tree, tmp_path, victim):
    """SIGTERM to the first process stops both; if one is killed, the other reports it in one line."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "coulomb", "train", str(digit_tree), "--out", str(run), *TWO]
    with (tmp_path / "said").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "metrics.jsonl").exists() and len((run / "metrics.jsonl").read_text().splitlines()) > 5:
            break
        time.sleep(0.1)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    if victim == "rank 1":
        os.kill(int(children.split()[0]), signal.SIGKILL)
    else:
        process.send_signal(signal.SIGTERM if victim == "run" else signal.SIGKILL)
    code = process.wait(60)
    time.sleep(0 if victim == "run" else 10)  # the other process notices
    said = (tmp_path / "said").read_text().strip().splitlines()
    assert len(said) == 1, said
    assert "resume with: coulomb train --resume" in said[0]
    if victim == "run":
        assert code == 143
        assert said[0].startswith("coulomb: stopped at step")
    else:
        assert code == (1 if victim == "rank 1" else -signal.SIGKILL)
        assert "another process of the run ended" in said[0]
