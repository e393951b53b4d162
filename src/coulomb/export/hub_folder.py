"""Writes and uploads a folder for the Hugging Face hub: weights, description and a model card."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from coulomb.evaluation.assess_encoder import assess_encoder
from coulomb.export.card import card
from coulomb.export.extras import library, new_path
from coulomb.export.plain_code import plain_code
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json, write_text
from coulomb.ground.reading import list_of, maybe, read_object, table, text, whole
from coulomb.ground.version import __version__
from coulomb.models import save_encoder
from coulomb.models.classifier import save_classifier
from coulomb.models.image_encoder import ImageEncoder
from coulomb.training.run import Run

CARD, CONFIG = "README.md", "config.json"
FILES = ("encoder.safetensors", "encoder.json", CONFIG, CARD, "classifier.safetensors", "classifier.json")


def to_hub(
    encoder: ImageEncoder, out: str | Path, *, on: Any = None, labels: str | None = None, progress: bool = False
) -> dict[str, Any]:
    """Writes an encoder as a folder for the hub: ``encoder.safetensors``, ``encoder.json``, ``config.json`` and ``README.md``.

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
    path, network, canvas = new_path(out), encoder.encoder, encoder.canvas
    run = encoder if isinstance(encoder, Run) else None
    if run is not None and on is not None:
        raise InputError(f"on={on!r}: the card of a run has the run's evaluation; leave it out")
    evaluation = None
    if on is not None:
        evaluation = assess_encoder(encoder, on, labels=labels, progress=progress)
    elif run is not None and run.folder.evaluation.exists():
        evaluation = run.evaluation
    code = plain_code(network, canvas)
    classes = None
    building = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)  # left by an interrupted call
    try:
        save_encoder(network, building)
        if run is not None and (run.path / "classifier.json").is_file():
            save_classifier(run.classifier, building, run.class_names)
            classes = len(run.classifier.weight)
        description = {
            "library_name": "coulomb",
            "version": __version__,
            "architecture": network.name,
            "image_size": network.image_size,
            "channels": network.channels,
            "feature_dim": network.feature_dim,
            "canvas": None if canvas is None else dataclasses.asdict(canvas),
        }
        write_json(building / CONFIG, description)
        written = card(network, _facts(encoder, run), evaluation, code, published=run is None, classes=classes)
        write_text(building / CARD, written)
        building.rename(path)
    except OSError as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error.strerror}); free some space") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return {
        "out": str(path),
        "files": sorted(each.name for each in path.iterdir()),
        "encoder": network.name,
        "features": network.feature_dim,
        "evaluated": evaluation is not None,
        "plain_code": code is not None,
    }


def _facts(encoder: ImageEncoder, run: Run | None) -> dict[str, str]:
    network = encoder.encoder
    facts = {
        "Architecture": network.name,
        "Input": f"{network.image_size}×{network.image_size} pixels, {network.channels} channels",
        "Features": str(network.feature_dim),
        "Parameters": f"{sum(each.numel() for each in network.parameters()):,}",
    }
    if run is None:
        return facts | {"Weights": f"as published, {encoder.name}; the license of its authors applies"}
    if run.folder.config.is_file():
        config = run.config
        facts["Method"] = (
            f"{config.method}; epochs: {config.epochs}, batch size: {config.batch_size}, seed: {config.seed}"
        )
    if run.folder.data.is_file():
        about = read_object(run.folder.data, {"source": maybe(table), "class_counts": maybe(list_of(whole))})
        counts = about.get("class_counts")  # includes classes without names
        classes = "no labels" if counts is None else f"{sum(count > 0 for count in counts)} classes"
        facts["Data"] = f"{(about.get('source') or {}).get('name')}: {about.get('train')} training images, {classes}"
        if about.get("start"):
            facts["Start"] = str(about["start"])
    return facts


def push(folder: str | Path, name: str, *, private: bool = False) -> dict[str, Any]:
    """Uploads a folder that `to_hub` wrote to the Hugging Face hub; only files that `to_hub` writes, no others.

    Log in first: ``hf auth login``, or the environment variable HF_TOKEN.

    Args:
        folder: the folder.
        name: name of the repository, ``user/name``; created if needed.
        private: whether a repository that is created here is private.

    Returns:
        ``repository`` and ``url``.

    Raises:
        InputError: the folder was not written by `to_hub`, or the hub cannot be reached or refuses.
    """
    path = Path(folder).expanduser()
    described = path / CONFIG
    if not described.is_file() or read_object(described, remedy=_AGAIN).get("library_name") != "coulomb":
        raise InputError(f"folder={str(folder)!r}: was not written by coulomb export; {_AGAIN}")
    read_object(described, {"architecture": text}, remedy=_AGAIN)
    if missing := [each for each in FILES[:4] if not (path / each).is_file()]:
        raise InputError(f"folder={str(folder)!r}: {', '.join(missing)} missing; {_AGAIN}")
    hub: Any = library("huggingface_hub", "train", "hub")
    api = hub.HfApi()
    try:
        made = api.create_repo(name, private=private, exist_ok=True, repo_type="model")
        message = f"Encoder, by coulomb {__version__}"
        api.upload_folder(
            repo_id=made.repo_id, folder_path=str(path), allow_patterns=list(FILES), commit_message=message
        )
    except Exception as error:  # network, names, permissions: many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"name={name!r}: the hub refused or was not reached ({type(error).__name__}: {reason}); check the name "
            "(user/name), the network, and that you are logged in: hf auth login"
        ) from error
    return {"repository": made.repo_id, "url": str(made)}


_AGAIN = "write it by: coulomb export RUN --to hub --out FOLDER"
