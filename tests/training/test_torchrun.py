"""Runs that torchrun starts: on several machines, after a failure, on fewer processes, and what goes wrong."""

import json
import math
import os
import signal

import pytest

import coulomb
from run_cases import comparable
from torchrun_agents import Agents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OPTIONS = (
    "--batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --accelerator cpu --workers 0 "
    "--no-evaluate --quiet --knn-every 0"
).split()


@pytest.fixture
def begin(tmp_path):
    started = []

    def start(*command, **options):
        started.append(Agents(tmp_path, command, **options))
        return started[-1]

    yield start
    for agents in started:
        agents.end()


def steps(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count('"loss"') if path.exists() else 0


def losses(folder):
    return [line["loss"] for line in comparable(folder) if "loss" in line]


def test_a_killed_process_starts_again_on_both_machines(digit_tree, tmp_path, begin):
    """The run goes on from the last checkpoint, with the same bits as without the failure, and the files are those of one."""
    more = [*OPTIONS, "--epochs", 30, "--checkpoint-every", 7]
    whole = begin("train", digit_tree, "--out", tmp_path / "whole", *more, processes=2)
    assert whole.wait() == ([0], [[f"run folder: {tmp_path / 'whole'}"]])

    run = tmp_path / "run"
    agents = begin("train", digit_tree, "--out", run, *more, machines=2, processes=1, restarts=3)
    agents.until(lambda: steps(run) > 12)
    agents.kill(machine=2)
    codes, said = agents.wait()
    assert codes == [0, 0]
    assert "another process of the run ended" in said[0][0] and said[0][1:] == [f"run folder: {run}"]
    assert said[1] == []  # the killed one could not say anything
    assert comparable(run) == comparable(tmp_path / "whole")
    assert (run / "encoder.safetensors").read_bytes() == (tmp_path / "whole" / "encoder.safetensors").read_bytes()
    log = (run / "train.log").read_text()
    assert log.count("resuming from") == 1 and log.count("training simclr") == 2


def test_a_lost_machine_leaves_the_run_to_the_others(digit_tree, tmp_path, begin):
    """Each step keeps its images and views: with shared batch norms, the losses remain those of two processes."""
    more = [*OPTIONS, "--epochs", 30, "--checkpoint-every", 5, "--sync-batchnorm", "--lr", 1e-5, "--precision", 32]
    run = tmp_path / "run"
    agents = begin("train", digit_tree, "--out", run, *more, machines=2, least=1, processes=1, restarts=3)
    agents.until(lambda: steps(run) > 12)
    agents.kill(machine=2, agent=True)
    assert agents.agents[0].wait(240) == 0
    assert agents.lines(1)[-1] == f"run folder: {run}"
    log = (run / "train.log").read_text()
    assert "the run began on 2 processes and continues on 1: the batch remains 16 images, 16 per process" in log
    options = {"epochs": 30, "batch_size": 16, "encoder": "convnet", "encoder_width": 8, "image_size": 16, "lr": 1e-5}
    options["precision"] = "32"
    one = coulomb.train(
        digit_tree,
        out=tmp_path / "one",
        embedding_dim=8,
        knn_every=0,
        workers=0,
        evaluate=False,
        progress=False,
        **options,
    )
    assert len(losses(run)) == 30 * 3
    assert losses(run) == pytest.approx(losses(one.path), abs=1e-4)


def test_a_run_continues_on_three_processes(digit_tree, tmp_path, begin):
    """16 images are 6, 5 and 5; a queue that holds whole steps goes on as it was."""
    options = {"epochs": 20, "batch_size": 16, "encoder": "convnet", "encoder_width": 8, "image_size": 16, "lr": 1e-5}
    options |= {"embedding_dim": 8, "method": "moco", "head_layers": 1, "precision": "32"}
    options["method_options"] = {"queue_size": 64, "key_groups": 1}
    quiet = {"knn_every": 0, "workers": 0, "evaluate": False, "progress": False}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", sync_batchnorm=True, **options, **quiet)
    run = tmp_path / "run"
    agents = begin("train", digit_tree, "--out", run, *more_of(options), processes=2)
    agents.until(lambda: steps(run) > 7)
    os.kill(agents.agents[0].pid, signal.SIGTERM)
    agents.wait()
    done = steps(run)
    assert 7 < done < 60
    assert begin("train", "--resume", run, "--no-evaluate", "--quiet", processes=3).wait()[0] == [0]
    assert (
        "the run began on 2 processes and continues on 3: the batch remains 16 images, 5 to 6"
        in (run / "train.log").read_text()
    )
    assert losses(run) == pytest.approx(losses(whole.path), abs=1e-4)


def more_of(options):
    own = ["--option", "queue_size=64", "--option", "key_groups=1", "--batch-size", 8, "--sync-batchnorm"]
    names = (
        "epochs",
        "encoder",
        "encoder_width",
        "image_size",
        "lr",
        "embedding_dim",
        "method",
        "head_layers",
        "precision",
    )
    own += [part for name in names for part in (f"--{name.replace('_', '-')}", options[name])]
    return [*own, *"--accelerator cpu --workers 0 --no-evaluate --quiet --knn-every 0".split()]


def test_a_process_that_hangs_ends_the_run_after_the_timeout(digit_tree, tmp_path, begin):
    run = tmp_path / "run"
    agents = begin("train", digit_tree, "--out", run, *OPTIONS, "--epochs", 3000, "--process-timeout", 4)
    agents.until(lambda: steps(run) > 5)
    os.kill(agents.processes(1)[1], signal.SIGSTOP)
    codes, said = agents.wait()
    assert codes == [1]
    everything = agents.said[0].read_text(errors="replace")  # it failed once beside other load, without a message
    assert len(said[0]) == 1 and "another process of the run ended or cannot be reached" in said[0][0], everything


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--devices", 5], "devices=5: torchrun started 2 processes on this machine and 2 in total; leave devices out"),
        (["--batch-size", 500], "batch_size=500: larger than the 24 training images for each of the 2 processes"),
        (["--out", "{existing}"], "already exists; choose another folder, or remove it"),
    ],
    ids=["devices", "batch", "folder"],
)
def test_wrong_input_is_one_sentence(digit_tree, tmp_path, begin, wrong, sentence):
    (tmp_path / "existing").mkdir()
    (tmp_path / "existing" / "notes").write_text("kept")
    wrong = [str(each).format(existing=tmp_path / "existing") for each in wrong]
    codes, said = begin("train", digit_tree, "--out", tmp_path / "run", *OPTIONS, *wrong).wait()
    assert codes == [1]  # torchrun's own
    assert len(said[0]) == 1 and said[0][0].startswith("coulomb: error: ") and sentence in said[0][0]
    assert not (tmp_path / "run").exists()


