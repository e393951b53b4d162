import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.methods.interface import labeled_rows, positive_counts
from coulomb.methods.simclr import SimCLR
from coulomb.methods.softmax import Softmax
from method_cases import encoder


def test_absent_classes_are_counted():
    assert positive_counts(torch.tensor([3, 1])).tolist() == [3, 1]
    with pytest.warns(CoulombWarning, match="2 of 3 classes"):
        assert positive_counts(torch.tensor([0, 3, 0])).tolist() == [1, 3, 1]


def test_labeled_rows_of_all_views():
    rows, labels = labeled_rows(torch.arange(6)[:, None], torch.tensor([4, -1, 2]))
    assert rows[:, 0].tolist() == [0, 2, 3, 5]
    assert labels.tolist() == [4, 2, 4, 2]


def test_options_of_the_head():
    tower = SimCLR.tower_for(encoder(), embedding_dim=5, head_layers=1)
    assert tower.head[0].weight.shape == (5, encoder().feature_dim)
    assert Softmax.tower_for(encoder()).embedding_dim == encoder().feature_dim
    with pytest.raises(TypeError, match="embeding_dim"):
        SimCLR.tower_for(encoder(), embeding_dim=5)
