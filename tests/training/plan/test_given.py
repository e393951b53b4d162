"""The options of one call."""

import pytest

from coulomb.ground.errors import InputError
from coulomb.training.plan.given import Given


@pytest.mark.parametrize("test", ["held_out/", [["an object"]]])
def test_a_share_to_hold_out_beside_held_out_data_is_refused(test):
    with pytest.raises(InputError, match=r"test_fraction=0\.3.*leave one"):
        Given.of({"data": "photos/", "test": test, "test_fraction": 0.3})
    assert Given.of({"data": "photos/", "test_fraction": 0.3}).named["test_fraction"] == 0.3
    assert Given.of({"data": "photos/", "test": test}).test == test
