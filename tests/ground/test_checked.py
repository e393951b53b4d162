import pytest
import torch

from coulomb.ground.checked import checked_norms, checked_number, checked_share, checked_whole
from coulomb.ground.errors import CoulombWarning


@pytest.mark.parametrize("value", [True, "2", None])
@pytest.mark.parametrize("check", [checked_number, checked_share, checked_whole])
def test_errors_for_invalid_numbers(check, value):
    with pytest.raises(TypeError, match="size must be a"):
        check("size", value)


def test_errors_name_the_bounds():
    assert checked_number("beta", 2) == 2.0 and checked_share("momentum", 1) == 1.0 and checked_whole("size", 3) == 3
    with pytest.raises(ValueError, match="beta must be finite and at least 0, got -1"):
        checked_number("beta", -1, at_least=0)
    with pytest.raises(ValueError, match="beta must be finite, got inf"):
        checked_number("beta", float("inf"))
    with pytest.raises(ValueError, match=r"momentum must be from 0 to 1, got 1\.5"):
        checked_share("momentum", 1.5)
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        checked_whole("size", 0)
    with pytest.raises(TypeError, match=r"size must be a whole number, got 2\.0"):
        checked_whole("size", 2.0)


def test_rows_are_counted_by_argument():
    assert not checked_norms(torch.ones(4), ("a", "b"), True, "")
    assert not checked_norms(torch.empty(0), ("a",), True, "")
    assert not checked_norms(torch.tensor([0.0, 1.0]), ("a",), False, "")
    with pytest.warns(CoulombWarning, match="1 of 2 rows of b are zero vectors: no direction, no gradient"):
        assert checked_norms(torch.tensor([1.0, 1.0, 1.0, 0.0]), ("a", "b"), True, ", no gradient")
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="b has 1 of 2 rows with NaN, infinite or too large values"):
            checked_norms(torch.tensor([1.0, 1.0, bad, 1.0]), ("a", "b"), True, "")


def test_the_warning_points_to_the_caller():
    with pytest.warns(CoulombWarning) as seen:
        checked_norms(torch.zeros(1), ("a",), True, "")
    assert seen[0].filename == __file__
