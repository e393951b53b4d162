"""Fine-tuning an encoder with few, some or all labels."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.data import stratified_split
from coulomb.data.views import ViewMaker, Views
from coulomb.errors import InputError, NonFiniteError
from coulomb.metrics.features import Batches, Plain, frozen
from coulomb.randomness import derive_seed, generator, numpy_generator

FRACTIONS = (0.01, 0.1, 1.0)
GRID = (3e-4, 1e-3, 3e-3)  # peak learning rates
USUAL = 1e-3  # where too few labels can be held out to choose one
HELD_OUT, LEAST_HELD_OUT = 0.2, 20
EPOCHS, LEAST_UPDATES, MOST_UPDATES = 30, 200, 2_000
TRIAL = 0.25  # length of the trainings that choose the learning rate
GentleView = Callable[[Tensor, torch.Generator, Tensor | None], Tensor]


class LabelledImages(NamedTuple):
    """``images``, the positions [n] that count, and their classes [n], −1 = unknown."""

    images: Batches
    positions: np.ndarray
    labels: np.ndarray

    def known(self) -> "LabelledImages":
        """Those with a label."""
        return LabelledImages(self.images, self.positions[self.labels >= 0], self.labels[self.labels >= 0])


def fine_tune(
    encoder: nn.Module,
    feature_dim: int,
    train: LabelledImages,
    test: LabelledImages,
    views: ViewMaker,
    *,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    device: str | torch.device = "cpu",
    bf16: bool = False,
    workers: int = 0,
    say: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Test accuracy after training a COPY of the whole encoder with a new linear layer, for each share of the labels.

    AdamW (weight decay 1e-4, gradient norm at most 1) on cross-entropy, batches of 128, warm-up and cosine, 30 epochs but
    from 200 to 2,000 updates. The peak learning rate is chosen from 3e-4, 1e-3, 3e-3 by accuracy on a held-out fifth of the
    share itself, never on test images and never with labels beyond the share, in trainings of a quarter of the length
    (the smaller rate when equal); then the network is trained anew on all of the share. Where a fifth is fewer than 20
    images, the rate is 1e-3.

    Args:
        encoder: images [B,C,S,S] in [0,1] → features [B, ``feature_dim``]; it is left as it is.
        train, test: labelled images.
        views: the views of the run, see `gentle`; the test sees ``views.plain``.
        fractions: shares of the labels, stratified and nested (`label_share`).
        seed: of every draw. device, bf16: where and in which arithmetic to train. workers: processes that decode.
        say: called with a sentence before each training.

    Returns:
        ``{"fractions": {"0.01": {"accuracy", "labels", "lr", "updates", ...}, ...}, "protocol": {...}}``.

    Raises:
        InputError: fewer than two classes, no labels, a fraction out of range.
    """
    train, test = train.known(), test.known()
    classes = np.unique(train.labels)
    if len(classes) < 2 or not len(test.labels):
        raise InputError(f"fine-tuning needs two classes to train on ({len(classes)}) and labelled test images.")
    view, words = gentle_view(views)
    place = torch.device(device)

    def trained(rows: np.ndarray, lr: float, updates: int) -> Tuned:
        net = Tuned(encoder, feature_dim, len(classes))
        targets = np.searchsorted(classes, train.labels[rows])
        settings: dict[str, Any] = {"lr": lr, "updates": updates, "seed": seed, "bf16": bf16, "workers": workers}
        tune(net, train.images, train.positions[rows], targets, view, device=place, **settings)
        return net

    def accuracy(net: Tuned, part: LabelledImages) -> float:
        guess, kept = predict(net, part.images, part.positions, views.plain, place, workers)
        label_of = dict(zip(part.positions.tolist(), part.labels.tolist(), strict=True))
        return float(np.mean(classes[guess.numpy()] == np.array([label_of[position] for position in kept.tolist()])))

    def tried(rows: np.ndarray, updates: int) -> dict[float, float]:
        if round(len(rows) * HELD_OUT) < LEAST_HELD_OUT:
            return {}
        rest, held_out = stratified_split(train.labels[rows], HELD_OUT, seed)
        judged = LabelledImages(train.images, train.positions[rows[held_out]], train.labels[rows[held_out]])
        found = {}
        for lr in GRID:
            try:
                found[lr] = accuracy(trained(rows[rest], lr, max(1, round(TRIAL * updates))), judged)
            except NonFiniteError:
                found[lr] = 0.0
        return found

    result: dict[str, Any] = {}
    for fraction in fractions:
        rows = label_share(train.labels, fraction, seed)
        updates = min(max(round(EPOCHS * len(rows) / BATCH), LEAST_UPDATES), MOST_UPDATES)
        if say is not None:
            say(f"fine-tuning with {fraction:.3g} of the labels: {len(rows)} images, {updates} updates")
        grid = tried(rows, updates)
        lr = max(grid, key=lambda lr: (grid[lr], -lr)) if grid else USUAL
        result[f"{fraction:g}"] = {
            "accuracy": accuracy(trained(rows, lr, updates), test),
            "labels": len(rows),
            "updates": updates,
            "lr": lr,
            "lr_accuracies": {f"{rate:g}": round(found, 4) for rate, found in grid.items()},
        }
    return {
        "fractions": result,
        "protocol": {
            "trained": "a copy of the whole encoder and a new linear layer",
            "optimizer": f"AdamW, weight decay {WEIGHT_DECAY:g}, gradient norm at most {CLIP:g}",
            "batch": BATCH,
            "schedule": f"warm-up over {WARMUP:.0%} of the updates, then cosine",
            "lr_chosen_on": f"{HELD_OUT:.0%} of the share, never on test images, in trainings of {TRIAL:.0%} of the length; "
            f"{USUAL:g} where that is fewer than {LEAST_HELD_OUT} images",
            "views": words,
            "arithmetic": "bf16" if bf16 else "32",
            "train": len(train.labels),
            "test": len(test.labels),
            "classes": len(classes),
            "seed": seed,
        },
    }


