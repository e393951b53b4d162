"""The parts of the benchmark: each reference is the formula, floors count their flops, memory is seen."""

import json
import sys
import types
from dataclasses import replace

import pytest
import torch

from bench_small import SMALL_CASES
from benchmarks import contenders, dense, measure, timing
from benchmarks import losses as command_losses
from benchmarks.cases import BY_NAME, CASES, make_inputs
from benchmarks.contenders import CONTENDERS, UnavailableError
from benchmarks.losses import SMALL, SMALL_SIZES, slope
from benchmarks.measure import Bench, compare, differences, reference
from benchmarks.timing import interleaved, medians
from coulomb import losses

TINY = [replace(case, n=32, m=64 if case.inputs == "queue" else 32, dim=8) for case in CASES]
NO_MATRIX = {"Diagnosis", "LearnableTemperature", "ParametricCenters"}


@pytest.mark.parametrize("case", [*TINY, *(replace(case, n=32, m=32) for case in SMALL)], ids=lambda case: case.name)
def test_every_reference_is_the_loss(case):
    inputs = make_inputs(case)
    found = compare(contenders.ours(case), inputs, reference(case, inputs))
    assert found["ok"], found
    grads = contenders.ours(case)(inputs)[1:]
    assert len(grads) == len(inputs.learning) and all(grad.abs().max() > 0 for grad in grads)


def test_small_batches_cover_every_exported_loss():
    assert {case.loss for case in SMALL} == set(losses.__all__) - NO_MATRIX


def test_top_negatives_of_small_batches_have_no_ties():
    case = next(case for case in SMALL if "top_k" in case.options)
    for n in SMALL_SIZES:
        query, positive = make_inputs(replace(case, n=n, m=n)).to(torch.float64).arguments
        last = dense._cosines(query, positive)[1].topk(case.options["top_k"] + 1, 1).values[:, -2:]
        assert (last[:, 0] - last[:, 1]).min() > 2e-6


def test_strips_are_the_whole():
    case = replace(BY_NAME["ntxent-8192x128"], n=30, m=30, dim=5, dtype="float64")
    inputs = make_inputs(case)
    strips = dense.ntxent_in_strips(*inputs.arguments, **case.options, rows=7)
    assert max(differences(strips, contenders.dense_eager(case)(inputs))) < 1e-12


def test_half_precision_is_held_to_the_error_of_dense():
    case = next(case for case in TINY if case.dtype == "bfloat16")
    inputs = make_inputs(case)
    assert inputs.arguments[0].dtype == torch.bfloat16
    right = reference(case, inputs)
    assert right.method == "dense, fp64" and right.tolerance[0] > 1e-5


@pytest.mark.parametrize("name", [*contenders.PEERS, *contenders.DROP_INS])
def test_peers_compute_the_same_loss(name):
    """Those that are installed here; torch's own always."""
    for case in TINY:
        if CONTENDERS[name].applies(case):
            inputs = make_inputs(case)
            try:
                step = CONTENDERS[name].make(case)
            except UnavailableError as reason:
                pytest.skip(str(reason))
            assert compare(step, inputs, reference(case, inputs))["ok"]


def test_a_peer_that_is_missing_says_so(monkeypatch):
    for module in ("lightly", "lightly.loss", "lightly.loss.ntx_ent_loss"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnavailableError, match="lightly"):
        contenders.lightly(BY_NAME["ntxent-8192x128"])

    def needs_more(name):
        raise ModuleNotFoundError("No module named 'torchvision'", name="torchvision.ops")

    monkeypatch.setattr(contenders, "importlib", types.SimpleNamespace(import_module=needs_more))
    with pytest.raises(UnavailableError, match="lightly is installed but needs torchvision, which is not"):
        contenders.lightly(BY_NAME["ntxent-8192x128"])
    monkeypatch.delattr(torch.nn.functional, "linear_cross_entropy", raising=False)
    with pytest.raises(UnavailableError, match="needs torch"):
        contenders.linear_cross_entropy(BY_NAME["infonce-4096x512"])


