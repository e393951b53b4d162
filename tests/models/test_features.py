import os

import numpy as np
import pytest
import torch
from torch import nn

from coulomb.kinds.image import Canvases
from coulomb.models.features import extract_features, frozen, pixel_features
from coulomb.tables import Batch, image_samples, open_source


class Pictures:
    """Images whose number is their first pixel; number 5 cannot be read."""

    def __init__(self, n=23):
        self.canvas = torch.rand(n, 3, 8, 8)
        self.canvas[:, 0, 0, 0] = torch.arange(n)
        self.workers = None

    def batches(self, indices, batch_size, workers=0, then=lambda batch: batch):
        self.workers = workers
        for start in range(0, len(indices), batch_size):
            chosen = torch.as_tensor(np.asarray(indices[start : start + batch_size]))
            good = chosen[chosen != 5]
            failed = [(int(i), "truncated") for i in chosen if i == 5]
            yield then(Batch({"image": Canvases(self.canvas[good], torch.ones(len(good)))}, good, failed))


def plain(stack):
    return stack.canvas


def encoder():
    return nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(192, 4))


def test_features_in_order_with_their_indices():
    pictures, net, seen = Pictures(), encoder(), []
    indices = np.array([9, 3, 5, 1, 22, 0, 4])
    features, kept = extract_features(net, pictures, indices, plain, batch_size=3, workers=2, progress=seen.append)
    assert kept.tolist() == [9, 3, 1, 22, 0, 4] and kept.dtype == np.int64
    assert seen == [3, 6, 7] and pictures.workers == 2
    net.eval()
    torch.testing.assert_close(features, net(pictures.canvas[kept]).detach())
    assert features.dtype == torch.float32 and not features.requires_grad


def test_workers_compute_the_same_features(tmp_path, monkeypatch):
    monkeypatch.setattr("coulomb.tables.workers.cores", lambda: 2)
    pixels = np.random.default_rng(0).integers(0, 256, (23, 8, 8, 3), np.uint8)
    images, net = image_samples(open_source(pixels), 8), encoder()
    seen = []

    def plain_here(stack):
        seen.append(os.getpid())
        return stack.canvas / 255

    here, _ = extract_features(net, images, range(23), plain_here, batch_size=4)
    assert len(seen) == 6
    there, kept = extract_features(net, images, range(23), plain_here, batch_size=4, workers=2)
    assert len(seen) == 6  # the others were seen by the workers
    torch.testing.assert_close(there, here)
    assert kept.tolist() == list(range(23)) and not there.requires_grad


def test_batch_size_does_not_matter():
    pictures, net = Pictures(), encoder()
    whole, _ = extract_features(net, pictures, range(23), plain)
    parts, _ = extract_features(net, pictures, range(23), plain, batch_size=1)
    torch.testing.assert_close(whole, parts)


def test_encoder_is_unchanged():
    net, pictures = encoder(), Pictures()
    net[1].eval()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    state = torch.get_rng_state()
    extract_features(net, pictures, range(23), plain, batch_size=4)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert [module.training for module in net] == [True, False, True, True]
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_modes_are_restored_after_a_failure():
    net = encoder()
    try:
        extract_features(net, Pictures(), range(4), lambda stack: stack.canvas[:, :1])
    except RuntimeError:
        assert net.training and net[0].training
    else:
        raise AssertionError("BatchNorm of 3 channels took 1")


def test_pixel_features():
    pictures = Pictures()
    features, kept = pixel_features(pictures, range(10), plain, batch_size=4)
    assert kept.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert torch.equal(features, pictures.canvas[kept].flatten(1))


def test_no_readable_images():
    for features, kept in (
        pixel_features(Pictures(), [5], plain),
        extract_features(encoder(), Pictures(), [], plain),
    ):
        assert len(features) == len(kept) == 0


def network():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten())
    net[1].eval()  # its owner has put this layer to sleep
    return net


def test_frozen_restores_every_mode():
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


def test_frozen_restores_modes_after_an_error():
    net = network()
    with pytest.raises(RuntimeError), frozen(net):
        net(torch.rand(5, 1, 8, 8))
    assert [part.training for part in net] == [True, False, True, True]
