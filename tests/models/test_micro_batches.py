"""Micro-batches give the features, gradients and buffers of the same passes in one graph."""

import copy
import math

import pytest
import torch
from torch import nn

from coulomb.errors import InputError
from coulomb.models import build_encoder
from coulomb.models.micro_batches import batch_norms, encode_in_micro_batches, require_size, running_in_micro_batches


class Depth(nn.Module):
    """Stochastic depth: the branch is left out for random rows."""

    def __init__(self, branch):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        return x + (torch.rand(len(x), 1, 1, 1) < 0.6) * self.branch(x)


class Power(nn.Module):
    """A buffer that changes in every forward pass and determines the output, as in spectral normalisation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        self.scale.mul_(1.1)
        return x * self.scale.clone()


def network():
    torch.manual_seed(0)
    random = Depth(nn.Conv2d(6, 6, 3, padding=1)), nn.Dropout(0.3), Power()
    norms = nn.GroupNorm(2, 6), nn.BatchNorm2d(6), nn.BatchNorm2d(6, momentum=None)
    layers = nn.Conv2d(1, 6, 3, padding=1), *norms, nn.ReLU(), *random, nn.Flatten(), nn.Linear(96, 5)
    return nn.Sequential(*layers).double()


images = torch.rand(13, 1, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def passes(encode, size, inputs=images, precision=None):
    """Returns features, gradients, buffers and the next random number of a step; ``encode`` None: in one graph."""
    module = network()
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=precision or torch.bfloat16, enabled=precision is not None):
        if encode is None:
            parts = inputs.tensor_split(math.ceil(len(inputs) / size))
            features = torch.cat([module(part) for part in parts])
        else:
            features = encode(module, inputs, size, module)
    features.float().square().sum().sqrt().backward()
    return features, [p.grad for p in module.parameters()], list(module.buffers()), torch.rand(1)


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 12])
def test_both_passes_are_those_of_one_graph(size):
    features, gradients, buffers, after = passes(encode_in_micro_batches, size)
    expected = passes(None, size)
    assert torch.equal(features, expected[0]) and torch.equal(after, expected[3])
    for gradient, wanted in zip(gradients, expected[1], strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)
    assert all(torch.equal(found, wanted) for found, wanted in zip(buffers, expected[2], strict=True))


@pytest.mark.parametrize("size", [13, 14, 1000])
def test_a_micro_batch_as_large_as_the_batch_is_a_plain_pass(size):
    calls = []
    module = network()
    module.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    encode_in_micro_batches(module, images, size, module).sum().backward()
    assert calls == [13]


def test_parts_have_about_the_same_size_and_run_twice():
    calls, module = [], network()
    module.register_forward_hook(lambda *given: calls.append((len(given[1][0]), given[2].requires_grad)))
    encode_in_micro_batches(module, images, 6, module).sum().backward()
    assert calls == [(5, False), (4, False), (4, True), (5, True), (4, True)]  # the graph of the last one is kept


def test_without_gradient_each_part_runs_once():
    calls, module = [], network()
    module.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    with torch.no_grad():
        assert not encode_in_micro_batches(module, images, 6, module).requires_grad
    assert calls == [5, 4, 4]
    module.requires_grad_(False)
    assert not encode_in_micro_batches(module, images, 6, module).requires_grad


def test_the_gradient_of_the_images():
    plain, cached = (images.clone().requires_grad_() for _ in range(2))
    passes(None, 5, plain)
    passes(encode_in_micro_batches, 5, cached)
    torch.testing.assert_close(cached.grad, plain.grad, rtol=0, atol=1e-12)


def test_a_second_backward_pass():
    module, inputs = network(), images.clone().requires_grad_()
    features = encode_in_micro_batches(module, inputs, 5, module)
    features.square().sum().backward(retain_graph=True)
    once, state = [p.grad.clone() for p in (*module.parameters(), inputs)], [b.clone() for b in module.buffers()]
    features.square().sum().backward()
    for gradient, wanted in zip((*module.parameters(), inputs), once, strict=True):
        torch.testing.assert_close(gradient.grad, 2 * wanted, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), state, strict=True))


class Sum(nn.Module):
    """Two parameters whose gradients autograd returns as the same tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(16).double()), nn.Parameter(torch.ones(16).double())

    def forward(self, x):
        return x.flatten(1) * (self.a + self.b)


def test_gradients_that_share_memory_are_summed_separately():
    module = Sum()
    encode_in_micro_batches(module, images, 3, module).sum().backward()
    torch.testing.assert_close(module.a.grad, images.flatten(1).sum(0))
    torch.testing.assert_close(module.b.grad, module.a.grad)


