"""Recipes: functions that return the complete configuration of a run, for a method and a preset."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.metrics.knn import default_neighbors
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts

Recipe = Callable[[Facts], Config]

RECIPES: dict[tuple[str, str], Recipe] = {}


def recipe(function: Recipe) -> Recipe:
    """Registers the function ``METHOD_PRESET`` as the recipe of a method for a preset."""
    method, _, preset = function.__name__.rpartition("_")
    RECIPES[method, preset] = function
    return function


def find_recipe(method: str, preset: str) -> Recipe:
    """Returns the recipe of a method; without one, ``"small"`` takes the settings of `small` unchanged.

    Raises:
        InputError: ``preset="paper"`` for a user's own class, which has no published settings.
    """
    if (own := RECIPES.get((method, preset))) is not None:
        return own
    if preset != "small":
        raise InputError(f"preset={preset!r}: method={method!r} has no published settings; use preset='small'")
    return lambda facts: small(method, facts)


def by_images(facts: Facts) -> dict[str, Any]:
    """Returns the settings that depend on the images only."""
    if facts.digits:
        views = "digits"
    elif facts.channels != 3:
        views = "single-channel"
    else:
        views = "small-natural" if facts.image_size <= 64 else "natural"
    return {"image_size": facts.image_size, "channels": facts.channels, "views": views}


def tiny(facts: Facts) -> bool:
    """Returns True for digits and images of that size, which have separate settings."""
    return facts.image_size <= 20


def small_images(facts: Facts) -> bool:
    """Returns True up to 64 pixels, where the papers' CIFAR settings apply."""
    return facts.image_size <= 64


ADAMW: dict[str, Any] = {"optimizer": "adamw", "lr": 4e-3, "weight_decay": 1e-4}
SHOWN = 2_000_000  # images in the whole training, about twenty minutes for a ConvNet of width 32 on two cores


def small(method: str, facts: Facts, shown: int = SHOWN, **changes: Any) -> Config:
    """Returns settings for about twenty minutes on two CPU cores for tens of thousands of small images, one for digits.

    Up to 40 pixels, the encoder is a ConvNet, three times as fast as the ResNet-10 for larger ones. ``shown``: images learned.
    """
    values = by_images(facts)
    narrow = facts.image_size <= 40
    values |= ADAMW if tiny(facts) else {"optimizer": "sgd", "lr": 0.06 if narrow else 0.12, "weight_decay": 5e-4}
    shown, most = shown if narrow else 600_000, 100 if tiny(facts) else 200
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
        "knn_k": default_neighbors(facts.images),
    }
    return Config(method=method, preset="small", **values | changes)


def paper(method: str, facts: Facts, **values: Any) -> Config:
    """Returns the authors' settings ``values``, with this library's views and bfloat16."""
    return Config(method=method, preset="paper", **by_images(facts) | {"precision": "bf16", "knn_every": 10} | values)


