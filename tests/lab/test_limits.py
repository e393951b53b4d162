import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.lab.temperature import COLD, limit_tables, limits


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    queries = normalize(torch.randn(40, 6, dtype=torch.float64), dim=1)
    return limits(queries, normalize(queries + torch.randn(40, 6, dtype=torch.float64), dim=1))


def test_cold_is_the_hardest_negative_alone(found):
    assert [row["tau"] for row in found["cold"]] == list(COLD)
    for row in found["cold"]:
        assert -1e-12 <= row["error"] <= row["bound"] == pytest.approx(row["tau"] * math.log(40))
    assert found["cold"][-1]["error"] < 1e-4 < found["cold"][0]["error"] and found["cold"][-1]["limit"] > 0.1
    assert found["cold"][-1]["cosine"] > 0.999 > found["cold"][0]["cosine"]


def test_warm_is_the_simple_loss(found):
    for row in found["warm"]:
        assert 0 < row["error"] <= row["bound"] <= 0.13 / row["tau"] ** 3
    assert found["warm"][-1]["error"] < 1e-8
    assert found["warm"][-1]["cosine"] > 0.99999 > found["warm"][0]["cosine"]


def test_all_is_shown(found):
    cold, warm = limit_tables(found)
    assert len(cold["rows"]) == len(warm["rows"]) == 5 and len(cold["rows"][0]) == len(cold["head"])