def test_frozen_parameters_and_unused_ones_get_no_gradient():
    module = network()
    module[0].weight.requires_grad_(False)
    module.spare = nn.Linear(2, 2)
    module.forward = lambda x: nn.Sequential(*list(module)[:-1])(x)
    encode_in_micro_batches(module, images, 5, module).square().sum().backward()
    assert module[0].weight.grad is None and module.spare.weight.grad is None and module[0].bias.grad is not None


def test_two_calls_before_one_backward_pass():
    results = []
    for cached in (False, True):
        module = network()
        torch.manual_seed(3)

        def encode(x, module=module, cached=cached):
            if cached:
                return encode_in_micro_batches(module, x, 4, module)
            return torch.cat([module(part) for part in x.tensor_split(math.ceil(len(x) / 4))])

        (encode(images) - encode(images.flip(0)) + encode(images)).square().sum().backward()
        results.append((module, torch.rand(1)))
    (plain, after), (module, again) = results
    assert torch.equal(after, again)
    for (name, wanted), found in zip(plain.state_dict().items(), module.state_dict().values(), strict=True):
        assert torch.equal(found, wanted), name
    for wanted, found in zip(plain.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-12, atol=1e-12)


def test_bfloat16():
    small = torch.rand(13, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    module = build_encoder("convnet", channels=1, image_size=16, width=8, norm="group")
    results = []
    for size in (None, 5):
        copied = copy.deepcopy(module)
        copied.micro_batch = size
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = copied(small)
            again = copied(small[:3])  # a plain pass after one without gradient
        (features.float().square().sum() + again.float().sum()).backward()
        results.append([p.grad for p in copied.parameters()])
    for plain, cached in zip(*results, strict=True):
        assert (plain - cached).norm() <= 0.05 * plain.norm() + 1e-6


def test_autocast_remembers_no_weights_without_gradient():
    layer = nn.Linear(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encode_in_micro_batches(layer, torch.ones(4, 3), 2, layer)
        layer(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad is not None


def test_an_encoder_that_is_not_reproducible_is_refused():
    module, draw = network(), torch.Generator().manual_seed(0)

    def encode(x):
        return module(x) * torch.rand(len(x), 1, generator=draw)

    features = encode_in_micro_batches(encode, images, 5, module)
    with pytest.raises(
        RuntimeError, match="micro_batch: in the backward pass the encoder returned features that differ"
    ):
        features.sum().backward()
    features = encode_in_micro_batches(module, images, 5, module)
    module.eval()
    with pytest.raises(RuntimeError, match="must keep its mode"):
        features.sum().backward()


def test_weights_changed_before_the_backward_pass_are_refused():
    module = network()
    features = encode_in_micro_batches(module, images, 5, module)
    with torch.no_grad():
        module[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        features.sum().backward()
    features = encode_in_micro_batches(module, images, 5, module)
    features.square().sum().backward(retain_graph=True)
    with torch.no_grad():
        module[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        features.square().sum().backward()


def test_the_context_restores_the_module():
    module = network()
    with running_in_micro_batches(module, 4):
        module(images).sum().backward()
    assert "forward" not in vars(module)
    module.forward = mine = lambda x: 2 * x
    with pytest.raises(ZeroDivisionError), running_in_micro_batches(module, 4):
        raise ZeroDivisionError
    assert module.forward is mine


@pytest.mark.parametrize("size", [0, -3, 2.0, True, "64"])
def test_wrong_sizes(size):
    with pytest.raises(InputError, match=f"micro_batch={size!r}: must be a whole number"):
        require_size(size, nn.Identity())


def test_batch_norm_needs_two_images():
    module = network()
    assert batch_norms(module) == 2 and batch_norms(module.eval()) == 0
    require_size(1, module)
    with pytest.raises(InputError, match="micro_batch=1: the encoder has batch norms"):
        require_size(1, module.train())


def test_activations_of_one_micro_batch_are_in_memory():
    def most_saved(size):
        encoder = build_encoder("resnet10", channels=1, image_size=8, width=8)
        encoder.micro_batch = size
        sizes, alive = [], [0]

        class Kept:
            def __init__(self, tensor):
                self.tensor = tensor
                alive[0] += tensor.numel()
                sizes.append(alive[0])

            def __del__(self):
                alive[0] -= self.tensor.numel()

        with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
            encoder(torch.rand(64, 1, 8, 8)).sum().backward()
        return max(sizes)

    whole, micro = most_saved(None), most_saved(8)
    assert micro < 0.4 * whole
