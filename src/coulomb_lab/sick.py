"""Runs with deliberate problems, at least one for each rule of the doctor, and healthy runs of all methods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.randomness import numpy_generator
from coulomb.methods import METHODS
from coulomb.methods.simclr import SimCLR
from coulomb.models import Tower, ViewRows

SMALL = {"data": "digits", "encoder_width": 16, "epochs": 10, "knn_every": 2}
NO_VIEWS = {"affine": 0.0, "elastic": 0.0, "jitter": 0.0, "blur": 0.0, "noise": 0.0, "cutout": 0.0}
EPOCHS = {"byol": 60}  # its momentum encoder needs longer to leave its random initialization
HEALTHY_EPOCHS = 20


@dataclass(frozen=True)
class Case:
    """A run of the suite.

    Args:
        name: name of the case and its folder.
        expected: the finding that the doctor must report; None for a healthy run.
        options: training options.
        method: a method class with an error in its code.
        data: (folder, images, labels) → further options, for problems of the data; saves changed images in the folder.
        views: a function that makes the views, as for `OwnViews`.
        photos: uses photos (``coulomb lab doctor --data``) in place of digits; skipped without them.
        evaluate: whether to evaluate the run, for rules that need accuracies per class or the starting weights.
        from_weights: starts from the weights of a healthy run, which is trained first.
    """

    name: str
    expected: str | None
    options: dict[str, Any] = field(default_factory=dict)
    method: type[nn.Module] | None = None
    data: Callable[[Path, np.ndarray, np.ndarray], dict[str, Any]] | None = None
    views: Callable[[Tensor, torch.Generator], Tensor] | None = None
    photos: bool = False
    evaluate: bool = False
    from_weights: bool = False


class Bottleneck(SimCLR):
    """SimCLR with a head whose output has rank two."""

    def __init__(self, tower: Tower, *, temperature: float = 0.2):
        super().__init__(tower, temperature=temperature)
        head: Any = tower.head
        head[-1] = nn.Sequential(nn.Linear(head[-1].in_features, 2), nn.Linear(2, tower.embedding_dim))


class Mispaired(SimCLR):
    """SimCLR whose second views belong to the previous image: a classic mistake in a data loader."""

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of mismatched pairs."""
        first, second = views.split(self.rows(views))
        return super().forward(ViewRows.of([first, second.roll(1, 0)], self.tower.column))


class Unnormalized(SimCLR):
    """Cross-entropy of inner products without normalization, a common first implementation."""

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of matching each view 0 with its view 1."""
        first, second = views.split(self.embed(views))
        return functional.cross_entropy(first @ second.T, torch.arange(len(first)))


def _saved(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    np.savez(path, images=images, labels=labels)
    return str(path)


def two_kinds(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns only zeros and ones: every second negative has the anchor's class."""
    chosen = labels < 2
    return {"data": _saved(folder, "two-kinds", images[chosen], labels[chosen]), "views": "digits"}


