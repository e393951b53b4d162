import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import cached_distributed
from coulomb.ground.errors import CoulombWarning, InputError
from coulomb.losses import ArcFaceLoss, NTXentLoss, SigmoidLoss, SupConLoss
from coulomb.training import cached_step

views = [torch.rand(9, 1, 8, 8, dtype=torch.double, generator=torch.Generator().manual_seed(k)) for k in range(2)]


class Labeled(nn.Module):
    """A loss with labels, for `cached_step`."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, *embeddings):
        features = embeddings[0] if len(embeddings) == 1 else torch.stack(embeddings, dim=1)
        return self.loss(features, torch.arange(9) % 3)


def same_gradients(loss, of_views, size):
    torch.manual_seed(0)
    plain, cached = cached_distributed.network(), cached_distributed.network()
    value = loss(*plain(torch.cat(of_views)).chunk(len(of_views)))
    value.backward()
    expected = [p.grad for p in plain.parameters()]
    if isinstance(loss, nn.Module):
        expected += [p.grad.clone() for p in loss.parameters()]
        loss.zero_grad()
    found = cached_step(cached, loss, of_views, size)
    assert float(found) == pytest.approx(float(value.detach()), abs=1e-10) and not found.requires_grad
    gradients = [p.grad for p in cached.parameters()]
    gradients += [p.grad for p in loss.parameters()] if isinstance(loss, nn.Module) else []
    for gradient, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1, 4, 5, 18, 100])
def test_the_gradient_is_that_of_the_whole_batch(size):
    same_gradients(NTXentLoss(temperature=0.3), views, size)
    same_gradients(mse_loss, views, size)


def test_losses_with_parameters_and_labels():
    same_gradients(SigmoidLoss().double(), views, 4)
    same_gradients(Labeled(ArcFaceLoss(3, 5).double()), views[:1], 4)
    same_gradients(Labeled(SupConLoss()), views, 4)


def test_gradients_are_added_and_a_tuple_begins_with_the_loss():
    once, twice = cached_distributed.network(), cached_distributed.network()
    loss = NTXentLoss(temperature=0.3, diagnose=True)
    cached_step(once, loss, views, 4)
    for _ in range(2):
        cached_step(twice, loss, views, 4)
    for a, b in zip(once.parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(2 * a.grad, b.grad)


def test_batch_norm_is_named_and_its_statistics_are_updated_once():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5)).double()
    with pytest.warns(CoulombWarning, match="micro_batch=6: 1 batch norms use the statistics of a micro-batch"):
        cached_step(encoder, NTXentLoss(), views, 6)
    assert int(encoder[2].num_batches_tracked) == 3
    cached_step(encoder, NTXentLoss(), views, 18)  # the whole batch
    cached_step(encoder.eval(), NTXentLoss(), views, 6)
    assert int(encoder[2].num_batches_tracked) == 4


@pytest.mark.parametrize("size", [2, 4, 100])
def test_two_processes_are_one_with_the_whole_batch_and_exchange_gradients_once(processes, size):
    losses, expected, _ = cached_distributed.gradients(None)
    plain = processes.run(2, cached_distributed.gradients, None)
    for rank, (found, gradients, reductions) in enumerate(processes.run(2, cached_distributed.gradients, size)):
        assert found == pytest.approx(losses, abs=1e-10)
        assert reductions == plain[rank][2]
        for gradient, wanted in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_batch": 0}, "micro_batch=0: must be a whole number of at least 1"),
        ({"micro_batch": 2.5}, r"micro_batch=2\.5: must be a whole number of at least 1"),
        ({"views": []}, "views: must be a list of tensors"),
        ({"views": torch.zeros(4, 1, 8, 8)}, "views: must be a list of tensors"),
        ({"views": [views[0], views[1][:4]]}, r"views of shapes .*must have equal shapes"),
        ({"loss": NTXentLoss(reduction="none")}, "loss: must return a scalar; use its option reduction='mean'"),
        ({"loss": lambda *z: 3.0}, "loss: must return a scalar"),
    ],
)
def test_wrong_input(change, message):
    given = {"encoder": cached_distributed.network(), "loss": NTXentLoss(), "views": views, "micro_batch": 4} | change
    with pytest.raises(InputError, match=message):
        cached_step(**given)


@pytest.mark.parametrize("size", [4, 100])
def test_nothing_that_learns_is_refused(size):
    frozen, detached = cached_distributed.network().requires_grad_(False), cached_distributed.network()
    detached.append(Detached())
    for encoder in (frozen, detached):
        with pytest.raises(InputError, match="encoder: the loss depends on no parameter that requires a gradient"):
            cached_step(encoder, NTXentLoss(), views, size)
    loss = SigmoidLoss().double()
    cached_step(frozen, loss, views, size)  # the loss learns
    assert loss.log_scale.grad is not None


class Detached(nn.Module):
    def forward(self, x):
        return x.detach()


def test_hooks_of_parameters_are_called_once():
    plain, cached = cached_distributed.network(), cached_distributed.network()
    for module in (plain, cached):
        for parameter in module.parameters():
            parameter.register_hook(lambda gradient: -gradient / 2)
    NTXentLoss()(*plain(torch.cat(views)).chunk(2)).backward()
    cached_step(cached, NTXentLoss(), views, 4)
    for a, b in zip(plain.parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=0, atol=1e-12)


def test_an_encoder_with_several_outputs():
    class Two(nn.Module):
        def forward(self, x):
            return x.flatten(1), x

    for size in (6, 9):
        with pytest.raises(InputError, match="encoder returned a tuple for . images: it must return one tensor"):
            cached_step(Two(), NTXentLoss(), views[:1], size)
