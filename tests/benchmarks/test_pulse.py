import json

import pytest

from benchmarks.pulse import CASES, bench_pulse, render
from coulomb.ground.errors import InputError


def test_the_share_is_of_the_two_times():
    name = next(iter(CASES))
    result = bench_pulse(batch=8, repeats=2, cases=[name])
    assert json.loads(json.dumps(result)) == result
    case = result["cases"][name]
    assert case["share"] == pytest.approx((case["with_pulse"] / case["step"] - 1) / result["period"])
    assert name in render(result)
    assert f"{case['share']:.2%}" in render(result)


def test_bad_numbers_are_named():
    with pytest.raises(InputError, match="batch=1"):
        bench_pulse(batch=1)
    with pytest.raises(InputError, match="repeats=0"):
        bench_pulse(repeats=0)
