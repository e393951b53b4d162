import math

import pytest
import torch

from coulomb.errors import CoulombWarning
from coulomb.methods.labelled import entropy, known_rows, present


def test_entropy_of_equal_and_of_certain_classes():
    assert math.isclose(entropy(torch.tensor([5, 5, 5, 5])), math.log(4))
    assert entropy(torch.tensor([7, 0])) == 0.0
    assert math.isclose(entropy(torch.tensor([7, 0]), label_smoothing=0.999999), math.log(2), rel_tol=1e-6)


def test_absent_classes_are_counted():
    assert present(torch.tensor([3, 1])).tolist() == [3, 1]
    with pytest.warns(CoulombWarning, match="2 of 3 classes"):
        assert present(torch.tensor([0, 3, 0])).tolist() == [1, 3, 1]


def test_known_rows_of_all_views():
    rows, labels = known_rows(torch.arange(6)[:, None], torch.tensor([4, -1, 2]), views=2)
    assert rows[:, 0].tolist() == [0, 2, 3, 5]
    assert labels.tolist() == [4, 2, 4, 2]
