"""Losses in several processes: the loss and the parameter gradient of one process with the whole batch."""

import pytest
import torch

import distributed_cases as cases
from coulomb.losses import NTXentLoss

SETTINGS = {
    "1 process": (1, cases.UNEVEN, 0),
    "2 uneven, ring": (2, cases.UNEVEN, 0),
    "2 even, at once": (2, cases.EVEN, 10**6),
    "4 uneven, ring": (4, cases.UNEVEN, 0),
    "4 even, ring": (4, cases.EVEN, 0),
    "4 uneven, at once": (4, cases.UNEVEN, 10**6),
}


@pytest.fixture(scope="module", params=SETTINGS)
def together(request, processes):
    world, sizes, at_once = SETTINGS[request.param]
    return processes.run(world, cases.together, sizes[world], at_once)


@pytest.mark.parametrize("name", cases.CASES)
def test_the_mean_over_processes_is_the_whole_batch(together, name):
    loss, grads = cases.alone(name)
    for rank in together:
        mine, mine_grads = rank[name]
        torch.testing.assert_close(mine, loss, rtol=0, atol=1e-10)
        assert set(mine_grads) == set(grads)
        for key, grad in grads.items():
            torch.testing.assert_close(mine_grads[key], grad, rtol=0, atol=1e-10)


def test_distributed_data_parallel_gives_the_gradient_of_the_whole_batch(processes):
    _, grads = cases.alone("NTXent")
    for found in processes.run(2, cases.wrapped, cases.EVEN[2]):
        for key, grad in grads.items():
            torch.testing.assert_close(found[key], grad, rtol=0, atol=1e-10)


def test_gather_without_a_group_is_a_clear_error():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="torch.distributed is not initialised"):
        NTXentLoss(gather=True)(x, x)
    with pytest.raises(ValueError, match="gather must be True, False or 'auto', got 'yes'"):
        NTXentLoss(gather="yes")
    torch.testing.assert_close(NTXentLoss(gather="auto")(x, x), NTXentLoss(gather=False)(x, x))
