import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.duplicates import near_duplicates
from metrics_oracles import cosines, normal


def with_copies():
    x = normal(80, 12)
    x[70:75] = x[10:15] * 3  # exact, but for their length
    x[75:] = x[20:25] + 0.05 * normal(5, 12, 1)  # near
    return x


def test_near_duplicates_match_numpy(strip):
    x = with_copies()
    table = np.triu(cosines(x, x), 1)
    wanted = {(int(i), int(j)) for i, j in np.argwhere(table >= 0.99)}
    found = near_duplicates(x)
    assert {tuple(pair) for pair in found.pairs.tolist()} == wanted
    assert (found.near, found.exact) == (len(wanted), 5)
    assert found.cosines.tolist() == pytest.approx(sorted(table[table >= 0.99], reverse=True), abs=1e-12)
    assert found.rows == len({i for pair in wanted for i in pair}) / 80
    assert {tuple(pair) for pair in near_duplicates(x.float(), threshold=1.0).pairs.tolist()} == {
        (i, i + 60) for i in range(10, 15)
    }


def test_only_the_most_similar_pairs_are_returned(strip):
    found = near_duplicates(with_copies(), most=3)
    assert (len(found.pairs), found.exact) == (3, 5)
    assert found.near > 5


def test_near_duplicates_between_two_sets(strip):
    x, keys = normal(9, 6), normal(70, 6, 1)
    keys[33] = x[4]
    found = near_duplicates(x, keys, threshold=0.999)
    assert (found.pairs.tolist(), found.near, found.rows) == ([[4, 33]], 1, 1 / 9)


def test_no_duplicates_and_only_duplicates():
    none = near_duplicates(torch.eye(5))
    assert (none.near, none.rows, len(none.pairs)) == (0, 0, 0)
    assert near_duplicates(torch.ones(20, 3)).exact == 190
    assert near_duplicates(torch.zeros(20, 3)).near == 0


def test_bad_input():
    for threshold in (0, 1.1):
        with pytest.raises(InputError, match="threshold"):
            near_duplicates(torch.eye(3), threshold=threshold)
    with pytest.raises(InputError, match="dimensions"):
        near_duplicates(torch.eye(3), torch.eye(4))
