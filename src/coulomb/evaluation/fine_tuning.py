"""Fine-tuning of an encoder with few, some or all labels."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.ground.randomness import derive_seed, generator, numpy_generator
from coulomb.kinds.image.views import ViewMaker, Views
from coulomb.models.features import Batches, Plain, frozen
from coulomb.tables import stratified_split

FRACTIONS = (0.01, 0.1, 1.0)
GRID = (3e-4, 1e-3, 3e-3)  # peak learning rates
DEFAULT_LR = 1e-3  # if too few labels can be held out to choose one
HELD_OUT, LEAST_HELD_OUT = 0.2, 20
EPOCHS, LEAST_UPDATES, MOST_UPDATES = 30, 200, 2_000
TRIAL = 0.25  # length of the runs that choose the learning rate
BATCH = 128
WEIGHT_DECAY = 1e-4
WARMUP = 0.1  # of the updates
CLIP = 1.0  # norm of the gradient
LEAST_AREA = 0.5  # of a crop; a smaller part of an image often lacks the labeled object

View = Callable[[Any, torch.Generator], Tensor]


class LabeledImages(NamedTuple):
    """``images``, their indices [n] in use, ``positions``, and the classes [n] of these, −1 = unknown.

    >>> from coulomb.tables import image_samples, open_source
    >>> images = image_samples(open_source(np.zeros((4, 8, 8), np.uint8)), size=8, channels=1)
    >>> LabeledImages(images, positions=np.arange(4), labels=np.array([0, 1, 0, -1])).labels
    array([ 0,  1,  0, -1])
    """

    images: Batches
    positions: np.ndarray
    labels: np.ndarray

    def known(self) -> "LabeledImages":
        """Returns the images with a label."""
        return LabeledImages(self.images, self.positions[self.labels >= 0], self.labels[self.labels >= 0])


def fine_tune(
    encoder: nn.Module,
    feature_dim: int,
    train: LabeledImages,
    test: LabeledImages,
    views: ViewMaker,
    *,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    device: str | torch.device = "cpu",
    bf16: bool = False,
    workers: int = 0,
    say: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Test accuracy after training a COPY of the whole encoder with a new linear layer, for several fractions of the labels.

    AdamW (weight decay 1e-4, gradient norm clipped at 1) on cross-entropy, batches of 128, warm-up and cosine decay, 30
    epochs but between 200 and 2,000 updates. The peak learning rate is chosen from 3e-4, 1e-3, 3e-3 by the accuracy on a
    held-out fifth of the labeled fraction, never on test images or further labels, in runs of a quarter of the length
    (of equal accuracies, the smaller rate); then the network is trained again on the whole fraction. If a fifth is
    fewer than 20 images, the rate is 1e-3.

    Args:
        encoder: images [B,C,S,S] in [0,1] → features [B, ``feature_dim``]; it is not changed.
        feature_dim: width of the features.
        train, test: labeled images.
        views: the views of the run, see `geometric_view`; test images use ``views.plain``.
        fractions: fractions of the labels, stratified and nested (`label_fraction`).
        seed: seed of all draws.
        device: where to train.
        bf16: use bfloat16 autocast.
        workers: processes that decode.
        say: called with a sentence before each fraction.

    Returns:
        ``{"fractions": {"0.01": {"accuracy", "labels", "lr", "updates", ...}, ...}, "protocol": {...}}``.

    Raises:
        InputError: fewer than two classes, no labels, a fraction out of range.

    >>> from coulomb.kinds.image.views import make_views
    >>> from coulomb.models import build_encoder
    >>> from coulomb.tables import image_samples, open_source
    >>> pixels = np.arange(20, dtype=np.uint8)[:, None, None] % 2 * 200 + np.zeros((20, 8, 8), np.uint8)
    >>> images = image_samples(open_source(pixels), size=8, channels=1)
    >>> labeled = LabeledImages(images, np.arange(20), np.arange(20) % 2)
    >>> encoder = build_encoder("convnet", channels=1, image_size=8, width=4, stages=1)
    >>> views = make_views("natural", size=8, channels=1)
    >>> fine_tune(encoder, encoder.feature_dim, labeled, labeled, views, fractions=(1.0,))["fractions"]["1"]["labels"]
    20
    """
    train, test = train.known(), test.known()
    classes = np.unique(train.labels)
    if len(classes) < 2 or not len(test.labels):
        raise InputError(
            f"train, test: fine-tuning needs two classes to train on ({len(classes)}) and labeled test images."
        )
    view, view_text = geometric_view(views)
    device = torch.device(device)

    def train_on(rows: np.ndarray, lr: float, updates: int) -> Tuned:
        net = Tuned(encoder, feature_dim, len(classes))
        targets = np.searchsorted(classes, train.labels[rows])
        settings: dict[str, Any] = {"lr": lr, "updates": updates, "seed": seed, "bf16": bf16, "workers": workers}
        tune(net, train.images, train.positions[rows], targets, view, device=device, **settings)
        return net

    def accuracy(net: Tuned, part: LabeledImages) -> float:
        guess, positions = predict(net, part.images, part.positions, views.plain, device, workers)
        label = dict(zip(part.positions.tolist(), part.labels.tolist(), strict=True))
        return float(np.mean(classes[guess.numpy()] == np.array([label[position] for position in positions.tolist()])))

    def try_rates(rows: np.ndarray, updates: int) -> dict[float, float]:
        if round(len(rows) * HELD_OUT) < LEAST_HELD_OUT:
            return {}
        rest, held_out = stratified_split(train.labels[rows], HELD_OUT, seed)
        validation = LabeledImages(train.images, train.positions[rows[held_out]], train.labels[rows[held_out]])
        accuracies = {}
        for lr in GRID:
            try:
                accuracies[lr] = accuracy(train_on(rows[rest], lr, max(1, round(TRIAL * updates))), validation)
            except NonFiniteError:
                accuracies[lr] = 0.0
        return accuracies

    result: dict[str, Any] = {}
    for fraction in fractions:
        rows = label_fraction(train.labels, fraction, seed)
        updates = min(max(round(EPOCHS * len(rows) / BATCH), LEAST_UPDATES), MOST_UPDATES)
        if say is not None:
            say(f"fine-tuning with {fraction:.3g} of the labels: {len(rows)} images, {updates} updates")
        grid = try_rates(rows, updates)
        lr = max(grid, key=lambda lr: (grid[lr], -lr)) if grid else DEFAULT_LR
        result[f"{fraction:g}"] = {
            "accuracy": accuracy(train_on(rows, lr, updates), test),
            "labels": len(rows),
            "updates": updates,
            "lr": lr,
            "lr_accuracies": {f"{rate:g}": round(value, 4) for rate, value in grid.items()},
        }
    return {
        "fractions": result,
        "protocol": {
            "trained": "a copy of the whole encoder and a new linear layer",
            "optimizer": f"AdamW, weight decay {WEIGHT_DECAY:g}, gradient norm at most {CLIP:g}",
            "batch": BATCH,
            "schedule": f"warm-up over {WARMUP:.0%} of the updates, then cosine",
            "lr_chosen_on": f"{HELD_OUT:.0%} of the labels, never on test images, in runs of {TRIAL:.0%} of the length; "
            f"{DEFAULT_LR:g} if that is fewer than {LEAST_HELD_OUT} images",
            "views": view_text,
            "arithmetic": "bf16" if bf16 else "32",
            "train": len(train.labels),
            "test": len(test.labels),
            "classes": len(classes),
            "seed": seed,
        },
    }


