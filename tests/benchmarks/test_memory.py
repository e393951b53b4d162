import json

import pytest

from benchmarks import memory
from coulomb.ground.errors import InputError


@pytest.mark.slow
def test_both_arms_are_measured_in_fresh_processes():
    result = memory.bench_memory(1, {"inference": (2, False)})
    assert json.loads(json.dumps(result)) == result
    case = result["cases"]["inference"]
    assert case["ratio"] == case["default"] / case["kept"] > 0 and min(case["default_mib"], case["kept_mib"]) > 100
    assert f"{case['ratio']:.2f}×" in memory.render(result)


@pytest.mark.parametrize("training", [False, True])
def test_a_step_is_measured(training):
    taken, mib = memory.measure(2, training, repeats=1)
    assert taken > 0
    assert mib > 100


def test_no_repeats():
    with pytest.raises(InputError, match="repeats=0"):
        memory.bench_memory(repeats=0)
