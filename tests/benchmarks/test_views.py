import json
import sys

import pytest

from benchmarks.views import bench_views, render
from coulomb.ground.errors import InputError


def test_both_are_measured_and_shown():
    pytest.importorskip("kornia", reason="kornia is not installed")
    result = bench_views(batch=16, size=32, repeats=2)
    assert json.loads(json.dumps(result)) == result
    assert set(result["cases"]) == {"without blur", "with blur"}
    for rates in result["cases"].values():
        assert all(rate > 0 for rate in rates.values())
        assert set(rates) == {"coulomb", "coulomb, linear hue", "kornia"}
    text = render(result)
    assert f"{result['cases']['with blur']['coulomb']:,.0f}" in text
    assert "50,000" in text and f"kornia {result['kornia_version']}" in text


def test_without_kornia_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia", None)
    result = bench_views(batch=4, size=16, repeats=1)
    assert result["kornia_version"] is None and result["cases"]["with blur"]["kornia"] is None
    assert "kornia is not installed" in render(result) and "—" in render(result)


def test_the_global_generator_is_untouched_by_ours(monkeypatch):
    import torch

    monkeypatch.setitem(sys.modules, "kornia", None)
    before = torch.get_rng_state()
    bench_views(batch=4, size=16, repeats=1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("arguments", [{"batch": 0}, {"size": 1}, {"repeats": 0}])
def test_bad_numbers_are_named(arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        bench_views(**arguments)
