"""Writes an encoder of images as a folder for the Hugging Face hub: weights, description and a model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coulomb.evaluation.assess_encoder import assess_encoder
from coulomb.export.card import card
from coulomb.export.extras import new_folder, new_path
from coulomb.export.plain_code import plain_code
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json, write_text
from coulomb.ground.reading import list_of, maybe, read_object, table, whole
from coulomb.ground.version import __version__
from coulomb.kinds.image.canvas import Canvas
from coulomb.models import ImageNetwork, save_encoder
from coulomb.models.classifier import save_classifier
from coulomb.models.image_encoder import ImageEncoder
from coulomb.training.record.folder import read_stopped
from coulomb.training.run import Record, Run

CARD, CONFIG = "README.md", "config.json"
FILES = ("encoder.safetensors", "encoder.json", CONFIG, CARD, "classifier.safetensors", "classifier.json")


def image_to_hub(
    encoder: ImageEncoder, out: str | Path, *, on: Any = None, labels: str | None = None, progress: bool = False
) -> dict[str, Any]:
    """Writes an encoder of images as a folder for the hub.

    Its files are ``encoder.safetensors``, ``encoder.json``, ``config.json`` and ``README.md``.

    ``coulomb.load(OUT)`` opens it. The model card has the figures of the run's evaluation with their protocol, the limits
    of the encoder, and for built-in architectures a program in plain PyTorch that gives the same features. It names the
    training data, with size and classes, but no paths. A classifier of the run is included.

    Args:
        encoder: what `coulomb.load` returns.
        out: folder to create.
        on: labeled images on which published weights are measured for the card; a run has been evaluated already.
        labels: the column of a table that holds the labels of ``on``.
        progress: show a progress bar on a terminal.

    Returns:
        ``out``, ``files``, ``encoder``, ``features``; ``evaluated`` and ``plain_code``: whether the card has them.

    Raises:
        InputError: ``out`` exists, or ``on`` is given for a run.
    """
    new_path(out)
    network, canvas = encoder.encoder, encoder.canvas
    run = encoder if isinstance(encoder, Run) else None
    if run is not None and on is not None:
        raise InputError(f"on={on!r}: the card of a run has the run's evaluation; leave it out")
    evaluation = None
    if on is not None:
        evaluation = assess_encoder(encoder, on, labels=labels, progress=progress)
    elif run is not None and run.folder.evaluation.exists():
        evaluation = run.evaluation
    classes = None
    with new_folder(out) as (path, building):
        if run is not None and (run.path / "classifier.json").is_file():
            save_classifier(run.classifier, building, run.class_names)
            classes = len(run.classifier.weight)
        facts = _facts(encoder, run)
        code = write_image_folder(
            building, network, canvas, facts, evaluation=evaluation, published=run is None, classes=classes
        )
    return {
        "out": str(path),
        "files": sorted(each.name for each in path.iterdir()),
        "encoder": network.name,
        "features": network.feature_dim,
        "evaluated": evaluation is not None,
        "plain_code": code is not None,
    }


def write_image_folder(
    folder: Path,
    network: ImageNetwork,
    canvas: Canvas | None,
    facts: Mapping[str, str],
    *,
    evaluation: Mapping[str, Any] | None = None,
    published: bool = False,
    classes: int | None = None,
) -> str | None:
    """Writes the files of an encoder of images, and returns the program of its card; arguments as of `card`."""
    code = plain_code(network, canvas)
    save_encoder(network, folder)
    description = {
        "library_name": "coulomb",
        "version": __version__,
        "architecture": network.name,
        "image_size": network.image_size,
        "channels": network.channels,
        "feature_dim": network.feature_dim,
        "canvas": None if canvas is None else canvas.to_dict(),
    }
    write_json(folder / CONFIG, description)
    write_text(folder / CARD, card(network, facts, evaluation, code, published=published, classes=classes))
    return code


def network_facts(network: ImageNetwork) -> dict[str, str]:
    """Returns the rows of a card's table on a network."""
    return {
        "Architecture": network.name,
        "Input": f"{network.image_size}×{network.image_size} pixels, {network.channels} channels",
        "Features": str(network.feature_dim),
        "Parameters": f"{sum(each.numel() for each in network.parameters()):,}",
    }


def _facts(encoder: ImageEncoder, run: Run | None) -> dict[str, str]:
    facts = network_facts(encoder.encoder)
    if run is None:
        return facts | {"Weights": f"as published, {encoder.name}; the license of its authors applies"}
    if run.folder.config.is_file():
        facts["Method"] = method_of(run)
    if run.folder.data.is_file():
        about = read_object(run.folder.data, {"source": maybe(table), "class_counts": maybe(list_of(whole))})
        counts = about.get("class_counts")  # includes classes without names
        classes = "no labels" if counts is None else f"{sum(count > 0 for count in counts)} classes"
        facts["Data"] = f"{(about.get('source') or {}).get('name')}: {about.get('train')} training images, {classes}"
        if about.get("start"):
            facts["Start"] = str(about["start"])
    return facts


def method_of(run: Record) -> str:
    """Returns the method of a run, with what it takes to repeat it."""
    config, stopped = run.config, read_stopped(run.folder)
    ended = f" ({stopped['by']} ended the run after {stopped['epoch']})" if stopped else ""
    return f"{config.method}; epochs: {config.epochs}{ended}, batch size: {config.batch_size}, seed: {config.seed}"
