"""Time of encoders without batch norms."""

import torch

from benchmarks.folding import bench_folding, render


def test_folding_tiny():
    threads = torch.get_num_threads()
    try:
        result = bench_folding((("lite0", 32, 2), ("convnet-pool", 16, 3)), repeats=1)
    finally:
        torch.set_num_threads(threads)
    assert [(row["encoder"], row["side"], row["batch"]) for row in result["cases"]] == [
        ("lite0", 32, 2),
        ("convnet-pool", 16, 3),
    ]
    for row in result["cases"]:
        assert row["plain"] > 0 and row["folded"] > 0
        assert 0 < row["difference"] < 1e-4  # another network, the same features
    assert "lite0" in render(result)
