"""Micro-batches give the features, gradients and buffers of the same passes in one graph."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from coulomb.ground.errors import InputError
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
    """A buffer that changes in every forward pass and determines the output, as in spectral normalization."""

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


@pytest.mark.parametrize("hook", [lambda g: -g, lambda g: g / 2, lambda g: g.clamp(-1e-3, 1e-3), lambda g: None])
def test_hooks_of_parameters_are_called_once_with_the_sum(hook):
    results = []
    for encode in (None, encode_in_micro_batches):
        module, calls = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)).double(), []
        module.load_state_dict({name: torch.ones_like(v) / 9 for name, v in module.state_dict().items()})
        handles = [p.register_hook(hook) for p in module.parameters()]
        module[1].weight.register_hook(calls.append)
        module[1].weight.register_post_accumulate_grad_hook(lambda p, calls=calls: calls.append(p.grad.clone()))
        for _ in range(2):
            features = module(images) if encode is None else encode(module, images, 5, module)
            features.square().sum().backward()
            for handle in handles:  # the second time without
                handle.remove()
        results.append((calls, [p.grad for p in module.parameters()]))
    (plain, wanted), (cached, found) = results
    for a, b in zip((*plain, *wanted), (*cached, *found), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)


def test_hooks_of_unused_parameters_are_not_called():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).double()
    module.spare = nn.Linear(2, 2)
    module.forward = lambda x: module[1](module[0](x))
    handle = module.spare.weight.register_hook(lambda grad: -grad)
    for _ in range(2):
        encode_in_micro_batches(module, images, 5, module).sum().backward()
    handle.remove()
    assert module.spare.weight.grad is None and not module.spare.weight._backward_hooks
    module.spare.weight.register_hook(lambda grad: -grad)
    module.spare.weight.sum().backward()
    assert torch.equal(module.spare.weight.grad, -torch.ones(2, 2))


class Checkpointed(nn.Module):
    """Reentrant checkpointing behind a frozen or trained stem, which autograd.grad leaves out."""

    def __init__(self, trained, given):
        super().__init__()
        self.stem, self.body = nn.Linear(16, 5).double(), nn.Linear(5, 3).double()
        self.stem.requires_grad_(trained)
        self.given = torch.ones(1, requires_grad=True) if given else None

    def forward(self, x):
        x = self.stem(x.flatten(1))
        if self.given is not None:
            return checkpoint(lambda x, _: self.body(x), x, self.given, use_reentrant=True)
        return checkpoint(self.body, x.requires_grad_(), use_reentrant=True)


@pytest.mark.parametrize(("trained", "given"), [(False, False), (False, True), (True, False)])
def test_reentrant_checkpointing_is_refused(trained, given):
    module = Checkpointed(trained, given)
    with pytest.raises(InputError, match="encoder: it uses reentrant checkpointing .* pass use_reentrant=False"):
        encode_in_micro_batches(module, images, 5, module).sum().backward()
    assert module.body.weight.grad is None


def test_other_checkpointing_behind_a_frozen_stem_is_the_plain_pass():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    module[1].requires_grad_(False)
    module.forward = lambda x: checkpoint(module[2:], module[:2](x).requires_grad_(), use_reentrant=False)
    module(images).square().sum().backward()
    wanted, module[3].weight.grad = module[3].weight.grad, None
    encode_in_micro_batches(module, images, 5, module).square().sum().backward()
    torch.testing.assert_close(module[3].weight.grad, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.Parameter, torch.Tensor.requires_grad_])
def test_a_tensor_that_learns_but_is_no_parameter_is_refused(kind):
    module, factor = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).double(), kind(torch.ones(5, dtype=torch.double))
    features = encode_in_micro_batches(lambda x: module(x) * factor, images, 5, module)
    with pytest.raises(InputError, match=r"encoder: it uses a tensor of shape \[5\] that requires a gradient"):
        features.sum().backward()


@pytest.mark.parametrize("learning", [False, True])
def test_an_encoder_may_change_its_input_in_place(learning):
    gradients = []
    for encode in (None, encode_in_micro_batches):
        layer, inputs = nn.Linear(16, 5).double(), images.clone().requires_grad_(learning)
        layer.load_state_dict({name: torch.ones_like(value) for name, value in layer.state_dict().items()})

        def changed(x, layer=layer):
            return layer(x.sub_(0.5).div_(0.25).flatten(1))

        given = inputs * 1
        features = changed(given) if encode is None else encode(changed, given, 5, layer)
        features.square().sum().backward()
        gradients.append([layer.weight.grad, *([inputs.grad] if learning else [])])
    for plain, cached in zip(*gradients, strict=True):
        torch.testing.assert_close(cached, plain, rtol=1e-12, atol=1e-10)


def test_features_that_depend_on_nothing_that_learns_require_no_gradient():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).double()
    assert not encode_in_micro_batches(lambda x: module(x).detach(), images, 5, module).requires_grad


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
