import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from coulomb.training.schedule import warmup_cosine


def test_warms_up_linearly_then_falls_to_zero():
    factors = [warmup_cosine(step, total=100, warmup=10) for step in range(101)]
    assert factors[:3] == [0.1, 0.2, 0.3]
    assert factors[9] == factors[10] == 1.0
    assert math.isclose(factors[55], 0.5)
    assert factors[100] == 0.0
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))


@given(total=st.integers(0, 50), warmup=st.integers(0, 50), step=st.integers(0, 120))
def test_stays_between_zero_and_one(total, warmup, step):
    assert 0 <= warmup_cosine(step, total=total, warmup=warmup) <= 1
