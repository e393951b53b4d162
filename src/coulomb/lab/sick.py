"""Deliberately sick runs, one for each verdict of the doctor, and healthy ones of all methods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.data.digits import open_digits
from coulomb.methods import METHODS
from coulomb.methods.simclr import SimCLR
from coulomb.randomness import numpy_generator

SMALL = {"data": "digits", "encoder_width": 16, "epochs": 10, "knn_every": 2}
NO_VIEWS = {"affine": 0.0, "elastic": 0.0, "jitter": 0.0, "blur": 0.0, "noise": 0.0, "cutout": 0.0}
EPOCHS = {"byol": 60}  # a healthy run whose momentum encoder has to leave its random start first
HEALTHY_EPOCHS = 20


@dataclass(frozen=True)
class Case:
    """A run of the suite.

    Args:
        name: its folder.
        expected: the verdict that must be found; None: none may be.
        options: of training.
        method: a class of its own, where the sickness is one of code.
        data: makes the images in a folder and returns further options, where the sickness is one of data.
        evaluate: measure it as `coulomb train` does: accuracy by class is needed.
    """

    name: str
    expected: str | None
    options: dict[str, Any] = field(default_factory=dict)
    method: type[nn.Module] | None = None
    data: Callable[[Path], dict[str, Any]] | None = None
    evaluate: bool = False


class Bottleneck(SimCLR):
    """SimCLR whose head ends in two directions."""

    def __init__(self, encoder: Any, *, embedding_dim: int = 64, temperature: float = 0.2, seed: int = 0):
        super().__init__(encoder, embedding_dim=embedding_dim, temperature=temperature, seed=seed)
        last: Any = self.head[-1]
        self.head[-1] = nn.Sequential(nn.Linear(last.in_features, 2), nn.Linear(2, embedding_dim))


class Mispaired(SimCLR):
    """SimCLR whose second views are those of the image before: the classical mistake in a loader."""

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """The loss of pairs that do not belong together."""
        return super().forward([views[0], views[1].roll(1, 0)], labels, index)


class Unnormalised(SimCLR):
    """Cross-entropy of plain inner products, as in many a first implementation."""

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Each view 0 must find its view 1."""
        first, second = self.head(self.encoder(torch.cat(views))).chunk(2)
        return functional.cross_entropy(first @ second.T, torch.arange(len(first)))


def _saved(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    np.savez(path, images=images, labels=labels)
    return str(path)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    source = open_digits()
    assert source.labels is not None
    return source.array, source.labels


def two_kinds(folder: Path) -> dict[str, Any]:
    """Zeros and ones alone: every second negative is of the anchor's class."""
    images, labels = _digits()
    chosen = labels < 2
    return {"data": _saved(folder, "two-kinds", images[chosen], labels[chosen]), "views": "digits"}


def with_copies(folder: Path) -> dict[str, Any]:
    """A third of the images once more, and a sixth again a little brighter."""
    images, labels = _digits()
    copied, brighter = images[:600], (images[600:900] * 0.9).astype(images.dtype)
    whole = np.concatenate([images, copied, brighter]), np.concatenate([labels, labels[:900]])
    return {"data": _saved(folder, "copies", *whole), "views": "digits"}


def leaking(folder: Path) -> dict[str, Any]:
    """A tenth of the test images was trained on."""
    images, labels = _digits()
    order = numpy_generator(0, "leak").permutation(len(images))
    train, test = order[:1400], np.concatenate([order[1400:], order[:40]])
    return {
        "data": _saved(folder, "train", images[train], labels[train]),
        "test": _saved(folder, "test", images[test], labels[test]),
        "views": "digits",
    }


SHORT = {"epochs": 4, "knn_every": 2}  # the data, the method or the options alone tell
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
    Case("unnormalised", "head-not-normalised", SHORT, Unnormalised),
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
)
HEALTHY = tuple(
    Case(f"healthy-{name}", None, {"method": name, "epochs": EPOCHS.get(name, HEALTHY_EPOCHS), "knn_every": 5})
    for name in METHODS
)
CASES = SICK + HEALTHY
