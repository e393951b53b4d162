import json

import pytest
import torch

from coulomb.bench import losses
from coulomb.bench.losses import bench_losses, render
from coulomb.errors import InputError


def test_a_small_run_is_complete():
    result = bench_losses(n=256, dim=16, repeats=1, memory=False)
    json.dumps(result)
    assert result["parity"]["ok"]
    assert set(result["seconds"]) == {"coulomb", "dense", "floor", "floor_torch_mm"}
    assert result["speedup"] == pytest.approx(result["seconds"]["dense"] / result["seconds"]["coulomb"])
    assert "faster than dense" in render(result)


def test_no_speed_is_reported_for_a_wrong_result(monkeypatch):
    monkeypatch.setattr(losses, "ours", lambda x, y: losses.dense(x, y) * 1.001)
    result = bench_losses(n=64, dim=8, repeats=1, memory=False)
    assert not result["parity"]["ok"]
    assert result["speedup"] is None
    assert set(result["seconds"].values()) == {None}
    assert "WRONG RESULT" in render(result)


def test_a_wrong_gradient_is_noticed(monkeypatch):
    monkeypatch.setattr(losses, "ours", lambda x, y: losses.dense(x, y.detach() + 0 * y))
    assert not losses.compare(64, 8)["ok"]


def test_bad_numbers():
    for options in ({"n": 3}, {"n": 2}, {"dim": 0}, {"repeats": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            bench_losses(**options)


@pytest.mark.slow
def test_memory_of_the_main_case():
    # Speed is for `coulomb bench losses` on a quiet machine: on a busy one a test of it measures the neighbours.
    result = bench_losses(n=8192, dim=128, repeats=1)
    assert result["parity"]["ok"]
    assert 0 < result["memory_mb"]["coulomb"] <= 100
    assert result["memory_mb"]["dense"] > 500


def test_the_floor_counts_its_flops():
    counted = []
    losses.floor(2048, 8, lambda q, k, _: counted.append(2 * len(q) * len(k) * q.shape[1]) or torch.zeros(1))
    assert sum(counted) == 4 * 2048**2 * 8
