import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from coulomb.runs.config import SCHEDULES
from coulomb.training.optimizers import rate


def test_warms_up_linearly_then_falls_to_zero():
    factors = [rate("cosine", step, total=100, warmup=10) for step in range(101)]
    assert factors[:3] == [0.1, 0.2, 0.3]
    assert factors[9] == factors[10] == 1.0
    assert math.isclose(factors[55], 0.5)
    assert factors[100] == 0.0
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))


def test_steps_divide_by_ten():
    factors = [rate("step", step, total=100, warmup=10, drops=[0.6, 0.8]) for step in (9, 10, 59, 60, 79, 80, 100)]
    assert factors == [1.0, 1.0, 1.0, 0.1, 0.1, 0.1**2, 0.1**2]


def test_constant_after_the_warm_up():
    assert [rate("constant", step, total=100, warmup=4) for step in (0, 1, 4, 99)] == [0.25, 0.5, 1.0, 1.0]


@given(kind=st.sampled_from(SCHEDULES), total=st.integers(0, 50), warmup=st.integers(0, 50), step=st.integers(0, 120))
def test_stays_between_zero_and_one(kind, total, warmup, step):
    assert 0 <= rate(kind, step, total=total, warmup=warmup, drops=[0.5]) <= 1
