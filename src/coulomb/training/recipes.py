"""Recipes: functions that return the complete configuration of a run, for a method and a preset."""

from collections.abc import Callable
from typing import Any

from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.training.config import Config
from coulomb.training.prepare import Facts


def _common(facts: Facts) -> dict[str, Any]:
    """What depends on the images alone."""
    if facts.digits:
        views = "digits"
    elif facts.channels != 3:
        views = "single-channel"
    else:
        views = "small-natural" if facts.image_size <= 64 else "natural"
    return {"image_size": facts.image_size, "channels": facts.channels, "views": views}


def _small(facts: Facts) -> dict[str, Any]:
    """Twenty minutes or so on two CPU cores for tens of thousands of small images; two minutes for digits."""
    values = _common(facts)
    if facts.image_size <= 20:
        values |= {"encoder": "convnet", "encoder_width": 32, "optimizer": "adamw", "lr": 6e-3, "weight_decay": 1e-4}
        values |= {"epochs": 200, "warmup_epochs": 2.0}
    else:
        values |= {"encoder": "resnet10", "encoder_width": 32, "optimizer": "sgd", "lr": 0.12, "weight_decay": 5e-4}
        # As many images in all as 12 epochs of 50,000, about 18 minutes; at most 200 epochs.
        epochs = min(200, max(12, round(600_000 / facts.images)))
        values |= {"epochs": epochs, "warmup_epochs": epochs / 24}
    batch = min(256, max(2, facts.images // 4))
    values["precision"] = "bf16" if facts.fast_bf16 else "32"
    return values | {
        "batch_size": batch,
        "embedding_dim": 64 if facts.image_size <= 20 else 128,
        "temperature": 0.2,
        "knn_every": max(2, values["epochs"] // 20),
        "knn_k": 200 if facts.images >= 10_000 else 20,
    }


def simclr_small(facts: Facts) -> Config:
    """SimCLR for CPUs: a small network, τ = .2 for a short training."""
    return Config(method="simclr", preset="small", **_small(facts))


def supcon_small(facts: Facts) -> Config:
    """SupCon for CPUs: the same, with τ = .1."""
    return Config(method="supcon", preset="small", **_small(facts) | {"temperature": 0.1})


def simclr_paper(facts: Facts) -> Config:
    """SimCLR (Chen et al., 2020): for small images its CIFAR-10 appendix, else its ImageNet setting at batch 512.

    LARS, weight decay 1e-4, 10 epochs of warm-up, cosine; CIFAR: lr 1.0, τ .5, 1000 epochs, no blur; ImageNet:
    lr 0.3·B/256, τ .1, 100 epochs.
    """
    small = facts.image_size <= 64
    values = _common(facts) | {"encoder": "resnet18" if small else "resnet50", "optimizer": "lars", "batch_size": 512}
    values |= (
        {"lr": 1.0, "temperature": 0.5, "epochs": 1000} if small else {"lr": 0.6, "temperature": 0.1, "epochs": 100}
    )
    values |= {"weight_decay": 1e-4, "warmup_epochs": 10.0, "precision": "bf16", "knn_every": 10}
    return Config(method="simclr", preset="paper", **values)


def supcon_paper(facts: Facts) -> Config:
    """SupCon (Khosla et al., 2020), the authors' CIFAR setting: SGD lr .5 at batch 1024, τ .1, 1000 epochs, cosine."""
    values = _common(facts) | {"encoder": "resnet50", "optimizer": "sgd", "lr": 0.5, "batch_size": 1024}
    values |= {"temperature": 0.1, "epochs": 1000, "weight_decay": 1e-4, "warmup_epochs": 10.0}
    return Config(method="supcon", preset="paper", **values | {"precision": "bf16", "knn_every": 10})


RECIPES: dict[tuple[str, str], Callable[[Facts], Config]] = {
    ("simclr", "small"): simclr_small,
    ("simclr", "paper"): simclr_paper,
    ("supcon", "small"): supcon_small,
    ("supcon", "paper"): supcon_paper,
}


def recipe_of(method: str, preset: str) -> Callable[[Facts], Config]:
    """The recipe of a method; a class of the user's own has the small settings, and no paper.

    Raises:
        InputError: ``preset="paper"`` for a class of the user's own.
    """
    if method in METHODS:
        return RECIPES[method, preset]
    if preset != "small":
        raise InputError(f"preset={preset!r}: a method of your own ({method!r}) has none; use preset='small'")
    return lambda facts: Config(method=method, preset="small", **_small(facts))
