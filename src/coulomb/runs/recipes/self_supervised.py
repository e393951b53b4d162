"""Recipes of the methods with negatives from elsewhere, with none, and with weighed ones: MoCo to HCL."""

from typing import Any

from coulomb.runs.config import Config
from coulomb.runs.prepare import Facts
from coulomb.runs.recipes.settings import paper, small, small_images, tiny


def moco_small(facts: Facts) -> Config:
    """MoCo for CPUs: symmetric, a queue of 4096 and momentum .97; for digits 1024 and .99.

    On digits, at .95, embeddings collapse to rank 1.1 and recover to 4.6 in 1100 updates, probably as so fast a key encoder
    lets keys be told apart by their age; at .99 they end with 20.7, and 5 labels give .958 instead of .920.
    """
    own = {"symmetric": True, "queue_size": 1024 if tiny(facts) else 4096, "momentum": 0.99 if tiny(facts) else 0.97}
    return small("moco", facts, method_options=own)


def moco_paper(facts: Facts) -> Config:
    """MoCo v2 (Chen et al., 2020) on ImageNet; for small images the authors' CIFAR-10 demo.

    ImageNet: SGD lr .03 at batch 256, weight decay 1e-4, 200 epochs, cosine, K 65536, m .999, τ .2. CIFAR-10: ResNet-18,
    lr .06 at batch 512, weight decay 5e-4, 800 epochs, K 4096, m .99, τ .1, symmetric, one linear layer, keys in groups of
    64 (16 groups, as both views' keys are shuffled together).
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.06, "batch_size": 512, "weight_decay": 5e-4}
        values |= {"epochs": 800, "temperature": 0.1, "head_layers": 1}
        own = {"queue_size": 4096, "momentum": 0.99, "symmetric": True, "key_groups": 16}
    else:
        values = {"encoder": "resnet50", "lr": 0.03, "batch_size": 256, "weight_decay": 1e-4}
        values |= {"epochs": 200, "temperature": 0.2, "head_layers": 2}
        own = {"queue_size": 65536, "momentum": 0.999}
    return paper("moco", facts, **values, optimizer="sgd", method_options=own)


def instdisc_small(facts: Facts) -> Config:
    """Instance discrimination for CPUs: the full softmax over the bank, as on CIFAR-10; NCE from 200,000 images on.

    In 1250 updates on 16,000 images of CIFAR-10, kNN is .401 with τ = .2, .375 with the paper's .1, which digits keep.
    """
    own = {"full": facts.images < 200_000, "normalizer": "ema"}
    return small("instdisc", facts, temperature=0.1 if tiny(facts) else 0.2, head_layers=1, method_options=own)


def instdisc_paper(facts: Facts) -> Config:
    """Instance discrimination (Wu et al., 2018): SGD lr .03, 200 epochs, a tenth of it at 120 and again at 160, one view.

    CIFAR-10: ResNet-18, full softmax, τ .1, batch 128, weight decay 5e-4. ImageNet: ResNet-50, NCE with 4096 noise
    samples, τ .07, batch 256, weight decay 1e-4.
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "batch_size": 128, "weight_decay": 5e-4, "temperature": 0.1}
        own: dict[str, Any] = {"full": True}
    else:
        values = {"encoder": "resnet50", "batch_size": 256, "weight_decay": 1e-4, "temperature": 0.07}
        own = {"full": False, "noise_samples": 4096}
    values |= {"optimizer": "sgd", "lr": 0.03, "schedule": "step", "lr_drops": [0.6, 0.8], "epochs": 200}
    return paper("instdisc", facts, **values, n_views=1, head_layers=1, method_options=own)


def byol_small(facts: Facts) -> Config:
    """BYOL for CPUs: momentum from .97 to 1, embeddings of 128; for digits, in 1100 updates, from .9, half the rate.

    In 1250 updates on 16,000 images of CIFAR-10, kNN is .413 from .97 on, .398 from .99 on (4,000 other training images).
    """
    shared: dict[str, Any] = {"embedding_dim": 128, "head_hidden_dim": 512}
    if tiny(facts):
        return small("byol", facts, **shared, lr=2e-3, method_options={"momentum": 0.9})
    return small("byol", facts, **shared, method_options={"momentum": 0.97})


def byol_paper(facts: Facts) -> Config:
    """BYOL (Grill et al., 2020): LARS, lr .2·B/256 at batch 4096 (512 here), weight decay 1.5e-6, 1000 epochs.

    Ten epochs of warm-up; embeddings of 256, hidden width 4096, momentum from .996 to 1.
    """
    return paper(
        "byol",
        facts,
        encoder="resnet18" if small_images(facts) else "resnet50",
        optimizer="lars",
        lr=0.4,
        batch_size=512,
        weight_decay=1.5e-6,
        epochs=1000,
        warmup_epochs=10.0,
        embedding_dim=256,
        head_hidden_dim=4096,
        method_options={"momentum": 0.996},
    )


def simsiam_small(facts: Facts) -> Config:
    """SimSiam for CPUs: head of two layers, as the paper has it for CIFAR-10, and 512 wide."""
    return small("simsiam", facts, embedding_dim=512, head_hidden_dim=512, head_layers=2)


def simsiam_paper(facts: Facts) -> Config:
    """SimSiam (Chen & He, 2021): SGD, cosine, no warm-up; lr .05·B/256 on ImageNet, .03·B/256 on CIFAR-10.

    ImageNet: ResNet-50, batch 256, weight decay 1e-4, 100 epochs, three layers. CIFAR-10: ResNet-18, batch 512, weight
    decay 5e-4, 800 epochs, two layers. Embeddings of 2048, predictor's hidden width 512, whose learning rate is constant.
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.06, "batch_size": 512, "weight_decay": 5e-4}
        values |= {"epochs": 800, "head_layers": 2}
    else:
        values = {"encoder": "resnet50", "lr": 0.05, "batch_size": 256, "weight_decay": 1e-4}
        values |= {"epochs": 100, "head_layers": 3}
    return paper("simsiam", facts, **values, optimizer="sgd", embedding_dim=2048, head_hidden_dim=2048)


def debiased_small(facts: Facts) -> Config:
    """Debiased contrast for CPUs: the paper's τ .5 and τ⁺ .1."""
    return small("debiased", facts, temperature=0.5, method_options={"tau_plus": 0.1})


def debiased_paper(facts: Facts) -> Config:
    """Debiased contrast (Chuang et al., 2020): Adam 1e-3, batch 256, weight decay 1e-6, 400 epochs, ResNet-50, τ .5, τ⁺ .1.

    Their Adam adds the decay to the gradient; here it is decoupled (AdamW). Constant there, the rate follows a cosine here.
    """
    return _pairs("debiased", facts, {"tau_plus": 0.1})


def hard_small(facts: Facts) -> Config:
    """Hard negatives for CPUs: the paper's τ .5, τ⁺ .1 and β 1."""
    return small("hard", facts, temperature=0.5, method_options={"beta": 1.0, "tau_plus": 0.1})


def hard_paper(facts: Facts) -> Config:
    """Hard negatives (Robinson et al., 2021): the settings of debiased contrast, β 1."""
    return _pairs("hard", facts, {"beta": 1.0, "tau_plus": 0.1})


def _pairs(method: str, facts: Facts, own: dict[str, Any]) -> Config:
    return paper(
        method,
        facts,
        encoder="resnet50",
        optimizer="adamw",
        lr=1e-3,
        batch_size=256,
        weight_decay=1e-6,
        epochs=400,
        temperature=0.5,
        head_hidden_dim=512,
        method_options=own,
    )
