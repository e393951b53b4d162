"""Whole runs on shards from a server: equal to local ones, also after kills, failures and with other numbers of processes."""

import os
import random
import signal
import time

import pytest

import coulomb.tables.sources.tar as tar_source
import forked
from coulomb.tables.shards.blocks import Blocks, cut_blocks
from range_server import range_server
from run_cases import comparable
from shards_made import make_shards

OPTIONS = """--epochs 3 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --method supcon
    --cache-gb 0 --checkpoint-every 3 --no-evaluate --quiet""".split()
NAMES = "train-{0000..0003}.tar"


def small_blocks():
    """In the process of a run: gives a few images many blocks and windows."""
    os.setsid()

    def cut(shard, offsets, sizes):
        blocks = cut_blocks(shard, offsets, sizes, 2500)
        return Blocks(blocks.of, blocks.shard, blocks.start, blocks.end, 10000)

    tar_source.cut_blocks = cut


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("shards"), images=20)


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """An uninterrupted run on the local shards."""
    folder = tmp_path_factory.mktemp("whole")
    train(f"{shards}/{NAMES}", folder / "whole", 0)
    return folder / "whole"


def train(data, out, workers):
    options = ["--out", out, "--workers", workers, *OPTIONS]
    done = forked.coulomb("train", data, *options, cwd=out.parent, before=small_blocks)
    assert done.returncode == 0, done.stderr


def same(run, other):
    assert comparable(run) == comparable(other)
    assert (run / "encoder.safetensors").read_bytes() == (other / "encoder.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_on_a_failing_server_equals_one_on_local_files(shards, whole, tmp_path, workers):
    with range_server(shards) as server:
        server.fails = [500, "cut"] * 3
        train(f"{server.address}/{NAMES}", tmp_path / "far", workers)
    same(tmp_path / "far", whole)


def test_a_server_that_stays_away_ends_the_run_with_the_name_of_the_shard(shards, tmp_path):
    with range_server(shards) as server:
        server.broken["train-0002.tar"] = 403
        done = forked.coulomb("train", f"{server.address}/{NAMES}", "--out", "far", *OPTIONS, cwd=tmp_path)
        assert done.returncode == 2 and "train-0002.tar: permission denied" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_run_killed_anywhere_continues_as_if_nothing_had_happened(shards, whole, tmp_path, monkeypatch, kills):
    """Kills runs after random times: while tables are made, blocks are fetched, batches are trained or checkpoints written."""
    draw, finished, number, killed = random.Random(kills), 0, 0, 0
    seconds = 3.0
    with range_server(shards) as server:
        server.delay = 0.002
        while killed < kills or finished == 0:
            run = tmp_path / f"run-{number}"
            monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / f"cache-{number}"))
            server.fails = draw.choices([500, "cut", 503], k=draw.randrange(4))
            if (run / "config.yaml").exists():
                arguments = ["train", "--resume", run, "--no-evaluate", "--quiet"]
            else:
                number += run.exists()
                run = tmp_path / f"run-{number}"
                workers = draw.randrange(2)
                arguments = ["train", f"{server.address}/{NAMES}", "--out", run, "--workers", workers, *OPTIONS]
            command = ["coulomb", *map(str, arguments)]
            outputs = [tmp_path / "stdout", tmp_path / "stderr"]
            process = forked.context.Process(
                target=forked._command, args=(command, tmp_path, dict(os.environ), outputs, small_blocks)
            )
            begun = time.monotonic()
            process.start()
            process.join(draw.uniform(0.05, seconds) if killed < kills else 120)
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                killed += 1
                continue
            assert process.exitcode == 0, outputs[1].read_text()
            seconds = 1.1 * max(1.0, time.monotonic() - begun)
            same(run, whole)
            finished, number = finished + 1, number + 1
    assert killed == kills and finished
