"""Checkpoints: written atomically, with checksums, and the previous one kept."""

import contextlib
import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.reading import check_file, list_of, read_object, text

PREVIOUS = "previous.ckpt"
DAMAGED = "damaged.ckpt"
CHECKSUMS = "checksums.json"
REMEMBERED = 4  # checksums: of the newest checkpoint, and of files that an interrupted writer may have left
PARTS = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "global_step")


def keep_checkpoint(new: Path, path: Path, *, damaged: bool = False) -> None:
    """Makes the file ``new`` the checkpoint ``path``; the existing one becomes ``previous.ckpt``, or ``damaged.ckpt`` if it is
    ``damaged``.

    A kill at any moment leaves ``path`` or ``previous.ckpt`` complete: checksums are written to ``checksums.json`` before the
    files are renamed, and checksums of older files stay in the list.
    """
    with new.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    previous = _checksums(path) or []
    write_json(
        path.with_name(CHECKSUMS), {"sha256": [digest, *(each for each in previous if each != digest)][:REMEMBERED]}
    )
    if damaged:
        path.replace(path.with_name(DAMAGED))
    elif path.exists():
        _second_name(path, path.with_name(PREVIOUS))
    new.replace(path)


def _second_name(path: Path, other: Path) -> None:
    """Links ``other`` to the file ``path``, so that ``path`` exists at any moment."""
    link = other.with_suffix(".link")
    try:
        link.unlink(missing_ok=True)
        link.hardlink_to(path)
        link.replace(other)
    except OSError:  # a file system without hard links
        path.replace(other)


def checkpoint_to_resume(path: Path) -> tuple[Path | None, str | None]:
    """Returns the checkpoint to resume from, and a notice if it is not ``path`` itself.

    It is ``path``, or ``previous.ckpt`` if that is damaged or missing; None if the run stopped before its first checkpoint.

    Raises:
        InputError: no checkpoint can be loaded.
    """
    previous = path.with_name(PREVIOUS)
    problem = find_problem(path) if path.exists() else "is missing"
    if problem is None:
        return path, None
    if not previous.exists():
        if not path.exists():
            return None, None
        raise InputError(
            f"{path}: {problem}, and no earlier checkpoint was kept; restore it from a copy of the run folder, or start a "
            "new run with another --out"
        )
    if (earlier := find_problem(previous)) is not None:
        raise InputError(
            f"{path}: {problem}, and {previous.name} {earlier}; restore one of them from a copy of the run folder, or start "
            "a new run with another --out"
        )
    step = read_checkpoint(previous)["global_step"]
    return previous, (
        f"{path} {problem}; continuing from {previous.name}, which is of step {step}: the steps after it are trained again"
    )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint to the CPU.

    Raises:
        InputError: the file is damaged or not a checkpoint of this library.
    """
    if (problem := find_problem(path)) is not None:
        raise InputError(
            f"{path}: {problem}; coulomb train --resume continues from {PREVIOUS} if that was kept, else restore the file "
            "from a copy of the run folder"
        )
    return _load(path)


def find_problem(path: Path) -> str | None:
    """Returns the problem with a checkpoint, as the end of a sentence; None if it can be loaded."""
    if check_file(path) == 0:
        return "is empty"
    if not _plain_archive(path):
        return "is cut short or is not a checkpoint"
    valid = _checksums(path)
    if valid is not None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest not in valid:
            return f"is damaged: its bytes do not match the checksum in {CHECKSUMS}"
    try:
        content = _load(path)
    except Exception as error:  # torch.load fails in many ways
        return f"is damaged or is not a checkpoint ({type(error).__name__})"
    whole = isinstance(content, dict) and all(part in content for part in PARTS)
    if not whole or not isinstance(content["state_dict"], dict) or type(content["global_step"]) is not int:
        return "is not a checkpoint of coulomb train"
    return None


def is_finished(path: Path | None, updates: int) -> bool:
    """Returns True if ``path`` is a checkpoint after the last of a run's ``updates``, or after a callback ended the run.

    Raises like `read_checkpoint`.
    """
    if path is None:
        return False
    content = read_checkpoint(path)
    return content["global_step"] >= updates or bool(_stopped(content))


def _stopped(content: dict[str, Any]) -> Any:
    """Returns the stop by a callback, see `coulomb.training.own_callbacks.OwnCallbacks.state_dict`."""
    callbacks = content.get("callbacks")
    own = callbacks.get("OwnCallbacks") if isinstance(callbacks, dict) else None
    return own.get("stopped") if isinstance(own, dict) else None


def _load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _plain_archive(path: Path) -> bool:
    """Returns True if the file is an archive without compression, which cannot expand when it is read."""
    with (
        contextlib.suppress(zipfile.BadZipFile, OSError, ValueError, NotImplementedError),
        zipfile.ZipFile(path) as archive,
    ):
        parts = archive.infolist()
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        return stored and sum(part.file_size for part in parts) <= path.stat().st_size
    return False


def _checksums(path: Path) -> list[str] | None:
    """Reads the checksums of the newest checkpoints; None if an earlier version of coulomb wrote the folder."""
    file = path.with_name(CHECKSUMS)
    if not file.exists():
        return None
    remedy = "delete it, and checkpoints are loaded without comparing checksums"
    sums: list[str] = read_object(file, {"sha256": list_of(text)}, remedy=remedy)["sha256"]
    return sums


def method_state(path: Path) -> dict[str, Tensor]:
    """Returns the method's tensors in a checkpoint, by name; raises `InputError` like `read_checkpoint`."""
    state = read_checkpoint(path)["state_dict"]
    return {name.removeprefix("method."): value for name, value in state.items() if name.startswith("method.")}


def load_method(method: torch.nn.Module, path: Path) -> dict[str, Tensor]:
    """Loads a checkpoint into ``method`` and returns its tensors.

    Raises:
        InputError: the checkpoint is damaged, or does not match the network that ``config.yaml`` describes.
    """
    state = method_state(path)
    try:
        method.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise does_not_fit(path, error) from error
    return state


def does_not_fit(path: Path, error: Exception) -> InputError:
    """Returns the error for a checkpoint that does not match the network that ``config.yaml`` describes."""
    why = " ".join(str(error).split())[:300] or type(error).__name__
    return InputError(
        f"{path}: does not match the run that config.yaml describes ({type(error).__name__}: {why}); "
        "restore both files from a copy of the run folder"
    )
