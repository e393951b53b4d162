"""Encoders on disk: safetensors for the numbers, JSON for how to build it. Nothing is executed or unpickled."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.models.encoder import OWN_MODULE, Encoder, assemble, wrap_encoder
from coulomb.models.published import is_published
from coulomb.randomness import seeded_initialisation
from coulomb.reading import Shape, check_file, check_shape, list_of, number, read_object, table, text, whole

WEIGHTS = "encoder.safetensors"
DESCRIPTION = "encoder.json"
FORMAT = 1


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Write ``encoder.safetensors`` and ``encoder.json`` into ``folder`` (made if absent), each one atomically."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Own copies: modules may share tensors, which the format refuses.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in encoder.state_dict().items()}
    description = {
        "format": FORMAT,
        **encoder.config,
        "feature_dim": encoder.feature_dim,
        "mean": encoder.normalise.mean.flatten().tolist(),
        "std": encoder.normalise.std.flatten().tolist(),
    }
    write_atomically(folder / WEIGHTS, save(tensors))
    write_atomically(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())


def load_encoder(folder: str | Path, module: nn.Module | None = None) -> Encoder:
    """The encoder saved in ``folder``, on the CPU and in eval mode.

    An encoder that wraps a module of your own needs that module: ``load_encoder(folder, module=MyNet())``; its weights
    are replaced in place. Raises `InputError` where a file is missing, damaged or does not belong to the other.
    """
    folder = Path(folder)
    description = read_description(folder / DESCRIPTION)
    weights = read_weights(folder / WEIGHTS)
    encoder = blank_encoder(description, module, folder)
    compare(encoder.state_dict(), weights, folder / WEIGHTS, encoder.name)
    for name in ("mean", "std"):
        stored = weights[f"normalise.{name}"].flatten().tolist()
        if stored != description[name]:
            raise InputError(f"{folder}: {name} is {description[name]} in {DESCRIPTION}, {stored} in {WEIGHTS}.")
    # A built-in encoder was laid out without memory and takes the file's tensors; a user's module is filled in place.
    encoder.load_state_dict(weights, assign=module is None)
    return encoder.eval()


def blank_encoder(description: dict[str, Any], module: nn.Module | None, folder: Path) -> Encoder:
    """The architecture that the description names; without memory (on the meta device) when it is a built-in one."""
    path = folder / DESCRIPTION
    wrapped = description["kind"] == OWN_MODULE
    if wrapped and module is None:
        raise InputError(
            f"{folder} holds the weights of your own module {description['name']!r}: pass it, "
            f"load_encoder(folder, module={description['name']}(...))."
        )
    if not wrapped and module is not None:
        raise InputError(f"{folder} holds the built-in encoder {description['name']!r}: leave module out.")
    shared: dict[str, Any] = {key: description[key] for key in ("channels", "image_size", "mean", "std")}
    if module is not None:
        encoder = wrap_encoder(module, **shared)
    elif is_published(description["name"]):
        # Not on the meta device: other libraries keep buffers that are not saved, and these must have values.
        with seeded_initialisation(0, "loading"):
            encoder = assemble(description["name"], options=description["options"], **shared)
    else:
        with torch.device("meta"):
            encoder = assemble(description["name"], options=description["options"], **shared)
    if encoder.feature_dim != description["feature_dim"]:
        raise InputError(
            f"{path} says {description['feature_dim']} features, but {encoder.name} gives {encoder.feature_dim}."
        )
    return encoder


SAVE_AGAIN = "restore it from a copy, or save the encoder again"
ENTRIES: dict[str, Shape] = {
    "kind": text,
    "name": text,
    "channels": whole,
    "image_size": whole,
    "feature_dim": whole,
    "mean": list_of(number),
    "std": list_of(number),
}


def read_description(path: Path) -> dict[str, Any]:
    """The content of ``encoder.json``, checked entry by entry."""
    remedy = f"is {path.parent} a folder with a saved encoder?" if not path.exists() else SAVE_AGAIN
    description = read_object(path, remedy=remedy)
    if description.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {description.get('format')!r}, this version of coulomb reads {FORMAT}: update it, or "
            "save the encoder again."
        )
    return check_shape(
        path,
        description,
        ENTRIES if description.get("kind") == OWN_MODULE else {**ENTRIES, "options": table},
        SAVE_AGAIN,
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    check_file(path, remedy=SAVE_AGAIN if path.exists() else f"is {path.parent} a folder with a saved encoder?")
    try:
        # Clones, because the loader may map the file into memory and the file may change.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}; {SAVE_AGAIN}") from error


def compare(wanted: dict[str, Tensor], found: dict[str, Tensor], path: Path, name: str) -> None:
    """`InputError` unless names, shapes and types agree."""
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        parts = [f"{len(missing)} missing (first {missing[0]!r})"] if missing else []
        parts += [f"{len(extra)} unknown (first {extra[0]!r})"] if extra else []
        raise InputError(f"{path} does not belong to this {name}: of its tensors, {' and '.join(parts)}.")
    for key, tensor in wanted.items():
        if tensor.shape != found[key].shape or tensor.dtype != found[key].dtype:
            raise InputError(
                f"{path}: {key!r} is {found[key].dtype} {list(found[key].shape)}, but {name} has "
                f"{tensor.dtype} {list(tensor.shape)}."
            )


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a reader or a killed run sees the old file or the new.

    Raises:
        InputError: the disk is full, or the folder cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); free some space, or check the permissions"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
