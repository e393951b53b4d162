import pytest
import torch
from torch import nn

from coulomb.metrics.features import frozen


def network():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten())
    net[1].eval()  # its owner has put this layer to sleep
    return net


def test_nothing_moves_and_every_mode_is_put_back():
    net, head = network(), nn.BatchNorm1d(2)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with frozen(net, head):
        assert not any(part.training for part in net.modules()) and not head.training
        assert not net(torch.rand(5, 3, 8, 8)).requires_grad
        head(torch.rand(5, 2))
    assert [part.training for part in net] == [True, False, True, True] and net.training and head.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert head.num_batches_tracked == 0
    assert net(torch.rand(5, 3, 8, 8)).requires_grad


def test_also_after_an_error():
    net = network()
    with pytest.raises(RuntimeError), frozen(net):
        net(torch.rand(5, 1, 8, 8))
    assert [part.training for part in net] == [True, False, True, True]
