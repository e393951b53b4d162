"""Measurements of a finished run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.metrics.class_accuracy import class_table
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.linear import few_shot, linear_probe
from coulomb.metrics.rank import effective_rank
from coulomb.models import load_encoder
from coulomb.models.classifier import DESCRIPTION, load_classifier
from coulomb.models.features import extract_features, frozen, pixel_features
from coulomb.training.checkpoints import load_method
from coulomb.training.network import make_encoder, make_method
from coulomb.training.order import position_tensor
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Part, Plan, Prepared
from coulomb.training.plan.resolve import reopen
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.journal import read_metrics

SHOTS = (1, 5, 10)
GEOMETRY = ("embedding_rank", "embedding_std", "uniformity", "alignment", "tolerance", "separation")
MAX_IMAGES = 512  # for embeddings of views
Sides = tuple[Tensor, Tensor, Tensor, Tensor]  # training features and labels, test features and labels


def measure(run: RunFolder, plan: Plan, draws: int) -> dict[str, Any]:
    """Returns the results of the trained encoder, ready for JSON.

    Accuracies ``knn``, ``linear``, ``few_1``, ``few_5`` and ``few_10``; ``rank``, the effective rank of the test features;
    ``seconds`` and ``epochs`` of the training; the geometry of the last live evaluation and its ``course`` by epoch;
    ``gradients``, the mean norm per class over the run if there are labels. If the run has its own classifier,
    ``classifier`` is its accuracy and ``classes`` a table of classes.
    """
    config, prepared, views = plan.config, plan.prepared, plan.views
    encoder = load_encoder(run.path)
    sides = _sides(prepared, lambda part: extract_features(encoder, part.images, part.indices, views.plain))
    lines = read_metrics(run.metrics)
    live = [line for line in lines if "embedding_rank" in line]
    results = _accuracies(sides, config, draws)
    results |= {key: live[-1].get(key) if live else None for key in GEOMETRY}
    results["course"] = [{k: line.get(k) for k in ("epoch", "knn", *GEOMETRY)} for line in live]
    results["seconds"] = max((line.get("seconds", 0.0) for line in lines), default=0.0)
    results["epochs"], results["loss"] = config.epochs, next((x["loss"] for x in lines[::-1] if "loss" in x), None)
    results |= {"gradients": _mean_gradients(lines), "class_counts": prepared.class_counts}
    if (run.path / DESCRIPTION).is_file():
        classifier, _ = load_classifier(run.path, encoder.feature_dim)
        with torch.no_grad():
            predicted = classifier(sides[2]).argmax(1)
        results["classifier"] = float((predicted == sides[3])[sides[3] >= 0].double().mean())
        results["classes"] = class_table(sides[1], sides[3], {"classifier": predicted}, prepared.class_names)
    return results


def measure_baselines(run: RunFolder, draws: int) -> dict[str, dict[str, Any]]:
    """Returns the same results for the untrained network and for raw pixels, with the data and encoder of a run."""
    plan = reopen(run, progress=False)
    config, prepared, views = plan.config, plan.prepared, plan.views
    encoder = make_encoder(config, prepared, None)
    normalize = encoder.normalize

    def pixels(part: Part) -> tuple[Tensor, np.ndarray]:
        return pixel_features(part.images, part.indices, lambda stack: normalize(views.plain(stack)))

    untrained = _sides(prepared, lambda part: extract_features(encoder, part.images, part.indices, views.plain))
    raw = _sides(prepared, pixels)
    return {"untrained": _accuracies(untrained, config, draws), "raw_pixels": _accuracies(raw, config, draws)}


def _accuracies(sides: Sides, config: Config, draws: int) -> dict[str, Any]:
    labeled = int((sides[1] >= 0).sum())
    few = few_shot(*sides, shots=SHOTS, draws=draws, seed=config.seed)["shots"]
    return {
        "knn": knn_accuracy(*sides, k=min(config.knn_k, labeled), sigma=config.knn_sigma),
        "linear": linear_probe(*sides, seed=config.seed)["accuracy"],
        **{f"few_{shots}": few[str(shots)]["mean"] for shots in SHOTS},
        "rank": effective_rank(sides[2]),
    }


def _mean_gradients(lines: list[dict[str, Any]]) -> list[float | None] | None:
    """The mean gradient norm per class over all views of the run; None if it was not recorded."""
    recorded = [line for line in lines if "class_gradient_norm" in line]
    if not recorded:
        return None
    views = np.array([line["class_gradient_views"] for line in recorded], dtype=float)
    norms = np.array([[norm or 0.0 for norm in line["class_gradient_norm"]] for line in recorded])
    total = views.sum(0)
    return [float(s / n) if n else None for s, n in zip((views * norms).sum(0), total, strict=True)]


def _sides(prepared: Prepared, extract: Callable[[Part], tuple[Tensor, np.ndarray]]) -> Sides:
    tensors: list[Tensor] = []
    for part, name in ((prepared.train, "training"), (prepared.test, "test")):
        if part.labels is None or not (part.labels[part.indices] >= 0).any():
            raise InputError(f"data: no labels among the {name} images; experiments need labels to measure accuracies")
        features, kept = extract(part)
        tensors += [features, torch.from_numpy(part.labels[kept])]
    return tensors[0], tensors[1], tensors[2], tensors[3]


@dataclass(frozen=True)
class Trained:
    """The method of a finished run and embeddings of its images.

    Attributes:
        method: the trained module with its buffers (memory bank, queue).
        first, second: embeddings of two views of n images, float64 [n, D], unit length.
        labels: [n], −1 if unknown; None without labels.
        slots: [n], positions among the training images; −1 for held-out images.
        temperature: τ of the run.
    """

    method: nn.Module
    first: Tensor
    second: Tensor
    labels: Tensor | None
    slots: Tensor
    temperature: float


def load_trained(run: RunFolder, plan: Plan, most: int = MAX_IMAGES, *, training: bool = False) -> Trained:
    """Loads the method from the checkpoint and embeds two views of at most ``most`` held-out (or training) images."""
    config, prepared, learned = plan.config, plan.prepared, plan.learned
    method: Any = make_method(config, prepared, plan.method, load_encoder(run.path), len(learned))
    load_method(method, run.checkpoint)
    part = prepared.train if training or not len(prepared.test.indices) else prepared.test
    pairs, indices = [], []
    with frozen(method), torch.no_grad():
        for number, batch in enumerate(part.images.batches(part.sample(most, config.seed, "pairs").indices, 256)):
            drawn = plan.views(batch.stack, generator(config.seed, "lab views", number), n=2)
            pairs.append(torch.stack([normalize(method.tower(view).double(), dim=1) for view in drawn]))
            indices.append(batch.sample)
    first, second = torch.cat(pairs, dim=1)
    index = torch.cat(indices)
    labels = None if part.labels is None else torch.from_numpy(part.labels)[index]
    slots = position_tensor(learned)[index] if part is prepared.train else torch.full_like(index, -1)
    return Trained(method, first, second, labels, slots, config.temperature)


def query_gradient(loss: Callable[[Tensor], Tensor], queries: Tensor) -> Tensor:
    """Returns the gradient of a loss with respect to its queries, flattened."""
    leaf = queries.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    return gradient.flatten()
