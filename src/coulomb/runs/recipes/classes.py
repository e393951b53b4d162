"""Recipes of the methods with class centres: softmax, balanced softmax, ArcFace, PaCo."""

from typing import Any

from coulomb.runs.config import Config
from coulomb.runs.prepare import Facts
from coulomb.runs.recipes.settings import paper, small, small_images, tiny

# The long-tail papers' training on CIFAR-LT: ResNet-32 there, ResNet-18 here; SGD, batch 128.
CIFAR_LT: dict[str, Any] = {"encoder": "resnet18", "optimizer": "sgd", "batch_size": 128, "weight_decay": 5e-4}


def softmax_small(facts: Facts) -> Config:
    """Softmax for CPUs: the small settings."""
    return small("softmax", facts)


def softmax_paper(facts: Facts) -> Config:
    """Cross-entropy as in SupCon's comparison on CIFAR (lr .2 at batch 1024 there, .1 at 512 here); ImageNet as usual.

    500 epochs, cosine, 10 of warm-up, weight decay 1e-4; ImageNet: lr .1 at batch 256, falling to a tenth twice, 90 epochs.
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.1, "batch_size": 512, "epochs": 500}
        values |= {"warmup_epochs": 10.0}
    else:
        values = {"encoder": "resnet50", "lr": 0.1, "batch_size": 256, "epochs": 90}
        values |= {"schedule": "step", "lr_drops": [1 / 3, 2 / 3]}
    return paper("softmax", facts, **values, optimizer="sgd", weight_decay=1e-4)


def balanced_softmax_small(facts: Facts) -> Config:
    """Balanced softmax for CPUs: the small settings."""
    return small("balanced_softmax", facts)


def balanced_softmax_paper(facts: Facts) -> Config:
    """Balanced softmax (Ren et al., 2020): CIFAR-LT at batch 512, lr .1, cosine; ImageNet-LT likewise, lr .2, 90 epochs.

    13,000 updates on CIFAR-LT in the paper: 600 epochs of its 11,000 images. Without its meta sampler.
    """
    if small_images(facts):
        values = CIFAR_LT | {"lr": 0.1, "batch_size": 512, "epochs": 600}
    else:
        values = {"encoder": "resnet50", "optimizer": "sgd", "lr": 0.2, "batch_size": 512, "epochs": 90}
    return paper("balanced_softmax", facts, **values)


def arcface_small(facts: Facts) -> Config:
    """ArcFace for CPUs: s = 16, as a handful of classes needs no more, half the learning rate."""
    lr = small("arcface", facts).lr / 2
    return small("arcface", facts, lr=lr, head_layers=1, method_options={"scale": 16.0})


def arcface_paper(facts: Facts) -> Config:
    """ArcFace (Deng et al., 2019): s 64, m .5, embeddings of 512, SGD lr .1 at batch 512, ×.1 at 62%, 88%, weight decay 5e-4.

    The paper trains 32,000 updates on CASIA, about 34 epochs.
    """
    return paper(
        "arcface",
        facts,
        encoder="resnet18" if small_images(facts) else "resnet50",
        optimizer="sgd",
        lr=0.1,
        batch_size=512,
        weight_decay=5e-4,
        epochs=34,
        schedule="step",
        lr_drops=[20 / 32, 28 / 32],
        embedding_dim=512,
        head_layers=1,
    )


def paco_small(facts: Facts) -> Config:
    """PaCo for CPUs: α .01 as on CIFAR-LT, τ .2 as on ImageNet-LT, a queue of 1024, momentum .99 for a short training.

    After 20 epochs on digits the centres classify .983 at τ .2 and .916 at CIFAR-LT's τ .05.
    """
    own = {"alpha": 0.01, "queue_size": 256 if tiny(facts) else 1024, "momentum": 0.99}
    return small("paco", facts, method_options=own)


def paco_paper(facts: Facts) -> Config:
    """PaCo (Cui et al., 2021): its CIFAR-100-LT setting for small images, else ImageNet-LT.

    400 epochs at batch 128, weight decay 5e-4, 10 epochs of warm-up. CIFAR: lr .05, a tenth at epochs 320 and 360, α .01,
    τ .05, queue 1024, embeddings of 32. ImageNet-LT: lr .02, cosine, α .05, τ .2, queue 8192, embeddings of 128.
    """
    shared = {"optimizer": "sgd", "batch_size": 128, "weight_decay": 5e-4, "epochs": 400, "warmup_epochs": 10.0}
    if small_images(facts):
        own = {"alpha": 0.01, "queue_size": 1024}
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.05, "temperature": 0.05, "embedding_dim": 32}
        values |= {"schedule": "step", "lr_drops": [0.8, 0.9]}
    else:
        own = {"alpha": 0.05, "queue_size": 8192}
        values = {"encoder": "resnet50", "lr": 0.02, "temperature": 0.2, "embedding_dim": 128}
    return paper("paco", facts, **shared | values, method_options=own)