class Tuned(nn.Module):
    """A copy of an encoder and a linear layer on its features, initialized with zeros."""

    def __init__(self, encoder: nn.Module, feature_dim: int, classes: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).requires_grad_(True).train()
        self.linear = nn.utils.skip_init(nn.Linear, feature_dim, classes)  # does not advance the global generator
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, C] of images [B, C, S, S] in [0, 1]."""
        logits: Tensor = self.linear(self.encoder(images))
        return logits


def tune(
    net: Tuned,
    images: Batches,
    positions: np.ndarray,
    targets: np.ndarray,
    view: View,
    *,
    lr: float,
    updates: int,
    seed: int,
    device: torch.device,
    bf16: bool = False,
    workers: int = 0,
) -> None:
    """Trains ``net`` in place: AdamW on cross-entropy, batches of 128 (or all images), warm-up, then cosine decay.

    Args:
        net: the network.
        images: the images.
        positions: indices [n] of the labeled images.
        targets: their class numbers [n], 0…C−1.
        view: the random view that the network sees.
        lr: peak learning rate.
        updates: number of updates.
        seed: seed of order, views and dropout.
        device: where to train.
        bf16: use bfloat16 autocast.
        workers: processes that decode.

    Raises:
        NonFiniteError: the loss became NaN or infinite.
    """
    target_of = torch.full((int(positions.max()) + 1,), -1)
    target_of[torch.from_numpy(positions)] = torch.from_numpy(targets)
    batch_size = min(BATCH, len(positions))
    net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}], lr=lr
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, updates))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(seed, "fine-tune dropout"))
        batches = images.batches(epoch_order(positions, updates * batch_size, seed), batch_size, workers)
        for update, batch in enumerate(batches):
            if len(batch) < 2:
                continue  # BatchNorm needs two; unreadable images are counted where they are decoded
            seen = view(batch.stack, generator(seed, "fine-tune views", update))
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                logits = net(seen.to(device))
            loss = functional.cross_entropy(logits.float(), target_of[batch.sample].to(device))
            if not bool(torch.isfinite(loss)):
                raise NonFiniteError(f"fine-tuning: the loss became {loss.item()} at update {update + 1}, lr {lr:g}")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            schedule.step()


def predict(
    net: Tuned, images: Batches, positions: np.ndarray, plain: Plain, device: torch.device, workers: int = 0
) -> tuple[Tensor, np.ndarray]:
    """Returns the predicted class numbers [n] of the plain views and the indices [n] of the readable images."""
    guesses, readable = [torch.empty(0, dtype=torch.long)], [np.empty(0, dtype=np.int64)]
    with frozen(net):
        for batch in images.batches(positions, 512, workers):
            if len(batch):
                logits = net(plain(batch.stack.to(device)))
                guesses.append(logits.argmax(1).cpu())
                readable.append(batch.sample.numpy())
    return torch.cat(guesses), np.concatenate(readable)


def epoch_order(positions: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns the first ``count`` positions of consecutive seeded permutations."""
    epochs = math.ceil(count / len(positions))
    orders = [numpy_generator(seed, "fine-tune order", epoch).permutation(positions) for epoch in range(epochs)]
    return np.concatenate(orders)[:count]