def test_cached_features_on_two_processes(digit_tree, tmp_path, begin):
    """Features are computed once, and the draws of a step do not depend on the number of processes."""
    run, options = (
        tmp_path / "run",
        "--encoder lite0 --tune none --epochs 6 --image-size 32 --cached-views 3 --keep-cache".split(),
    )
    more = "--accelerator cpu --workers 0 --no-evaluate --quiet --knn-every 0 --lr 0.001 --precision 32".split()
    codes, said = begin("train", digit_tree, "--out", run, "--batch-size", 8, *options, *more).wait()
    assert (codes, said) == ([0], [[f"run folder: {run}"]])
    assert math.prod(json.loads((run / "features.json").read_text())[name] for name in ("images", "views")) == 48 * 3
    one = coulomb.train(
        digit_tree, out=tmp_path / "one", encoder="lite0", tune="none", epochs=6, image_size=32, cached_views=3, lr=0.001,
        batch_size=16, knn_every=0, workers=0, precision="32", evaluate=False, progress=False,
    )  # fmt: skip
    assert losses(run) == pytest.approx(losses(one.path), abs=1e-4)


def test_all_processes_evaluate(digit_tree, tmp_path, begin):
    """Each process computes whole batches of the features, so that the results are those of one process."""
    run = tmp_path / "run"
    options = [each for each in OPTIONS if each != "--no-evaluate"]
    codes, said = begin("train", digit_tree, "--out", run, *options, "--epochs", 2).wait()
    assert codes == [0] and [line.split(":")[0] for line in said[0]] == ["report", "run folder"]
    together = json.loads((run / "evaluation.json").read_text())
    alone = coulomb.evaluate(run, progress=False)
    alone["protocol"]["versions"]["threads"] = 1  # as torchrun sets it
    assert alone == together
    again = begin("evaluate", run, "--json")
    codes, said = again.wait()
    assert codes == [0] and again.said[0].read_text().count('"protocol"') >= 1
    assert json.loads((run / "evaluation.json").read_text()) == together


def test_an_index_that_another_process_builds(digit_tree, tmp_path, begin):
    """All processes end with one sentence; none waits for the lock."""
    from coulomb.index.folder import IndexFolder

    folder = IndexFolder(tmp_path / "photos.index")
    folder.create()
    with folder.working():
        (folder.path / "unfinished").mkdir()
        codes, said = begin("index", digit_tree, "--out", folder.path).wait()
    assert codes == [1]
    assert len(said[0]) == 1 and "is building this index; wait for it, or stop it" in said[0][0]
