"""Batch norm over several processes equals batch norm of one process with all images."""

import pytest
import torch
from torch import nn

import batch_norm_cases
from coulomb.training.batch_norm import SharedBatchNorm, describe_batch_norms, share_batch_norms


@pytest.mark.parametrize(("sizes", "momentum"), [([6, 6], 0.1), ([5, 4, 3], None), ([1, 11], 0.1)], ids=str)
def test_shared_statistics_are_those_of_the_whole_batch(processes, sizes, momentum):
    outputs, gradients, buffers = batch_norm_cases.alone(momentum)
    found = processes.run(len(sizes), batch_norm_cases.together, sizes, momentum)
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(torch.cat([each[0] for each in found]), outputs, **close)
    for _, theirs, stored in found:
        assert theirs.keys() == gradients.keys() and stored.keys() == buffers.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(theirs[name], gradient, **close, msg=lambda m, name=name: f"{name}: {m}")
        for name, buffer in buffers.items():
            torch.testing.assert_close(stored[name], buffer, **close, msg=lambda m, name=name: f"{name}: {m}")


def test_alone_and_in_eval_mode_nothing_changes():
    images = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    plain, shared = batch_norm_cases.network(), batch_norm_cases.network()
    share_batch_norms(shared)
    assert plain.state_dict().keys() == shared.state_dict().keys()
    for _ in range(2):
        assert torch.equal(plain(images), shared(images))
        plain.eval(), shared.eval()
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), shared.state_dict().values(), strict=True)
    )


class OtherNorm(nn.BatchNorm2d):
    """Computes something else."""


def test_layers_that_may_compute_something_else_are_left_alone_and_counted():
    model = nn.Sequential(nn.BatchNorm2d(3), OtherNorm(3))
    assert describe_batch_norms(model, False, 7) == (
        "batch norm: 2 of 2 layers use statistics of each process's own 7 images (sync_batchnorm shares them)"
    )
    assert share_batch_norms(model) == 1 and type(model[0]) is SharedBatchNorm
    assert describe_batch_norms(model, True, 7).startswith(
        "batch norm: 1 of 2 layers use statistics of each process's own"
    )
    assert "cover the images of all processes" in describe_batch_norms(model[:1], True, 7)
    assert describe_batch_norms(nn.Linear(2, 2), True, 7) is None
