"""Evaluation of a run, on its own data or on other data, compared with the untrained encoder and raw pixels."""

import dataclasses
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.errors import InputError
from coulomb.evaluation.contestants import RETRIEVAL, compared_with_baselines, contestants
from coulomb.evaluation.verdict import verdict
from coulomb.models.classifier import DESCRIPTION, Classifier, load_classifier
from coulomb.models.saving import read_description, write_atomically
from coulomb.runs.config import load_config
from coulomb.runs.folder import RunFolder, safe_name, write_json
from coulomb.runs.journal import read_metrics
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Part, Prepared, measure, open_data, prepare
from coulomb.runs.provenance import environment
from coulomb.training.launch import reopen

log = logging.getLogger("coulomb")

PIXELS = "the evaluation view, normalised per channel by the training images as the encoder's input is"


def assess(
    folder: RunFolder,
    prepared: Prepared | None = None,
    objects: Objects | None = None,
    *,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate a run, write ``evaluation.json`` and ``samples.npz``, and return the former.

    For each of ``trained``, ``random_init`` and ``raw_pixels`` the figures of `evaluate_features`; without labels these are
    None and ``view_retrieval`` says how often the two views of an image find each other. ``comparison`` holds the paired
    differences from both baselines (`coulomb.evaluation.compare`), ``verdict`` what they amount to
    (`coulomb.evaluation.verdict`).

    Args:
        folder: the run.
        prepared: the run's data, when at hand; else opened and decoded again as ``config.yaml`` says.
        objects: what the run was handed over in Python (data, encoder, views), if anything.
        full: fine-tune both encoders too, with 1%, 10% and all of the labels (``fine_tune``); this may take longer than the
            training did.
        options: ``knn_k``, ``knn_sigma``, ``many_above``, ``few_below`` other than in ``config.yaml``.
        progress: show what goes on.
    """
    objects = objects or Objects()
    config = load_config(folder.config)
    if prepared is None:
        config, prepared = reopen(folder, objects, progress=progress)
    config = dataclasses.replace(config, **(options or {}))
    views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
    compared = contestants(config, folder, prepared, views, objects.encoder, classifier_of(folder))
    result: dict[str, Any] = {}
    for name, contestant in compared.items():
        log.info("evaluating %s", name)
        result[name] = contestant.measured(prepared, config, config.seed, f"evaluating {name}", progress)
        if full and contestant.pixels is None:
            tuned = contestant.fine_tuned(prepared, config, config.seed)
            result[name]["fine_tune"] = tuned["fractions"]
            result[name]["protocol"]["fine_tune"] = tuned["protocol"]
    metrics = read_metrics(folder.metrics)
    updates = max((int(line["step"]) for line in metrics if "loss" in line), default=0)
    result["comparison"] = compared_with_baselines(compared, config.seed)
    result["verdict"] = verdict(result["comparison"], dataclasses.asdict(config), updates)
    result["protocol"] = {
        "split": prepared.split,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "epochs": config.epochs,
        "seed": config.seed,
        "data": config.data,
        "image_size": prepared.facts.image_size,
        "raw_pixels": PIXELS,
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views",
        "versions": environment(),
    }
    write_json(folder.evaluation, result)
    save_samples(folder.samples, compared["trained"].features, prepared, views, config.seed)
    return result


def classifier_of(folder: RunFolder) -> Classifier | None:
    """The classifier that the run trained, if any."""
    if not (folder.path / DESCRIPTION).is_file():
        return None
    features = read_description(folder.path / "encoder.json")["feature_dim"]
    return load_classifier(folder.path, features)[0]


log = logging.getLogger("coulomb")


def transfer(
    folder: RunFolder,
    data: Any,
    test: Any = None,
    objects: Objects | None = None,
    *,
    labels: str | None = None,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate the run's frozen encoder on ``data``; write ``transfer/NAME.json`` into the run folder and return it.

    The images are resized to what the encoder saw and converted to its channels. All figures are those of `assess`, beside
    the untrained encoder and the raw pixels of the same images.

    Args:
        folder: the run.
        data: labelled images: a name as for training, an array, a torch ``Dataset``.
        test: held-out images of the same classes; without it a stratified fifth is held out.
        objects: what the run was handed over in Python (encoder, views), if anything.
        labels: column of a table that holds the labels.
        full: fine-tune both encoders on it too.
        options: ``knn_k`` (default 200 from 10,000 images on, else 20), ``knn_sigma``, ``many_above``, ``few_below``.
        progress: show what goes on.

    Raises:
        InputError: ``data`` or ``test`` has no labels, or cannot be read.
    """
    objects = objects or Objects()
    own = load_config(folder.config)
    named: dict[str, Any] = {"data": _name(data), "test": None if test is None else _name(test)}
    other: dict[str, Any] = {
        "labels": labels,
        "root": None,
        "test_fraction": 0.2,
        "long_tail": None,
        "sampler": "uniform",
    }
    config = dataclasses.replace(own, **named, **other)
    sources = open_data(config, *(None if isinstance(each, str | Path) else each for each in (data, test)))
    for name, source in zip(("data", "test"), sources, strict=True):
        if source is not None and source.labels is None:
            raise InputError(
                f"{name}={named[name]!r}: has no labels: nothing to measure by; name their column as labels"
            )
    prepared = prepare(config, sources, measure(config, *sources), progress=progress)
    k = 200 if len(prepared.train.indices) >= 10_000 else 20
    config = dataclasses.replace(config, **{"knn_k": k} | (options or {}))
    views = objects.views_of(own, prepared.facts.image_size, prepared.facts.channels)
    result: dict[str, Any] = {}
    compared = contestants(config, folder, prepared, views, objects.encoder)
    for name, contestant in compared.items():
        log.info("evaluating %s on %s", name, sources[0].name)
        result[name] = contestant.measured(prepared, config, config.seed, f"evaluating {name}", progress)
        if full and contestant.pixels is None:
            tuned = contestant.fine_tuned(prepared, config, config.seed)
            result[name]["fine_tune"] = tuned["fractions"]
            result[name]["protocol"]["fine_tune"] = tuned["protocol"]
    result["comparison"] = compared_with_baselines(compared, config.seed)
    result["protocol"] = {
        "name": sources[0].name,
        "data": named["data"],
        "test": named["test"],
        "split": prepared.split,
        "trained_on": own.data,
        "seed": config.seed,
        "image_size": prepared.facts.image_size,
        "channels": prepared.facts.channels,
        "encoders": "frozen; they normalise by the images they were trained on",
        "raw_pixels": "the evaluation view, normalised per channel by the training images of this data",
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views of the run",
        "versions": environment(),
    }
    folder.transfer.mkdir(exist_ok=True)
    write_json(folder.transfer / f"{safe_name(sources[0].name)}.json", result)
    return result


def _name(data: Any) -> str:
    return str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"


SAMPLES = 1_500  # held-out images shown in the report
TRAINING = 500  # training images beside them on its map


def save_samples(
    path: Path, extract: Callable[[Part], tuple[Tensor, np.ndarray]], prepared: Prepared, views: ViewMaker, seed: int
) -> None:
    """Write thumbnails, features, labels and ids of held-out images, drawn by ``seed``; and of training images, under names
    that begin with ``training_``."""
    kept = _columns(prepared.unseen.sample(SAMPLES, seed, "samples"), extract, views)
    if prepared.unseen is not prepared.train:
        seen = _columns(prepared.train.sample(TRAINING, seed, "training samples"), extract, views)
        kept |= {f"training_{name}": column for name, column in seen.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **kept)  # type: ignore[arg-type]  # its stubs take any name for an option of its own
    write_atomically(path, buffer.getvalue())


def _columns(
    part: Part, extract: Callable[[Part], tuple[Tensor, np.ndarray]], views: ViewMaker
) -> dict[str, np.ndarray]:
    features, kept = extract(part)
    thumbnails = [thumbnail(views.plain(batch["image"], batch["aspect"])) for batch in part.images.batches(kept, 256)]
    labels = np.full(len(kept), -1) if part.labels is None else part.labels[kept]
    return {
        "thumbnails": np.concatenate(thumbnails),
        "features": features.numpy().astype(np.float16),
        "labels": labels.astype(np.int64),
        "ids": np.array([part.images.source.item_id(int(index)) for index in kept], dtype=np.str_),
    }


def thumbnail(plain: Tensor, largest: int = 48) -> np.ndarray:
    """Images [B, C, S, S] in [0, 1] → uint8 [B, s, s, 3], s at most ``largest``; the first three channels, or grey."""
    if plain.shape[-1] > largest:
        plain = nn.functional.interpolate(plain, size=largest, mode="bilinear", antialias=True, align_corners=False)
    colour = plain[:, :3] if plain.shape[1] >= 3 else plain[:, :1].expand(-1, 3, -1, -1)
    return (colour.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