def with_copies(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns a third of the images twice, and a sixth again, slightly darker."""
    copied, brighter = images[:600], (images[600:900] * 0.9).astype(images.dtype)
    whole = np.concatenate([images, copied, brighter]), np.concatenate([labels, labels[:900]])
    return {"data": _saved(folder, "copies", *whole), "views": "digits"}


def leaking(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns data in which a tenth of the test images are training images too."""
    order = numpy_generator(0, "leak").permutation(len(images))
    train, test = order[:1400], np.concatenate([order[1400:], order[:40]])
    return {
        "data": _saved(folder, "train", images[train], labels[train]),
        "test": _saved(folder, "test", images[test], labels[test]),
        "views": "digits",
    }


def plain(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns the unchanged images."""
    return {"data": _saved(folder, "plain", images, labels)}


def black(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns black images, as from a loader that divides uint8 by 255."""
    return {"data": _saved(folder, "black", np.zeros_like(images), labels)}


def shuffled(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns the images with labels in another order."""
    return {"data": _saved(folder, "shuffled", images, numpy_generator(0, "shuffle").permutation(labels))}


def noise(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns images of random noise, from which nothing can be learned."""
    drawn = numpy_generator(0, "noise").integers(0, 256, images.shape, dtype=np.uint8)
    return {"data": _saved(folder, "noise", drawn, labels), "views": "digits"}


def bar_code(folder: Path, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Returns images of 32 × 32 pixels: a bar code of 16 random bits per image above a digit of 16 × 16."""
    page = np.zeros((len(images), 32, 32), dtype=np.uint8)
    page[:, 14:30, 8:24] = np.kron(images, np.ones((1, 2, 2), dtype=np.uint8))
    bits = numpy_generator(0, "bar code").integers(0, 2, (len(images), 1, 16)).astype(np.uint8) * 255
    page[:, :10] = np.repeat(bits, 2, axis=2)
    return {"data": _saved(folder, "bar-code", page, labels), "views": "digits"}


def identity_views(images: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the image itself as its view."""
    return images


BAR_CODE = {"epochs": 14, "lr": 0.01, "image_size": 32}  # higher than the learning rate of the recipe for weights
SHORT = {"epochs": 4, "knn_every": 2}  # enough for problems that the data, the method or the options show
SICK = (
    Case("collapse", "complete-collapse", {"method": "byol", "method_options": {"stop_gradient": False}}),
    Case("bottleneck", "dimensional-collapse", {"temperature": 0.2}, Bottleneck),
    Case("mispaired", "no-signal", {"temperature": 0.2}, Mispaired),
    Case("weak-views", "augmentation-too-weak", {"view_options": NO_VIEWS}),
    Case("strong-views", "augmentation-too-strong", {"view_options": {"noise_std": (3.0, 5.0)}}),
    Case("cold", "temperature-too-low", {"temperature": 0.005}),
    Case("hot", "temperature-too-high", {"temperature": 10.0}),
    Case("two-kinds", "false-negatives", {"batch_size": 64}, data=two_kinds),
    Case("fast", "learning-rate-too-high", {"lr": 3.0}),
    Case("still", "learning-rate-too-low", {"lr": 1e-7}),
    Case("unnormalized", "head-not-normalized", SHORT, Unnormalized),
    Case("frozen-keys", "momentum-wrong", {"method": "moco", "lr": 2e-3, "method_options": {"momentum": 0.9999}}),
    Case("jumping-keys", "momentum-wrong", {"method": "moco", "lr": 2e-3, "method_options": {"momentum": 0.0}}),
    Case(
        "old-keys",
        "queue-stale",
        {"method": "moco", "batch_size": 16, "lr": 0.02, "method_options": {"queue_size": 1408, "momentum": 0.9}}
        | SHORT,
    ),
    Case(
        "long-queue", "queue-larger-than-data", {"method": "moco", "lr": 2e-3, "method_options": {"queue_size": 8192}}
    ),
    Case(
        "long-tail",
        "imbalance",
        {"method": "supcon", "long_tail": "exponential:100", "batch_size": 64},
        evaluate=True,
    ),
    Case("copies", "duplicates", SHORT, data=with_copies),
    Case("leak", "evaluation-leak", SHORT, data=leaking),
    Case("tau-001", "temperature-too-low", {"temperature": 0.001}),
    Case("identical-views", "augmentation-too-weak", views=identity_views),
    Case("black", "images-blank", SHORT, data=black),
    Case("black-byol", "images-blank", SHORT | {"method": "byol"}, data=black),
    Case("shuffled-supcon", "labels-unrelated", {"method": "supcon"}, data=shuffled),
    Case("shuffled-softmax", "labels-unrelated", {"method": "softmax"}, data=shuffled),
    Case("batch-of-4", "batch-too-small", {"batch_size": 4, "epochs": 2, "knn_every": 1}),
    Case("bar-code", "shortcut", {"epochs": 14}, data=bar_code),
    Case("noise-from-weights", "drift", {"lr": 0.03, "epochs": 6}, data=noise, from_weights=True, evaluate=True),
    Case("bar-code-from-weights", "forgetting", BAR_CODE, data=bar_code, from_weights=True, evaluate=True),
    Case("noise", "nothing-learned", {"epochs": 1, "knn_every": 1}, data=noise, evaluate=True),
)
PHOTOS = (
    Case("photos-tau-001", "temperature-too-low", {"temperature": 0.001, "epochs": 6}, photos=True),
    Case("photos-identical-views", "augmentation-too-weak", {"epochs": 6}, views=identity_views, photos=True),
    Case("photos-black", "images-blank", SHORT, data=black, photos=True),
    Case("photos-shuffled", "labels-unrelated", {"method": "supcon", "epochs": 8}, data=shuffled, photos=True),
    Case("photos-batch-of-4", "batch-too-small", {"batch_size": 4, "epochs": 1, "knn_every": 1}, photos=True),
    Case("healthy-photos-simclr", None, {"epochs": 8}, photos=True),
    Case("healthy-photos-supcon", None, {"method": "supcon", "epochs": 6}, photos=True),
    Case("healthy-photos-byol", None, {"method": "byol", "epochs": 8}, photos=True),
)
HEALTHY = tuple(
    Case(f"healthy-{name}", None, {"method": name, "epochs": EPOCHS.get(name, HEALTHY_EPOCHS), "knn_every": 5})
    for name in METHODS
)
BRIEF = (
    Case("healthy-byol-8-epochs", None, {"method": "byol", "epochs": 8}),
    Case("healthy-from-weights", None, {}, from_weights=True, evaluate=True),
)
CASES = SICK + HEALTHY + BRIEF + PHOTOS
