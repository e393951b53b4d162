"""Recipes of the methods that contrast within the batch: SimCLR, SupCon, triplet."""

from coulomb.runs.config import Config
from coulomb.runs.prepare import Facts
from coulomb.runs.recipes.settings import paper, small, small_images


def simclr_small(facts: Facts) -> Config:
    """SimCLR for CPUs: a small network, τ = .2 for a short training."""
    return small("simclr", facts)


def simclr_paper(facts: Facts) -> Config:
    """SimCLR (Chen et al., 2020): for small images its CIFAR-10 appendix, else its ImageNet setting at batch 512.

    LARS, weight decay 1e-4, 10 epochs of warm-up, cosine; CIFAR: lr 1.0, τ .5, 1000 epochs, no blur; ImageNet:
    lr 0.3·B/256, τ .1, 100 epochs.
    """
    if small_images(facts):
        values = {"encoder": "resnet18", "lr": 1.0, "temperature": 0.5, "epochs": 1000}
    else:
        values = {"encoder": "resnet50", "lr": 0.6, "temperature": 0.1, "epochs": 100}
    return paper("simclr", facts, **values, optimizer="lars", batch_size=512, weight_decay=1e-4, warmup_epochs=10.0)


def supcon_small(facts: Facts) -> Config:
    """SupCon for CPUs: the same, with τ = .1."""
    return small("supcon", facts, temperature=0.1)


def supcon_paper(facts: Facts) -> Config:
    """SupCon (Khosla et al., 2020), the authors' CIFAR setting: SGD lr .5 at batch 1024, τ .1, 1000 epochs, cosine."""
    return paper(
        "supcon",
        facts,
        encoder="resnet50",
        optimizer="sgd",
        lr=0.5,
        batch_size=1024,
        temperature=0.1,
        epochs=1000,
        weight_decay=1e-4,
        warmup_epochs=10.0,
    )


def triplet_small(facts: Facts) -> Config:
    """Triplets for CPUs: semi-hard, m = .2, half the learning rate, one linear layer as head."""
    base = small("triplet", facts, head_layers=1)
    return small("triplet", facts, head_layers=1, lr=base.lr / 2)


def triplet_paper(facts: Facts) -> Config:
    """Batch-hard triplets as in Hermans et al. (2017): soft margin, Euclidean, ResNet-50, embeddings of 128, Adam 3e-4.

    Their 25,000 updates at 72 images are about 100 epochs here; they draw 18 classes of 4 images, here images are drawn
    evenly, and each one's second view is a positive. Their Adam does not decay weights, and their rate falls from 60% on.
    """
    return paper(
        "triplet",
        facts,
        encoder="resnet18" if small_images(facts) else "resnet50",
        optimizer="adamw",
        lr=3e-4,
        weight_decay=0.0,
        batch_size=128,
        epochs=100,
        head_layers=2,
        head_hidden_dim=1024,
        method_options={"mining": "hard", "soft": True, "distance": "euclidean"},
    )
