import pytest
import torch

from benchmarks import pairs
from benchmarks.contenders import UnavailableError
from benchmarks.pairs import CONTESTANTS, bench_pairs, render
from coulomb.ground.errors import InputError


def test_contestants_take_turns_and_are_compared(monkeypatch):
    asked = []

    def fresh(contestant, rows):
        asked.append((contestant, rows))
        if contestant == "open_clip":
            raise UnavailableError("not installed")
        seconds = {"coulomb": 1.0, "ids": 1.5, "products": 0.5}.get(contestant, 4.0)
        return (
            seconds * len(asked),
            seconds,
            100.0 * rows / 1024,
            0.5,
            2.0 if contestant == "sentence-transformers" else 1.0,
        )

    monkeypatch.setattr(pairs, "fresh", fresh)
    result = bench_pairs([0, 1], growth=[1024, 2048], repeats=2)
    assert [row["beside"] for row in result["rows"]] == [0, 1]
    row = result["rows"][0]
    assert row["skipped"] == {"open_clip": "not installed"}
    assert row["ratios"]["coulomb"] == 1
    assert "sentence-transformers" not in row["same"]  # another gradient
    assert "sentence-transformers, 1024" in row["same"]
    names = [
        name for name, _ in asked[: 2 * len(CONTESTANTS) - 2]
    ]  # one is skipped after its failure, one measured once
    assert names.count("coulomb") == 2
    assert names.count("open_clip") == names.count("sentence-transformers") == 1
    chosen = bench_pairs([0], contestants=["products"], growth=[], repeats=1)["rows"][0]
    assert list(chosen["contestants"]) == ["coulomb", "products"]
    text = render(result)
    assert "not installed" in text
    assert "NO" in text
    assert text.count("100.0 KiB per pair") == 2


@pytest.mark.parametrize("name", ["coulomb", "ids", "products"])
def test_steps_leave_gradients(name, monkeypatch):
    monkeypatch.setattr(pairs, "ROWS", 10)
    query, positive = (torch.randn(10, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    query.requires_grad_(), positive.requires_grad_()
    CONTESTANTS[name][1]()(query, positive)
    assert query.grad.shape == positive.grad.shape == (10, 4)


@pytest.mark.slow
def test_a_fresh_process_measures_a_small_batch():
    seconds, processor, peak, loss, gradient = pairs.fresh("coulomb", 256)
    assert seconds > 0
    assert processor > 0
    assert peak >= 0
    assert 0 < loss < 6
    assert gradient > 0


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="-1"):
        bench_pairs([-1])
    with pytest.raises(InputError, match="contestant=nobody"):
        bench_pairs(contestants=["nobody"])
