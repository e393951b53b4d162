"""What recipes share: settings that follow from the images, for CPUs and for the papers' encoders."""

from typing import Any

from coulomb.runs.config import Config
from coulomb.runs.prepare import Facts


def by_images(facts: Facts) -> dict[str, Any]:
    """What depends on the images alone."""
    if facts.digits:
        views = "digits"
    elif facts.channels != 3:
        views = "single-channel"
    else:
        views = "small-natural" if facts.image_size <= 64 else "natural"
    return {"image_size": facts.image_size, "channels": facts.channels, "views": views}


def tiny(facts: Facts) -> bool:
    """Digits and the like, which have settings of their own."""
    return facts.image_size <= 20


def small_images(facts: Facts) -> bool:
    """CIFAR's 32×32 and up to 64: the papers' CIFAR settings."""
    return facts.image_size <= 64


SHOWN = 2_000_000  # images in all, twenty minutes or so of a ConvNet of width 32 on two cores


def small(method: str, facts: Facts, **changes: Any) -> Config:
    """Twenty minutes or so on two CPU cores for tens of thousands of small images; one minute for digits.

    Up to 40 pixels a ConvNet, which sees three times as many images in that time as the ResNet-10 of larger ones.
    """
    values = by_images(facts)
    narrow = facts.image_size <= 40
    if tiny(facts):
        values |= {"optimizer": "adamw", "lr": 4e-3, "weight_decay": 1e-4}
    else:
        values |= {"optimizer": "sgd", "lr": 0.06 if narrow else 0.12, "weight_decay": 5e-4}
    shown, most = SHOWN if narrow else 600_000, 100 if tiny(facts) else 200
    epochs = min(most, max(12, round(shown / facts.images)))
    values |= {
        "epochs": epochs,
        "warmup_epochs": 2.0 if tiny(facts) else epochs / 24,
        "encoder": "convnet" if narrow else "resnet10",
        "encoder_width": 32,
        "precision": "bf16" if facts.fast_bf16 else "32",
        "batch_size": min(128 if narrow else 256, max(2, facts.images // 4)),
        "embedding_dim": 64 if tiny(facts) else 128,
        "temperature": 0.2,
        "knn_every": max(2, epochs // 20),
        "knn_k": 200 if facts.images >= 10_000 else 20,
    }
    return Config(method=method, preset="small", **values | changes)


def paper(method: str, facts: Facts, **values: Any) -> Config:
    """The authors' settings ``values``, at this library's views and in bfloat16."""
    return Config(method=method, preset="paper", **by_images(facts) | {"precision": "bf16", "knn_every": 10} | values)
