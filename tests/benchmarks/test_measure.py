import json
import re
from dataclasses import replace

import pytest
import torch

from bench_small import SMALL_CASES, small_result
from benchmarks import contenders, losses, measure
from benchmarks.cases import BY_NAME, CASES, Target
from benchmarks.contenders import CONTENDERS
from benchmarks.losses import NAMES, bench_losses, case_listing
from benchmarks.measure import KERNELS, Bench, check_target
from benchmarks.results import one_line, render_text
from coulomb.ground import machine
from coulomb.ground.errors import InputError


def test_a_measured_case_is_complete():
    result = Bench(repeats=2, memory=False, contenders=("dense",)).measure(SMALL_CASES[0])
    json.dumps(result)
    assert result["status"] == "measured"
    assert result["parity"]["ok"] and result["parity"]["reference"] == "dense, fp64"
    assert set(result["seconds"]) == {"coulomb", "dense", *(f"floor {name}" for name in KERNELS)}
    seconds = result["seconds"]
    assert result["speedup"] == {"dense": pytest.approx(seconds["dense"] / seconds["coulomb"])}
    assert result["time_over_floor"]["best"] == pytest.approx(
        seconds["coulomb"] / min(seconds[f"floor {name}"] for name in KERNELS)
    )
    for name, (low, high) in result["spread"].items():
        assert low <= seconds[name] <= high
    assert [target["value"] for target in result["targets"]] == [
        result["speedup"]["dense"],
        result["time_over_floor"]["best"],
    ]


def test_one_line_to_paste_into_an_issue():
    line = one_line(small_result(("dense",)))
    assert "\n" not in line
    assert torch.__version__ in line and machine.processor() in line and f"products by {machine.KERNEL}" in line
    for case in SMALL_CASES:
        assert re.search(rf"{case.name}: [\d.]+× dense, [\d.]+ × products", line)


def wrong_value(step):
    return lambda inputs: (step(inputs)[0] * 1.001, *step(inputs)[1:])


def wrong_gradient(step):
    return lambda inputs: (*step(inputs)[:-1], step(inputs)[-1] * 1.01)


def not_a_number(step):
    return lambda inputs: (*step(inputs)[:-1], step(inputs)[-1] * torch.nan)


@pytest.mark.parametrize("spoil", [wrong_value, wrong_gradient, not_a_number])
def test_a_wrong_loss_gets_no_speed(monkeypatch, spoil):
    broken = replace(CONTENDERS["coulomb"], make=lambda case: spoil(contenders.ours(case)))
    monkeypatch.setitem(measure.CONTENDERS, "coulomb", broken)
    result = small_result(("dense",))
    assert {case["status"] for case in result["cases"]} == {"wrong"}
    for case in result["cases"]:
        assert case["seconds"] == case["speedup"] == case["memory_mb"] == case["time_over_floor"] == {}
        assert all(target["met"] is None for target in case["targets"])
    assert {point["status"] for point in result["growth"]["points"]} == {"wrong"}
    assert all(point["seconds"] == {} for point in result["growth"]["points"])
    cells = [cell for row in result["small"]["rows"] for cell in row["cells"]]
    assert all(cell["coulomb"] is None for cell in cells)
    assert "WRONG RESULT, so no speed is reported" in render_text(result)
    assert result["counts"]["wrong"] == len(result["cases"])


def test_a_ratio_with_a_wrong_case_is_not_measured(monkeypatch):
    case = replace(SMALL_CASES[1], targets=(Target("ratio", 1.1, SMALL_CASES[0].name),))
    bench = Bench(repeats=1, memory=False, contenders=())
    monkeypatch.setitem(measure.BY_NAME, SMALL_CASES[0].name, SMALL_CASES[0])
    assert bench.measure(case)["targets"][0]["value"] is not None
    bench.verified[SMALL_CASES[0].name]["ok"] = False
    assert bench.measure(case)["targets"][0]["value"] is None