def lr_factor(step: int, updates: int) -> float:
    """Returns the fraction of the peak learning rate: linear warm-up over the first tenth, then cosine decay to 0."""
    warmup = max(1, round(WARMUP * updates))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, updates - warmup))))


def geometric_view(views: ViewMaker) -> tuple[View, str]:
    """Returns the view for fine-tuning, (stack, generator) → [B,C,S,S] in [0,1], and its description.

    Of `Views` only the geometry is used (crops of at least half the area, flips, small affine and elastic distortions),
    nothing that changes light or color. A user's views may change anything, so the plain view replaces them.
    """
    if not isinstance(views, Views):
        return lambda stack, generator: views.plain(stack), "the plain view"
    spec = views.spec
    low, high = spec.crop_area
    area = (max(low, min(LEAST_AREA, high)), high)
    geometry = replace(spec, crop_area=area, jitter=0, gray=0, blur=0, solarize=0, noise=0, cutout=0)
    made = Views(geometry, views.size, views.channels)
    return (
        lambda stack, generator: made(stack, generator, n=1)[0],
        f"geometry of the training's views, crops of {area[0]:g} to {area[1]:g} of the area",
    )


def label_fraction(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Returns the sorted rows of a stratified fraction of the labeled images, at least one per class.

    Fractions are nested: each is the beginning of one seeded order of the images of a class.

    Args:
        labels: classes [n]; −1 is never drawn.
        fraction: above 0, at most 1.
        seed: seed of the order.

    Raises:
        InputError: ``fraction`` out of range, or no labels.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction={fraction!r} of the labels must be above 0 and at most 1.")
    classes = np.unique(labels[labels >= 0])
    if not len(classes):
        raise InputError("labels: no label other than −1; fine-tuning needs labels.")
    draw = numpy_generator(seed, "label share")
    orders = [draw.permutation(np.flatnonzero(labels == label)) for label in classes]
    return np.sort(np.concatenate([order[: max(1, round(fraction * len(order)))] for order in orders]))
