import pytest
import torch

from benchmarks import prefixes
from benchmarks.prefixes import CONTESTANTS, LOSSES, bench_prefixes, render
from coulomb.ground.errors import InputError
from coulomb.similarity import policy


def test_contestants_take_turns_and_are_compared(monkeypatch):
    asked = []

    def fresh(loss, contestant, pairs, dims):
        asked.append(contestant)
        seconds = {"longest": 1.0, "together": 1.4, "apart": 2.0}[contestant] * len(asked)
        gradient = 2.0 if loss == "views" and contestant == "apart" else 1.0
        return {"seconds": seconds, "processor": seconds, "peak_mib": 10.0, "loss": 3.0, "gradient": gradient}

    monkeypatch.setattr(prefixes, "fresh", fresh)
    result = bench_prefixes(["one", "views"], 64, (2, 4), repeats=2)
    assert asked[:6] == [*CONTESTANTS] * 2
    assert [row["loss"] for row in result["rows"]] == ["one", "views"]
    assert result["rows"][0]["ratios"]["longest"] == {"seconds": 1, "processor": 1}
    assert [row["same"] for row in result["rows"]] == [True, False]
    text = render(result)
    assert "ANOTHER" in text and "MatryoshkaLoss" in text and "64 pairs" in text


@pytest.mark.parametrize("loss", LOSSES)
def test_both_ways_compute_the_same(loss):
    query, positive = (torch.randn(10, 6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    with policy.override(stored=0, saved=0):
        values = [
            CONTESTANTS[name][1](LOSSES[loss][1](), LOSSES[loss][2], (2, 6))(query, positive) for name in CONTESTANTS
        ]
    torch.testing.assert_close(values[1], values[2])
    assert values[0] < values[1]


def test_bad_arguments_are_named(run):
    with pytest.raises(InputError, match="loss=nobody"):
        bench_prefixes(["nobody"])
    with pytest.raises(InputError, match=r"dims=\[4, 2\]"):
        bench_prefixes(dims=(4, 2))
    code, output = run(prefixes, "--dims", "a,b")
    assert code == 2 and "dims=a,b" in output.err


@pytest.mark.slow
def test_a_fresh_process_measures_a_small_batch():
    figures = prefixes.fresh("both", "together", 64, (2, 4))
    assert figures["seconds"] > 0 and figures["processor"] > 0 and figures["loss"] > 0 and figures["gradient"] > 0
