"""Fine-tuning: what an encoder is worth as the beginning of a supervised training with few, some or all labels."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from coulomb.data import stratified_split
from coulomb.data.views import ViewMaker
from coulomb.errors import InputError, NonFiniteError
from coulomb.evaluation import tuning
from coulomb.evaluation.features import Batches
from coulomb.evaluation.gentle import gentle
from coulomb.evaluation.label_share import label_share
from coulomb.evaluation.tuning import Tuned, predict, tune

FRACTIONS = (0.01, 0.1, 1.0)
GRID = (3e-4, 1e-3, 3e-3)  # peak learning rates
USUAL = 1e-3  # where too few labels can be held out to choose one
HELD_OUT, LEAST_HELD_OUT = 0.2, 20
EPOCHS, LEAST_UPDATES, MOST_UPDATES = 30, 200, 2_000
TRIAL = 0.25  # length of the trainings that choose the learning rate


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
    view, words = gentle(views)
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
        updates = min(max(round(EPOCHS * len(rows) / tuning.BATCH), LEAST_UPDATES), MOST_UPDATES)
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
            "optimizer": f"AdamW, weight decay {tuning.WEIGHT_DECAY:g}, gradient norm at most {tuning.CLIP:g}",
            "batch": tuning.BATCH,
            "schedule": f"warm-up over {tuning.WARMUP:.0%} of the updates, then cosine",
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
