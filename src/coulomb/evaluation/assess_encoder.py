"""Evaluation of published weights as they are: no training, no run."""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.evaluation.assess import data_name, open_labeled
from coulomb.evaluation.contestants import PIXELS, averaged, measure_features, measuring
from coulomb.ground.errors import InputError
from coulomb.ground.progress import progress_bar
from coulomb.ground.randomness import derive_seed
from coulomb.kinds.image import OriginalImage
from coulomb.metrics.evaluate import MEASUREMENTS
from coulomb.metrics.knn import default_neighbors
from coulomb.models import build_encoder
from coulomb.models.features import frozen
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import open_published
from coulomb.tables import Samples
from coulomb.tables.images import images_per_batch
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import measure
from coulomb.training.plan.plan import Part, arrange
from coulomb.training.record.provenance import environment

log = logging.getLogger("coulomb")


def assess_encoder(
    published: str | ImageEncoder,
    data: Any,
    test: Any = None,
    *,
    image_size: int | None = None,
    labels: str | None = None,
    group: str | None = None,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Measures the features of an encoder on labeled images, without training it; writes nothing.

    ``starting_point``, ``random_init`` and ``raw_pixels`` hold the metrics of `evaluate_features`: for the encoder, for its
    architecture with random weights, and for the prepared images themselves, averaged to at most 32×32 pixels and
    normalized per channel by the training images. Each image is read once, at its original resolution, and prepared by the
    encoder's preprocessing, so that the features equal those written by `embed`.

    Args:
        published: the name of an encoder with weights, or what `coulomb.load` returns.
        data: labeled images, as for training.
        test: held-out images of the same classes; default: a stratified fifth of ``data``.
        image_size: for an encoder by name, in pixels; default: what ``train`` chooses for these images and weights, see
            `choose_start`, so that the figures equal the figures of a run's starting point.
        labels: the column of a table that holds the labels.
        group: what must not be on both sides of the split, see `coulomb.tables.groups.find_groups`.
        options: ``knn_k`` (default: 200 from 10,000 training images, else 20), ``knn_sigma``, ``many_above``, ``few_below``.
        progress: show a progress bar on a terminal.

    Returns:
        The three contestants, ``protocol``, and ``failed``, [{``id``, ``reason``}] of images that cannot be read.

    Raises:
        InputError: ``data`` or ``test`` has no labels or cannot be read, or the encoder has no weights.
    """
    size: dict[str, Any] = {"image_size": image_size, "channels": 3, "encoder": published}
    if isinstance(published, ImageEncoder):
        size = {"image_size": published.encoder.image_size, "channels": published.encoder.channels}
    names: dict[str, Any] = {"data": data_name(data), "test": None if test is None else data_name(test)}
    config = Config(**names, **size, labels=labels, group=group, **(options or {}))
    sources = open_labeled(config, data, test)
    facts = measure(config, *sources)
    if isinstance(published, str):
        if image_size is None:
            log.info(
                "%s at %d pixels, which train chooses for these images (median short side %g); --image-size changes that",
                published,
                facts.image_size,
                facts.survey.short_side,
            )
        published = open_published(published, facts.image_size)
    encoder, preprocessing = published.encoder, published.encoder.preprocessing
    assert preprocessing is not None
    prepared = arrange(config, sources, facts)
    untrained = build_encoder(
        published.name,
        channels=encoder.channels,
        image_size=encoder.image_size,
        mean=encoder.normalize.mean.flatten().tolist(),
        std=encoder.normalize.std.flatten().tolist(),
        seed=derive_seed(config.seed, "encoder"),
        weights=False,
    )
    config = dataclasses.replace(config, **{"knn_k": default_neighbors(len(prepared.train.indices))} | (options or {}))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    networks: dict[str, nn.Module] = {"starting_point": encoder.to(device), "random_init": untrained.to(device)}
    failed: list[dict[str, str]] = []
    sides = []
    images = len(prepared.train.indices) + len(prepared.test.indices)
    with progress_bar(images, f"evaluating {published.name}", progress) as advance, frozen(*networks.values()):
        for part in (prepared.train, prepared.test):
            sides.append(_features(part, encoder, networks, device, failed, advance))
    (train, train_y), (test_x, test_y) = sides
    train["raw_pixels"], test_x["raw_pixels"] = standardized(train["raw_pixels"], test_x["raw_pixels"])
    measured = {}
    for name in train:
        with progress_bar(MEASUREMENTS, f"evaluating {name}", progress) as advance:
            doing = measuring(advance, f"evaluating {name}")
            measured[name] = measure_features(
                [train[name], train_y, test_x[name], test_y], prepared, config, doing=doing
            )
    protocol = {
        "name": sources[0].name,
        **names,
        "split": prepared.split,
        "encoder": published.name,
        "seed": config.seed,
        "image_size": encoder.image_size,
        "channels": encoder.channels,
        "preprocessing": preprocessing.describe(),
        "encoders": "frozen; images at their original resolution, prepared as the library of the weights does",
        "raw_pixels": f"the prepared images, averaged to at most {PIXELS}×{PIXELS} pixels, normalized per channel",
        "versions": environment(),
    }
    return measured | {"protocol": protocol, "failed": failed}


def _features(
    part: Part,
    encoder: Any,
    networks: dict[str, nn.Module],
    device: torch.device,
    failed: list[dict[str, str]],
    advance: Callable[[int], None],
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the features of each contestant [n, F], and the labels [n]; adds unreadable images to ``failed``."""
    source = part.images.table
    images = Samples(source, {"image": OriginalImage(encoder.channels, encoder.preprocessing)})
    columns: dict[str, list[Tensor]] = {name: [] for name in (*networks, "raw_pixels")}
    indices: list[Tensor] = []
    for batch in images.batches(part.indices, images_per_batch(encoder.channels, encoder.image_size), cores()):
        advance(len(batch) + len(batch.failed))
        if not len(batch):
            continue
        indices.append(batch.sample)
        prepared = batch.stack.canvas.to(device)
        for name, network in networks.items():
            columns[name].append(network(prepared).float().cpu())
        columns["raw_pixels"].append(averaged(batch.stack.canvas))
    failed += [{"id": source.item_id(index), "reason": reason} for index, reason in sorted(images.failures.items())]
    if not indices:
        index, reason = min(images.failures.items())
        raise InputError(
            f"{source.name!r}: none of {len(part.indices)} images can be read ({source.item_id(index)}: {reason})"
        )
    assert part.labels is not None
    rows = torch.cat(indices).numpy()
    return {name: torch.cat(column) for name, column in columns.items()}, torch.from_numpy(part.labels[rows])


def standardized(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Returns images [n, C, s, s] as rows [n, C·s·s], normalized per channel by the training images."""
    mean, std = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True).clamp_min(1 / 255)
    return ((train - mean) / std).flatten(1), ((test - mean) / std).flatten(1)
