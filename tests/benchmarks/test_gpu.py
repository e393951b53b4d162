"""The benchmark for a GPU, on tiny problems without one."""

import json

import pytest
import torch

from benchmarks import gpu

TINY = ("--device", "cpu", "--quick", "--repeats", 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_everything_is_right_and_measured(run, tmp_path):
    out = tmp_path / "results.json"
    code, said = run(gpu, *TINY, "--out", out)
    assert code == 0, said
    result = json.loads(out.read_text(encoding="utf-8"))
    assert len(result["parity"]) == 6 * len(gpu.SMALL) and all(row["ok"] for row in result["parity"])
    assert len(result["speed"]) == 2 * len(gpu.speed_cases()) and result["no_time_for"] == []
    for case in result["speed"]:
        assert case["parity"]["ok"] and case["seconds"]["coulomb"] > 0 and case["speedup"]["dense"] > 0, case
        assert "tiles" in case["seconds"]
        assert "attention" in case["seconds"] or "a guide" in case["skipped"]["attention"], case["skipped"]
        both = case["name"].startswith(("infonce-both", "sigmoid"))
        assert ("drop-in for open_clip" in case["seconds"]) == both
    attended = [row["engines"] for row in result["parity"] if row["backend"] == "attention"]
    assert {"attention"} in [set(engines) for engines in attended]
    known = ("attention", "tiles: a threshold", "tiles: a guide")  # attention leaves these two to the tiles
    assert all(name.startswith(known) for engines in attended for name in engines)
    (training,) = result["training"]
    assert set(training["seconds"]) == {"views", "network and loss", "loss"} and training["images_per_second"] > 0
    assert min(result["decoded_per_second_and_core"].values()) > 0
    rows = [text for text in said.out.splitlines() if text.startswith("| ")]
    assert len(rows) == 2 + len(result["speed"]) and "drop-in for open_clip" in rows[0]
    assert f"parity: {len(result['parity'])} of {len(result['parity'])} right" in said.out


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_result_fails_and_gets_no_speed(run, monkeypatch):
    right = gpu.ours

    def wrong(case):
        return lambda inputs: tuple(1.1 * part for part in right(case)(inputs))

    monkeypatch.setattr(gpu, "ours", wrong)
    monkeypatch.setattr(gpu, "SMALL", gpu.SMALL[:1])
    monkeypatch.setattr(gpu, "speed_cases", lambda: [gpu.infonce(64, 16, True)])
    monkeypatch.setattr(gpu, "NETWORKS", ())
    code, said = run(gpu, *TINY)
    assert code == 1 and "parity: 0 of 6 right" in said.out and "× floor" not in said.out
    assert "| wrong result: no speed is reported |" in said.out


def test_when_time_is_up_cases_are_named(monkeypatch):
    monkeypatch.setattr(gpu, "check_parity", lambda device, n: [])
    result = gpu.bench_gpu("cpu", quick=True, repeats=1, minutes=-1.0)
    assert result["speed"] == result["training"] == []
    assert len(result["no_time_for"]) == 2 * len(gpu.speed_cases()) + 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(run):
    code, said = run(gpu)
    assert code == 2 and "device='cuda'" in said.err