BATCH = 128
WEIGHT_DECAY = 1e-4
WARMUP = 0.1  # of the updates
CLIP = 1.0  # norm of the gradient


class Tuned(nn.Module):
    """A copy of an encoder and a linear layer on its features, which starts at zero."""

    def __init__(self, encoder: nn.Module, feature_dim: int, classes: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).requires_grad_(True).train()
        self.linear = nn.utils.skip_init(nn.Linear, feature_dim, classes)  # the global generator is not moved
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
    view: GentleView,
    *,
    lr: float,
    updates: int,
    seed: int,
    device: torch.device,
    bf16: bool = False,
    workers: int = 0,
) -> None:
    """Train ``net`` in place: AdamW on cross-entropy, batches of 128 (all of them, if fewer), warm-up, then cosine.

    Args:
        images: where the pictures are. positions: [n] of the labelled images; targets: their class numbers [n], 0…C−1.
        view: what the network sees of them. lr: peak learning rate. updates: how many. seed: of order, views and dropout.
        device: where to train. bf16: the network's arithmetic. workers: processes that decode.

    Raises:
        NonFiniteError: the loss became NaN or infinite.
    """
    target_of = torch.full((int(positions.max()) + 1,), -1)
    target_of[torch.from_numpy(positions)] = torch.from_numpy(targets)
    batch = min(BATCH, len(positions))
    net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}], lr=lr
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, updates))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(seed, "fine-tune dropout"))
        read = images.batches(stream(positions, updates * batch, seed), batch, workers)
        for update, found in enumerate(read):
            if len(found["index"]) < 2:
                continue  # BatchNorm needs two; unreadable images are counted where they are read
            seen = view(found["image"], generator(seed, "fine-tune views", update), found["aspect"])
            seen = seen.to(device, memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                logits = net(seen)
            loss = functional.cross_entropy(logits.float(), target_of[found["index"]].to(device))
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
    """Predicted class numbers [n] of the plain views, and the positions [n] that could be read."""
    guesses, kept = [torch.empty(0, dtype=torch.long)], [np.empty(0, dtype=np.int64)]
    with frozen(net):
        for found in images.batches(positions, 512, workers):
            if len(found["index"]):
                logits = net(plain(found["image"].to(device), found["aspect"].to(device)))
                guesses.append(logits.argmax(1).cpu())
                kept.append(found["index"].numpy())
    return torch.cat(guesses), np.concatenate(kept)


def stream(positions: np.ndarray, count: int, seed: int) -> np.ndarray:
    """``count`` positions: one seeded permutation of all after the other."""
    epochs = math.ceil(count / len(positions))
    orders = [numpy_generator(seed, "fine-tune order", epoch).permutation(positions) for epoch in range(epochs)]
    return np.concatenate(orders)[:count]


def rate(step: int, updates: int) -> float:
    """Share of the peak learning rate: a linear warm-up over the first tenth, then half a cosine to 0."""
    warmup = max(1, round(WARMUP * updates))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, updates - warmup))))


LEAST_AREA = 0.5  # of a crop; labels, unlike instances, are often wrong for less


def gentle_view(views: ViewMaker) -> tuple[GentleView, str]:
    """(canvas [B,C,H,W], generator, aspect [B]) → one view [B,C,S,S] in [0,1], and what it is in words.

    Of `Views` the geometry is kept (crops of at least half the area, flips, small affine maps and warps); views of the
    user's own may do anything, so the plain view stands in for them.
    """
    if not isinstance(views, Views):
        return lambda canvas, generator, aspect: views.plain(canvas, aspect), "the plain view"
    spec = views.spec
    low, high = spec.crop_area
    area = (max(low, min(LEAST_AREA, high)), high)
    mild = replace(spec, crop_area=area, jitter=0, grey=0, blur=0, solarise=0, noise=0, cutout=0)
    made = Views(mild, views.size, views.channels)
    return (
        lambda canvas, generator, aspect: made(canvas, generator, n=1, aspect=aspect)[0],
        f"geometry of the training's views, crops of {area[0]:g} to {area[1]:g} of the area",
    )


def label_share(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Rows of a stratified share of the labelled images, sorted: of each class ``fraction`` rounded, at least one image.

    Shares are nested: each class's images come in one seeded order, of which a share is the beginning.

    Args:
        labels: classes [n]; −1 is never drawn. fraction: above 0, at most 1. seed: of the order.

    Raises:
        InputError: ``fraction`` out of range, or no label.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction={fraction!r} of the labels must be above 0 and at most 1.")
    classes = np.unique(labels[labels >= 0])
    if not len(classes):
        raise InputError("there is no label other than −1: nothing to fine-tune by.")
    draw = numpy_generator(seed, "label share")
    orders = [draw.permutation(np.flatnonzero(labels == label)) for label in classes]
    return np.sort(np.concatenate([order[: max(1, round(fraction * len(order)))] for order in orders]))
