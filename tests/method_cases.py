"""Helpers for tests of methods: a tiny encoder, images, a training step as in the trainer."""

import copy

import torch
from torch import nn

from coulomb.methods.options import HEAD
from coulomb.metrics.rank import effective_rank
from coulomb.models import ViewRows, build_encoder


def encoder(seed=0):
    return build_encoder("convnet", channels=1, image_size=8, width=4, stages=2, seed=seed)


def plain_encoder(width=6):
    """An encoder without batch norm, whose features of an image do not depend on other images."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh())
    module.feature_dim = width
    return module


def built(kind, encoder, **options):
    """A method with a tower of the method's own kind of head; options of the head are among the ``options``."""
    head = {name: options.pop(name) for name in HEAD if name in options}
    return kind(kind.tower_for(encoder, seed=options.get("seed", 0), **head), **options)


def views(count=2, batch=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(batch, 1, 8, 8, generator=draw) for _ in range(count)]


def state_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def changed(before, module):
    """Returns the names of tensors that differ from ``before``, without running statistics, which any forward pass changes."""
    norms = ("running_mean", "running_var", "num_batches_tracked")
    now = module.state_dict()
    return {
        name
        for name in now
        if not name.endswith(norms) and not torch.equal(before[name].nan_to_num(7), now[name].nan_to_num(7))
    }


def step(method, optimizer, number, batch=6, images=20, total=10):
    """Makes one update on the batch with a number; returns the loss."""
    draw = torch.Generator().manual_seed(1000 + number)
    train_row = torch.randperm(images, generator=draw)[:batch]
    loss = method(ViewRows.of(views(batch=batch, seed=number)), None, train_row)
    optimizer.zero_grad()
    loss.backward()
    method.after_batch()
    optimizer.step()
    method.after_update((number + 1) / total)
    return float(loss.detach())


def optimizer_of(method):
    return torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05, momentum=0.9)


def assert_resumes(make):
    """Training from a state dict continues exactly as without interruption."""
    method = make()
    optimizer = optimizer_of(method)
    for number in range(3):
        step(method, optimizer, number)
    states = copy.deepcopy((method.state_dict(), optimizer.state_dict()))
    expected = [step(method, optimizer, number) for number in range(3, 6)]
    other = make()
    other_optimizer = optimizer_of(other)
    other.load_state_dict(states[0])
    other_optimizer.load_state_dict(states[1])
    assert [step(other, other_optimizer, number) for number in range(3, 6)] == expected


def assert_pure(method, train_row=None):
    """A forward pass in training mode changes no saved state, and is reproducible."""
    before = state_of(method)
    seen = views()
    first = float(method(ViewRows.of(seen), None, train_row).detach())
    assert changed(before, method) == set()
    assert float(method(ViewRows.of(seen), None, train_row).detach()) == first


def assert_every_parameter_learns(method, train_row=None):
    method(ViewRows.of(views()), None, train_row).backward()
    learning = {name for name, p in method.named_parameters() if p.requires_grad}
    assert {name for name, p in method.named_parameters() if p.grad is not None} == learning


def trained_on_blobs(method_class, **options):
    """Returns loss, spread (1: over the whole sphere, 0: one point) and effective rank after a short training.

    The two views are noisy copies of 128 random images.
    """
    method = built(method_class, plain_encoder(16), embedding_dim=16, **options)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.2, momentum=0.9)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(128, 1, 8, 8, generator=draw)
    for number in range(150):
        loss = method(ViewRows.of([images + 0.3 * torch.randn(images.shape, generator=draw) for _ in range(2)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_update((number + 1) / 150)
    with torch.no_grad():
        embeddings = nn.functional.normalize(method.tower(images), dim=1)
    return float(loss.detach()), float(embeddings.std(0).mean()) * 4, effective_rank(embeddings)