def test_targets_are_judged():
    found = {
        "seconds": {"coulomb": 2.0, "case x": 1.0},
        "speedup": {"dense": 3.0},
        "time_over_floor": {"best": 1.5, "torch.mm": 1.0},
        "memory_mb": {"coulomb": 100.0},
    }
    expected = [
        (Target("speedup", 3.5), 3.0, False),
        (Target("speedup", 2.5), 3.0, True),
        (Target("floor", 1.4), 1.5, False),
        (Target("floor", 1.6), 1.5, True),
        (Target("ratio", 1.9, "x"), 2.0, False),
        (Target("ratio", 2.1, "x"), 2.0, True),
        (Target("ratio", 2.1, "y"), None, None),
        (Target("memory", 99), 100.0, False),
        (Target("memory", 101), 100.0, True),
    ]
    for target, value, met in expected:
        assert (check_target(target, found)["value"], check_target(target, found)["met"]) == (value, met)


def test_a_contender_that_fails_or_differs_is_left_out_with_a_reason(monkeypatch):
    def broken(case):
        raise RuntimeError("no compiler\nand more")

    other = replace(CONTENDERS["dense"], make=lambda case: wrong_gradient(wrong_gradient(contenders.dense_eager(case))))
    other = replace(other, make=lambda case: lambda inputs: tuple(2 * x for x in contenders.dense_eager(case)(inputs)))
    monkeypatch.setitem(measure.CONTENDERS, "compiled", replace(CONTENDERS["compiled"], make=broken))
    monkeypatch.setitem(measure.CONTENDERS, "dense", other)
    result = Bench(repeats=1, memory=False, contenders=("dense", "compiled")).measure(SMALL_CASES[0])
    assert result["status"] == "measured" and result["speedup"] == {}
    assert result["skipped"]["compiled"] == "failed: RuntimeError: no compiler"
    assert result["skipped"]["dense"].startswith("differs: loss by 1e+00")


def test_what_does_not_fit_is_skipped_with_a_reason(monkeypatch):
    monkeypatch.setattr(contenders, "free_bytes", lambda device: 1000)
    result = Bench(repeats=1, memory=False).measure(BY_NAME["supcon-8192x128"])
    assert result["status"] == "skipped" and "does not fit: needs about" in result["reason"]
    monkeypatch.setattr(
        contenders, "free_bytes", lambda device: 500_000
    )  # the inputs fit, no reference for hard negatives does
    case = replace(BY_NAME["hardnegative-8192x128"], n=256, m=256, dim=8)
    result = Bench(repeats=1, memory=False).measure(case)
    assert result["status"] == "skipped" and "no reference fits" in result["reason"]
    case = replace(SMALL_CASES[0], n=512, m=512, dim=8)
    result = Bench(repeats=1, memory=False, contenders=("dense",)).measure(case)
    assert result["status"] == "measured" and result["parity"]["reference"] == "dense in strips, fp32"
    assert "does not fit" in result["skipped"]["dense"]


def test_choosing_cases(monkeypatch):
    seen = []
    monkeypatch.setattr(Bench, "measure", lambda self, case: seen.append(case.name) or measure.empty_result(case))
    monkeypatch.setattr(losses, "measure_growth", lambda bench, sizes: seen.append("growth"))
    monkeypatch.setattr(losses, "measure_small", lambda bench, *a: seen.append("small"))
    bench_losses(["small", "queue-256x65536x128"])
    assert seen == ["queue-256x65536x128", "small"]
    seen.clear()
    bench_losses()
    assert seen == list(NAMES)
    seen.clear()
    bench_losses(quick=True)
    assert 0 < len(seen) < len(NAMES)
    with pytest.raises(InputError, match="case=nothing: unknown; there are ntxent-8192x128"):
        bench_losses(["nothing"])
    with pytest.raises(InputError, match="repeats"):
        bench_losses(repeats=0)


def test_the_table_of_cases():
    assert len(BY_NAME) == len(CASES)
    assert {target.other for case in CASES for target in case.targets if target.kind == "ratio"} <= set(BY_NAME)
    assert all(name in case_listing() for name in NAMES)
    assert BY_NAME["ntxent-8192x128"].flops == 4 * 8192**2 * 128
    assert BY_NAME["queue-256x65536x128"].flops == 4 * 256 * 65536 * 128


@pytest.mark.slow
def test_the_text_tells_all():
    text = render_text(small_result(("dense",)))
    for words in (
        "dense PyTorch",
        "products alone, torch.mm",
        "(rounding)",
        "target ≥ 4.5× faster",
        "Growth",
        "NTXentLoss",
        "∝ N^",
    ):
        assert words in text
