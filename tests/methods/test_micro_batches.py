"""Every method in micro-batches has the gradient, the loss and the state of the whole batch."""

import copy

import pytest
import torch
from torch import nn

import method_cases
from coulomb.methods import METHODS
from coulomb.methods.options import build_method
from coulomb.models import ViewRows, wrap_encoder

LABELS = torch.tensor([0, 0, 1, 1, -1, 2, 0])
INDEX = torch.tensor([3, 1, 4, 15, 9, 2, 6])
FACTS = {"num_images": 20, "class_counts": torch.tensor([9, 6, 3])}
# Variants whose calls of the encoder, or losses, differ from those of the defaults.
OWN = {
    "moco symmetric": {"symmetric": True, "exclude_own": True},
    "paco generalized": {"generalized": True},
    "instdisc full": {"full": True, "proximal": 0.5},
    "byol collapsing": {"stop_gradient": False},
    "simclr hard": {"loss": "hard"},
    "arcface": {},
}
CASES = [*METHODS, *(name for name in OWN if name not in METHODS)]


class Dropped(nn.Module):
    """Stochastic depth: the branch is left out for random rows, as drawn from the global generator."""

    def __init__(self, branch, rate):
        super().__init__()
        self.branch, self.rate = branch, rate

    def forward(self, x):
        if self.rate and self.training:
            return x + (torch.rand(len(x), 1) >= self.rate) * self.branch(x)
        return x + self.branch(x)


def made(name, *, rate=0.0):
    """A method in float64 on an encoder whose features of an image depend on no other image."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 6), nn.Tanh(),
        Dropped(nn.Linear(6, 6), rate), nn.Dropout(rate),
    )  # fmt: skip
    encoder = wrap_encoder(module, channels=1, image_size=8)
    shared = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 2, "head_hidden_dim": None, "seed": 0}
    kind = name.split()[0]
    method = build_method(kind, METHODS[kind], encoder, shared=shared, **FACTS, own=OWN.get(name, {}))
    return method.double()


def set_size(method, size):
    """Sets the micro-batch of all encoders in the method."""
    for part in method.modules():
        if hasattr(part, "micro_batch"):
            part.micro_batch = size
    return method


def step(method, number=0):
    """Returns the loss after one update, as in the trainer."""
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    torch.manual_seed(number)
    views = [view.double() for view in method_cases.views(count=2, batch=7, seed=number)]
    loss = method(ViewRows.of(views), LABELS, INDEX)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}
    method.after_batch()
    optimizer.step()
    method.after_update(0.5)
    return float(loss.detach()), gradients


@pytest.mark.parametrize("size", [1, 3, 7, 13])
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_whole_batch(name, size):
    plain = made(name)
    cached = set_size(copy.deepcopy(plain), size)
    for number in range(2):
        (loss, wanted), (value, found) = step(plain, number), step(cached, number)
        assert value == pytest.approx(loss, abs=1e-10)
        assert found.keys() == wanted.keys()
        for key, gradient in wanted.items():
            torch.testing.assert_close(found[key], gradient, rtol=0, atol=1e-10, msg=lambda m, key=key: f"{key}: {m}")
        cached.load_state_dict(plain.state_dict())


class InOneGraph:
    """Encodes the same parts as `encode_in_micro_batches`, each once, with a graph."""

    def __call__(self, encode, images, size, module):
        return torch.cat([encode(part) for part in images.tensor_split(-(-len(images) // size))])


@pytest.mark.parametrize("name", CASES)
def test_random_layers_draw_the_same_and_the_state_is_bit_equal(name, monkeypatch):
    """Also that of queues, banks, averages and running statistics of the head."""
    cached = set_size(made(name, rate=0.3), 4)
    plain = copy.deepcopy(cached)
    found = step(cached)
    before = cached.state_dict()
    monkeypatch.setattr("coulomb.models.encoder.encode_in_micro_batches", InOneGraph())
    wanted = step(plain)
    assert found[0] == wanted[0] and found[1].keys() == wanted[1].keys()
    for key, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][key], gradient, rtol=0, atol=1e-10, msg=lambda m, key=key: f"{key}: {m}")
    trained = {key for key, parameter in plain.named_parameters()}
    for key, value in plain.state_dict().items():
        if key in trained:  # moved by a gradient that is summed in another order
            torch.testing.assert_close(before[key], value, rtol=0, atol=1e-10)
        else:
            assert torch.equal(before[key].nan_to_num(7), value.nan_to_num(7)), key


@pytest.mark.parametrize("name", METHODS)
def test_momentum_encoders_are_copied_with_their_micro_batch(name):
    torch.manual_seed(0)
    encoder = wrap_encoder(nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), channels=1, image_size=8)
    encoder.micro_batch = 4
    shared = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 1, "head_hidden_dim": None, "seed": 0}
    method = build_method(name, METHODS[name], encoder, shared=shared, **FACTS, own={})
    sizes = []
    for part in method.modules():
        if hasattr(part, "micro_batch"):
            part.backbone.register_forward_hook(lambda module, given, out: sizes.append(len(given[0])))
    method(ViewRows.of(method_cases.views(batch=7)), LABELS, INDEX).backward()
    assert sizes and max(sizes) <= 4