def test_a_loss_that_is_missing_is_unavailable():
    with pytest.raises(UnavailableError, match="has no NothingLoss"):
        contenders.ours(replace(SMALL_CASES[0], loss="NothingLoss"))


@pytest.mark.parametrize("name", ["ntxent-8192x128", "queue-256x65536x128", "ntxent-65536x128"])
def test_floors_count_their_flops(name):
    case, counted = BY_NAME[name], []
    floor = measure.Floor(case, lambda q, k, buffer: counted.append(2 * len(q) * len(k) * q.shape[1]))
    floor()
    assert sum(counted) == pytest.approx(floor.share * case.flops)
    assert sum(counted) <= 1.01 * measure.MAX_FLOPS
    assert floor.share == pytest.approx(min(1, measure.MAX_FLOPS / case.flops), rel=0.01)


@pytest.mark.parametrize("kernel", measure.KERNELS)
def test_floors_multiply(kernel):
    queries, keys = torch.randn(5, 3), torch.randn(7, 3)
    assert torch.allclose(measure.KERNELS[kernel](queries, keys, torch.empty(35)), queries @ keys.T, atol=1e-6)


def test_turns_are_taken():
    seen = []
    runs = {name: lambda name=name: seen.append(name) for name in "abc"}
    taken = interleaved(runs, 3, warmup=1)
    assert "".join(seen) == "abcbcacababc"
    assert {name: len(each) for name, each in taken.items()} == {"a": 3, "b": 3, "c": 3}
    assert medians({"x": [3.0, 1.0, 2.0]}) == {"x": 2.0}


def test_slopes():
    assert slope([(n, 5 * n**1.7) for n in (10, 20, 80)]) == pytest.approx(1.7)


@pytest.mark.slow
@pytest.mark.skipif(not timing.STATUS.exists(), reason="needs /proc")
def test_memory_of_a_fresh_process_is_seen():
    case = replace(BY_NAME["ntxent-8192x128"], n=4096, m=4096, dim=16)
    dense_mb, own_mb = (contenders.peak_of_fresh_process(name, case) for name in ("dense", "coulomb"))
    matrix = 4096 * 4096 * 4 / 2**20
    assert dense_mb > 2 * matrix > own_mb > 0


@pytest.mark.slow
def test_memory_of_a_process_that_fails_is_unknown():
    assert contenders.peak_of_fresh_process("coulomb", replace(SMALL_CASES[0], loss="NothingLoss")) is None


@pytest.mark.slow
def test_memory_of_the_largest_case():
    # Speed is for `python -m benchmarks.losses` on a quiet machine: on a busy one a test of it measures the neighbors.
    assert contenders.peak_of_fresh_process("coulomb", BY_NAME["ntxent-8192x128"]) <= 100


def test_the_command_line(tmp_path, monkeypatch, run):
    code, said = run(command_losses, "--list")
    assert code == 0 and "ntxent-8192x128" in said.out and "≥ 4.5×" in said.out
    code, said = run(command_losses, "--case", "nothing", "--out", tmp_path)
    assert code == 2 and "case=nothing" in said.err
    assert list(tmp_path.iterdir()) == []
    case = SMALL_CASES[0]
    monkeypatch.setattr("benchmarks.losses.CASES", (replace(case, name="queue-256x65536x128"),))
    monkeypatch.setattr("benchmarks.losses.Bench", lambda *a, say: Bench(1, False, ("dense",), say=say))
    code, said = run(command_losses, "--case", "queue-256x65536x128", "--out", tmp_path, "--json")
    assert code == 0 and json.loads(said.out)["cases"][0]["status"] == "measured"
    assert json.loads(said.out)["command"].startswith("python -m benchmarks.losses --case")
    assert {path.name for path in tmp_path.iterdir()} == {"losses.json", "losses.html"}
    code, said = run(command_losses, "--case", "queue-256x65536x128", "--out", tmp_path)
    assert "(rounding)" in said.out and ": parity" in said.err and "losses.html" in said.err