@recipe
def simclr_small(facts: Facts) -> Config:
    """SimCLR for CPUs; color photos of 21 to 40 pixels take what was best on CIFAR-10 (docs/experiments/recipes.md)."""
    if tiny(facts) or facts.image_size > 40 or facts.channels != 3:
        return small("simclr", facts)
    batch = min(512, max(2, facts.images // 4))
    values: dict[str, Any] = {"encoder": "convnet-pool", "encoder_width": 48, "view_options": {"side": 0.625}}
    values |= {"optimizer": "muon", "lr": 0.03 * (batch / 512) ** 0.5, "weight_decay": 0.01}
    values |= {"temperature": 0.1, "batch_size": batch, "whitening": 0.5}
    return small("simclr", facts, shown=1_800_000, **values)


@recipe
def simclr_paper(facts: Facts) -> Config:
    """SimCLR (Chen et al., 2020): the CIFAR-10 appendix for small images, else the ImageNet setting at batch 512.

    LARS, weight decay 1e-4, 10 epochs of warm-up, cosine; CIFAR: lr 1.0, τ .5, 1000 epochs, no blur; ImageNet:
    lr 0.3·B/256, τ .1, 100 epochs.
    """
    if small_images(facts):
        values = {"encoder": "resnet18", "lr": 1.0, "temperature": 0.5, "epochs": 1000}
    else:
        values = {"encoder": "resnet50", "lr": 0.6, "temperature": 0.1, "epochs": 100}
    return paper("simclr", facts, **values, optimizer="lars", batch_size=512, weight_decay=1e-4, warmup_epochs=10.0)


@recipe
def supcon_small(facts: Facts) -> Config:
    """SupCon for CPUs: the small settings with τ = .1."""
    return small("supcon", facts, temperature=0.1)


@recipe
def supcon_paper(facts: Facts) -> Config:
    """SupCon (Khosla et al., 2020), the authors' CIFAR setting: SGD lr .5 at batch 1024, τ .1, 1000 epochs, cosine."""
    values = {"encoder": "resnet50", "optimizer": "sgd", "lr": 0.5, "batch_size": 1024, "temperature": 0.1}
    return paper("supcon", facts, **values, epochs=1000, weight_decay=1e-4, warmup_epochs=10.0)


@recipe
def triplet_small(facts: Facts) -> Config:
    """Triplets for CPUs: semi-hard, m = .2, half the learning rate, one linear layer as head."""
    base = small("triplet", facts, head_layers=1)
    return small("triplet", facts, head_layers=1, lr=base.lr / 2)


@recipe
def triplet_paper(facts: Facts) -> Config:
    """Batch-hard triplets as in Hermans et al. (2017): soft margin, Euclidean, ResNet-50, embeddings of 128, Adam 3e-4.

    Their 25,000 updates with 72 images are about 100 epochs here. They draw 18 classes with 4 images each; here images are
    drawn uniformly, and the second view of each is a positive. They use Adam without weight decay, and a learning rate that
    decreases from 60% on.
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


@recipe
def moco_small(facts: Facts) -> Config:
    """MoCo for CPUs: symmetric, a queue of 4096 and momentum .97; for digits 1024 and .99.

    On digits with momentum .95, embeddings collapse to rank 1.1 and recover to 4.6 in 1100 updates, probably because keys
    from such a fast key encoder differ by age; with .99 the rank is 20.7, and 5 labels per class give .958 instead of .920.
    """
    own = {"symmetric": True, "queue_size": 1024 if tiny(facts) else 4096, "momentum": 0.99 if tiny(facts) else 0.97}
    return small("moco", facts, method_options=own)


@recipe
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


@recipe
def instdisc_small(facts: Facts) -> Config:
    """Instance discrimination for CPUs: the full softmax over the bank, as on CIFAR-10; NCE from 200,000 images on.

    After 1250 updates on 16,000 images of CIFAR-10, kNN is .401 with τ = .2 and .375 with the paper's .1, used for digits.
    """
    own = {"full": facts.images < 200_000, "normalizer": "ema"}
    return small("instdisc", facts, temperature=0.1 if tiny(facts) else 0.2, head_layers=1, method_options=own)


@recipe
def instdisc_paper(facts: Facts) -> Config:
    """Instance discrimination (Wu et al., 2018): SGD lr .03, 200 epochs, ×.1 at epochs 120 and 160, one view.

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


@recipe
def byol_small(facts: Facts) -> Config:
    """BYOL for CPUs: momentum from .97 to 1, embeddings of 128; for digits (1100 updates) from .9 and half the learning rate.

    After 1250 updates on 16,000 images of CIFAR-10, kNN is .413 with .97 and .398 with .99 (on 4,000 other training images).
    """
    shared: dict[str, Any] = {"embedding_dim": 128, "head_hidden_dim": 512}
    if tiny(facts):
        return small("byol", facts, **shared, lr=2e-3, method_options={"momentum": 0.9})
    return small("byol", facts, **shared, method_options={"momentum": 0.97})


@recipe
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


@recipe
def simsiam_small(facts: Facts) -> Config:
    """SimSiam for CPUs: a head of two layers, as in the paper for CIFAR-10, 512 wide."""
    return small("simsiam", facts, embedding_dim=512, head_hidden_dim=512, head_layers=2)


@recipe
def simsiam_paper(facts: Facts) -> Config:
    """SimSiam (Chen & He, 2021): SGD, cosine, no warm-up; lr .05·B/256 on ImageNet, .03·B/256 on CIFAR-10.

    ImageNet: ResNet-50, batch 256, weight decay 1e-4, 100 epochs, three layers. CIFAR-10: ResNet-18, batch 512, weight
    decay 5e-4, 800 epochs, two layers. Embeddings of 2048; the predictor has hidden width 512 and a constant learning rate.
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.06, "batch_size": 512, "weight_decay": 5e-4}
        values |= {"epochs": 800, "head_layers": 2}
    else:
        values = {"encoder": "resnet50", "lr": 0.05, "batch_size": 256, "weight_decay": 1e-4}
        values |= {"epochs": 100, "head_layers": 3}
    return paper("simsiam", facts, **values, optimizer="sgd", embedding_dim=2048, head_hidden_dim=2048)


@recipe
def debiased_small(facts: Facts) -> Config:
    """Debiased contrast for CPUs: the paper's τ .5 and τ⁺ .1."""
    return small("debiased", facts, temperature=0.5, method_options={"tau_plus": 0.1})


@recipe
def debiased_paper(facts: Facts) -> Config:
    """Debiased contrast (Chuang et al., 2020): Adam 1e-3, batch 256, weight decay 1e-6, 400 epochs, ResNet-50, τ .5, τ⁺ .1.

    Their Adam adds weight decay to the gradient; here it is decoupled (AdamW). Their learning rate is constant; here it
    follows a cosine.
    """
    return _pairs("debiased", facts, {"tau_plus": 0.1})


@recipe
def hard_small(facts: Facts) -> Config:
    """Hard negatives for CPUs: the paper's τ .5, τ⁺ .1 and β 1."""
    return small("hard", facts, temperature=0.5, method_options={"beta": 1.0, "tau_plus": 0.1})


@recipe
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


@recipe
def dcl_paper(facts: Facts) -> Config:
    """DCL (Yeh et al., 2022): 200 epochs at batch 256, τ .1; the optimizer is SimCLR's, its rate halved with the batch."""
    base = simclr_paper(facts)
    return replace(base, method="dcl", batch_size=256, epochs=200, temperature=0.1, lr=base.lr / 2)


@recipe
def siglip_small(facts: Facts) -> Config:
    """SigLIP for CPUs: the paper's scale 10 and bias −10; AdamW, as they are learned with gradients of another size."""
    return small("siglip", facts, **ADAMW if tiny(facts) else ADAMW | {"lr": 2e-3})


@recipe
def siglip_paper(facts: Facts) -> Config:
    """The loss of SigLIP (Zhai et al., 2023: image–text pairs), scale 10 and bias −10, in the setting of hard negatives."""
    return _pairs("siglip", facts, {"scale": 10.0, "bias": -10.0})


@recipe
def vicreg_small(facts: Facts) -> Config:
    """VICReg for CPUs: three layers as in the paper, of 256 (digits) or 512; AdamW."""
    return _wide(siglip_small(facts), "vicreg", 256 if tiny(facts) else 512, {})


@recipe
def vicreg_paper(facts: Facts) -> Config:
    """VICReg (Bardes et al., 2022), as Barlow Twins, but 100 epochs: λ 25, μ 25, ν 1."""
    return replace(barlow_paper(facts), method="vicreg", epochs=100, method_options={})


@recipe
def barlow_small(facts: Facts) -> Config:
    """Barlow Twins for CPUs: as VICReg; λ .02 for so few dimensions (on digits .005 to .02 do alike, .1 learns nothing)."""
    return replace(vicreg_small(facts), method="barlow", method_options={"weight": 0.02})


@recipe
def barlow_paper(facts: Facts) -> Config:
    """Barlow Twins (Zbontar et al., 2021), ImageNet: LARS, lr .2·B/256, 1000 epochs, three layers of 8192, λ .0051."""
    base = replace(simclr_paper(facts), lr=0.4, weight_decay=1e-6, epochs=1000)
    return _wide(base, "barlow", 8192, {"weight": 0.0051})


def _wide(base: Config, method: str, dim: int, own: dict[str, Any]) -> Config:
    return replace(base, method=method, method_options=own, embedding_dim=dim, head_hidden_dim=dim, head_layers=3)


# The long-tail papers' training on CIFAR-LT: ResNet-32 there, ResNet-18 here; SGD, batch 128.
CIFAR_LT: dict[str, Any] = {"encoder": "resnet18", "optimizer": "sgd", "batch_size": 128, "weight_decay": 5e-4}


@recipe
def softmax_paper(facts: Facts) -> Config:
    """Cross-entropy as in SupCon's comparison on CIFAR (lr .2 at batch 1024 there, .1 at 512 here); ImageNet as usual.

    500 epochs, cosine, 10 of warm-up, weight decay 1e-4; ImageNet: lr .1 at batch 256, ×.1 twice, 90 epochs.
    """
    if small_images(facts):
        values: dict[str, Any] = {"encoder": "resnet18", "lr": 0.1, "batch_size": 512, "epochs": 500}
        values |= {"warmup_epochs": 10.0}
    else:
        values = {"encoder": "resnet50", "lr": 0.1, "batch_size": 256, "epochs": 90}
        values |= {"schedule": "step", "lr_drops": [1 / 3, 2 / 3]}
    return paper("softmax", facts, **values, optimizer="sgd", weight_decay=1e-4)


@recipe
def balanced_softmax_paper(facts: Facts) -> Config:
    """Balanced softmax (Ren et al., 2020): CIFAR-LT at batch 512, lr .1, cosine; ImageNet-LT likewise, lr .2, 90 epochs.

    The paper's 13,000 updates on CIFAR-LT are 600 epochs of its 11,000 images. Its meta sampler is not included.
    """
    if small_images(facts):
        values = CIFAR_LT | {"lr": 0.1, "batch_size": 512, "epochs": 600}
    else:
        values = {"encoder": "resnet50", "optimizer": "sgd", "lr": 0.2, "batch_size": 512, "epochs": 90}
    return paper("balanced_softmax", facts, **values)


@recipe
def arcface_small(facts: Facts) -> Config:
    """ArcFace for CPUs: s = 16, which is enough for few classes, and half the learning rate."""
    lr = small("arcface", facts).lr / 2
    return small("arcface", facts, lr=lr, head_layers=1, method_options={"scale": 16.0})


@recipe
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


@recipe
def paco_small(facts: Facts) -> Config:
    """PaCo for CPUs: α .01 as on CIFAR-LT, τ .2 as on ImageNet-LT, a queue of 1024, momentum .99 for a short training.

    After 20 epochs on digits, the accuracy of the centers is .983 with τ .2 and .916 with CIFAR-LT's τ .05.
    """
    own = {"alpha": 0.01, "queue_size": 256 if tiny(facts) else 1024, "momentum": 0.99}
    return small("paco", facts, method_options=own)


@recipe
def paco_paper(facts: Facts) -> Config:
    """PaCo (Cui et al., 2021): its CIFAR-100-LT setting for small images, else ImageNet-LT.

    400 epochs at batch 128, weight decay 5e-4, 10 epochs of warm-up. CIFAR: lr .05, ×.1 at epochs 320 and 360, α .01, τ .05,
    queue 1024, embeddings of 32. ImageNet-LT: lr .02, cosine, α .05, τ .2, queue 8192, embeddings of 128.
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
