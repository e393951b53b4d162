"""Read a run folder into one value. Missing or damaged files become sentences in ``problems``, never errors."""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.reading import (
    MIB,
    Arrays,
    finite,
    open_arrays,
    parse_json,
    read_bytes,
    read_json,
    read_lines,
    read_yaml,
)

# They make a name read as another one.
DIRECTION_MARKS = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
MAX_SAMPLES = 10_000  # a run writes 2,000
MAX_EXPANDED = 512 * MIB
MAX_PICTURE = 64 * MIB
RUN_FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "data.json", "samples.npz")


def clean(value: Any) -> Any:
    """Replaces lone surrogates, control characters and direction marks in strings, recursively and in keys too."""
    if isinstance(value, str):
        return "".join("\ufffd" if _misleading(character) else character for character in value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def _misleading(character: str) -> bool:
    return character in DIRECTION_MARKS or (unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t")


@dataclass(frozen=True)
class Samples:
    """Aligned images and features, held-out images first.

    Attributes:
        thumbnails: uint8 [n, h, w, 3].
        features: float32 [n, F].
        labels: int64 [n]; −1 if unknown.
        ids: n names.
        held_out: bool [n]; False for training images.
    """

    thumbnails: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    ids: list[str]
    held_out: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class RunData:
    """Everything in a run folder, cleaned for display; ``problems`` names what could not be read."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    training: list[dict[str, Any]] = field(default_factory=list)  # lines with a loss
    measures: list[dict[str, Any]] = field(default_factory=list)  # lines of live evaluation
    evaluation: dict[str, Any] = field(default_factory=dict)
    transfers: list[dict[str, Any]] = field(default_factory=list)  # evaluations on other data
    environment: dict[str, Any] = field(default_factory=dict)
    doctor: dict[str, Any] = field(default_factory=dict)  # empty before the first diagnosis
    samples: Samples | None = None
    views: bytes | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return clean(self.folder.name) or "run"

    @property
    def class_names(self) -> list[str]:
        """Class names; empty without labels."""
        names = self.data.get("classes")
        return [str(name) for name in names] if isinstance(names, list) else []

    def class_name(self, label: int) -> str:
        """The name of a class, or its number if the name is unknown."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else f"class {label}"


def read_run(folder: Path | str) -> RunData:
    """Reads the run folder ``folder``.

    Raises:
        InputError: there is no such folder, or it contains none of a run's files.
    """
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise InputError(f"run: no folder {str(folder)!r}; give the folder that `coulomb train --out` wrote")
    if not any((folder / name).is_file() for name in RUN_FILES):
        raise InputError(f"run: {str(folder)!r} is not a run folder: none of {', '.join(RUN_FILES)} is in it")
    run = RunData(folder)
    run.config = _read_mapping(run, "config.yaml", read_yaml)
    run.data = _read_mapping(run, "data.json", read_json)
    run.environment = _read_mapping(run, "environment.json", read_json)
    run.evaluation = _read_mapping(run, "evaluation.json", read_json)
    if (folder / "doctor.json").is_file():
        run.doctor = _read_mapping(run, "doctor.json", read_json)
    for path in sorted((folder / "transfer").glob("*.json")):
        if evaluation := _read_mapping(run, f"transfer/{path.name}", read_json):
            run.transfers.append(evaluation)
    _read_metrics(run)
    run.samples = read_samples(folder / "samples.npz", run.problems)
    if (folder / "views.png").is_file():
        try:
            run.views = read_bytes(folder / "views.png", most=MAX_PICTURE)
        except InputError as error:
            run.problems.append(f"views.png cannot be read: {_reason(error, folder / 'views.png')}")
    return run


def _reason(error: InputError, path: Path) -> str:
    """The message of ``error`` as a sentence, without the path at its beginning."""
    return f"{clean(str(error).removeprefix(f'{path}: ').removeprefix(f'{path} '))}."


def _read_mapping(run: RunData, name: str, read: Callable[[Path], Any]) -> dict[str, Any]:
    path = run.folder / name
    if not path.is_file():
        run.problems.append(f"{name} does not exist (yet).")
        return {}
    try:
        content = read(path)
    except InputError as error:
        run.problems.append(f"{name} cannot be read: {_reason(error, path)}")
        return {}
    if not isinstance(content, dict):
        run.problems.append(f"{name} has an unexpected structure.")
        return {}
    return clean(content)


def _read_metrics(run: RunData) -> None:
    path = run.folder / "metrics.jsonl"
    if not path.is_file():
        run.problems.append("metrics.jsonl does not exist (yet).")
        return
    unreadable, repeated, by_step = 0, 0, dict[float, dict[str, Any]]()
    for line in _read_lines(run, path):
        if not line.strip():
            continue
        try:
            entry = parse_json(line, nonfinite=True)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            unreadable += 1
            continue
        step = finite(entry.get("step"))
        if "loss" in entry and step is not None:
            repeated += step in by_step
            by_step[step] = clean(entry)
        elif finite(entry.get("epoch")) is not None:
            run.measures.append(clean(entry))
        else:
            unreadable += 1
    run.training = [by_step[step] for step in sorted(by_step)]
    if unreadable:
        run.problems.append(f"metrics.jsonl: {unreadable} line(s) cannot be read and were skipped, e.g. after a crash.")
    if repeated:
        run.problems.append(f"metrics.jsonl: {repeated} step(s) occur twice (a resumed run); the later line is used.")


def _read_lines(run: RunData, path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(path)
    except InputError as error:
        run.problems.append(f"{path.name} cannot be read to its end: {_reason(error, path)}")


def read_samples(path: Path, problems: list[str]) -> Samples | None:
    """Reads held-out images, and training images if the file has some; ``problems`` receives what is missing or odd."""
    if not path.is_file():
        problems.append("samples.npz does not exist (yet): no neighbors and no map.")
        return None
    try:
        with open_arrays(path, most=MAX_EXPANDED) as stored:
            parts = [_read_part(stored, "")]
            if "training_features" in stored:
                parts.append(_read_part(stored, "training_"))
    except InputError as error:
        problems.append(f"samples.npz cannot be read: {_reason(error, path)}")
        return None
    if not _consistent(parts[0]):
        problems.append("samples.npz has an unexpected structure.")
        return None
    if len(parts) > 1 and not (_consistent(parts[1]) and _same_shapes(*parts)):
        parts.pop()
    samples = Samples(
        np.concatenate([part.thumbnails for part in parts]),
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        [name for part in parts for name in part.ids],
        np.concatenate([part.held_out for part in parts]),
    )
    n = len(samples)
    usable = np.isfinite(samples.features).all(1) & (np.abs(samples.features).max(1, initial=0) > 0)
    if not usable.all():
        problems.append(f"{n - usable.sum()} of {n} samples have non-finite or zero features and are left out.")
    kept = np.flatnonzero(usable)
    if len(kept) == 0:
        problems.append("samples.npz has no usable sample: no neighbors and no map.")
        return None
    return Samples(
        samples.thumbnails[kept],
        samples.features[kept],
        samples.labels[kept],
        [samples.ids[i] for i in kept],
        samples.held_out[kept],
    )


def _read_part(stored: Arrays, prefix: str) -> Samples:
    thumbnails, features, labels, ids = (stored[prefix + name] for name in ("thumbnails", "features", "labels", "ids"))
    names = [clean(str(name)) for name in ids]
    held_out = np.full(len(names), not prefix)
    return Samples(thumbnails, features.astype(np.float32), labels.astype(np.int64), names, held_out)


def _consistent(part: Samples) -> bool:
    pictures, n = part.thumbnails, len(part)
    return (
        pictures.ndim == 4
        and pictures.shape[-1] == 3
        and pictures.dtype == np.uint8
        and part.features.ndim == 2
        and part.labels.ndim == 1
        and len(pictures) == len(part.features) == len(part.labels) == n <= MAX_SAMPLES
    )


def _same_shapes(one: Samples, other: Samples) -> bool:
    return one.thumbnails.shape[1:] == other.thumbnails.shape[1:] and one.features.shape[1] == other.features.shape[1]
