"""Read a run folder into one value. Missing or damaged files become sentences in ``problems``, never errors."""

import math
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.errors import InputError
from coulomb.reading import MIB, Arrays, open_arrays, parse_json, read_bytes, read_json, read_lines, read_yaml

TURNING = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # they make a name read as another


def clean(value: Any) -> Any:
    """Strings without lone surrogates, control and direction characters; recursively, keys included."""
    if isinstance(value, str):
        return "".join("\ufffd" if _misleading(character) else character for character in value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def _misleading(character: str) -> bool:
    return character in TURNING or (unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t")


def reason(error: InputError, path: Path) -> str:
    """The message of ``error`` without the path that it begins with, as a sentence."""
    return f"{clean(str(error).removeprefix(f'{path}: ').removeprefix(f'{path} '))}."


def finite(value: Any) -> float | None:
    """``value`` as a float, None when it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


MOST = 10_000  # samples; a run writes 2,000
MOST_EXPANDED = 512 * MIB
NAMES = ("thumbnails", "features", "labels", "ids")


@dataclass(frozen=True)
class Samples:
    """Images with their features, aligned, held-out ones first: thumbnails uint8 [n, h, w, 3], features float32 [n, F]."""

    thumbnails: np.ndarray
    features: np.ndarray
    labels: np.ndarray  # int64 [n], −1: unknown
    ids: list[str]
    held_out: np.ndarray  # bool [n]; false: seen in training

    def __len__(self) -> int:
        return len(self.ids)


def read_samples(path: Path, problems: list[str]) -> Samples | None:
    """Held-out images, and training images where the file has some; what is missing or odd is told in ``problems``."""
    if not path.is_file():
        problems.append("samples.npz is not there (yet): no neighbours and no map.")
        return None
    try:
        with open_arrays(path, most=MOST_EXPANDED) as stored:
            held_out = _part(stored, "")
            seen = _part(stored, "training_") if "training_features" in stored else None
    except InputError as error:
        problems.append(f"samples.npz cannot be read: {reason(error, path)}")
        return None
    if not _fits(held_out):
        problems.append("samples.npz does not hold what a run writes there.")
        return None
    samples = held_out if seen is None or not _fits(seen) or not _alike(held_out, seen) else _joined(held_out, seen)
    n = len(samples)
    usable = np.isfinite(samples.features).all(1) & (np.abs(samples.features).max(1, initial=0) > 0)
    if not usable.all():
        problems.append(f"{n - usable.sum()} of {n} samples have features that are not finite or all zero; left out.")
    kept = np.flatnonzero(usable)
    if len(kept) == 0:
        problems.append("samples.npz holds no usable sample: no neighbours and no map.")
        return None
    return Samples(
        samples.thumbnails[kept],
        samples.features[kept],
        samples.labels[kept],
        [samples.ids[i] for i in kept],
        samples.held_out[kept],
    )


def _part(stored: Arrays, prefix: str) -> Samples:
    thumbnails, features, labels, ids = (stored[prefix + name] for name in NAMES)
    names = [clean(str(name)) for name in ids]
    held_out = np.full(len(names), not prefix)
    return Samples(thumbnails, features.astype(np.float32), labels.astype(np.int64), names, held_out)


def _fits(part: Samples) -> bool:
    pictures, n = part.thumbnails, len(part)
    shaped = pictures.ndim == 4 and pictures.shape[-1] == 3 and pictures.dtype == np.uint8 and part.features.ndim == 2
    return (
        shaped and n <= MOST and len(pictures) == len(part.features) == len(part.labels) == n and part.labels.ndim == 1
    )


def _alike(one: Samples, other: Samples) -> bool:
    return one.thumbnails.shape[1:] == other.thumbnails.shape[1:] and one.features.shape[1] == other.features.shape[1]


def _joined(one: Samples, other: Samples) -> Samples:
    return Samples(
        np.concatenate([one.thumbnails, other.thumbnails]),
        np.concatenate([one.features, other.features]),
        np.concatenate([one.labels, other.labels]),
        one.ids + other.ids,
        np.concatenate([one.held_out, other.held_out]),
    )


MOST_PICTURE = 64 * MIB
EXPECTED = ("config.yaml", "metrics.jsonl", "evaluation.json", "data.json", "samples.npz")


@dataclass
class Run:
    """All that a run folder says, cleaned for display; what could not be read is told in ``problems``."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    training: list[dict[str, Any]] = field(default_factory=list)  # lines with a loss
    measures: list[dict[str, Any]] = field(default_factory=list)  # lines of live evaluation
    evaluation: dict[str, Any] = field(default_factory=dict)
    transfers: list[dict[str, Any]] = field(default_factory=list)  # evaluations on other data
    environment: dict[str, Any] = field(default_factory=dict)
    doctor: dict[str, Any] = field(default_factory=dict)  # its verdicts; empty where it has not looked
    samples: Samples | None = None
    views: bytes | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The folder's name."""
        return clean(self.folder.name) or "run"

    @property
    def class_names(self) -> list[str]:
        """Class names, empty without labels."""
        names = self.data.get("classes")
        return [str(name) for name in names] if isinstance(names, list) else []

    def class_name(self, label: int) -> str:
        """The name of one class, its number where no name is known."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else f"class {label}"


def collect(folder: Path | str) -> Run:
    """Read the run folder ``folder``.

    Raises :class:`InputError` when there is no such folder or none of a run's files is in it.
    """
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise InputError(f"run: no folder {str(folder)!r}; give the folder that `coulomb train --out` wrote")
    if not any((folder / name).is_file() for name in EXPECTED):
        raise InputError(f"run: {str(folder)!r} is not a run folder: none of {', '.join(EXPECTED)} is in it")
    run = Run(folder)
    run.config = _mapping(run, "config.yaml", read_yaml)
    run.data = _mapping(run, "data.json", read_json)
    run.environment = _mapping(run, "environment.json", read_json)
    run.evaluation = _mapping(run, "evaluation.json", read_json)
    if (folder / "doctor.json").is_file():
        run.doctor = _mapping(run, "doctor.json", read_json)
    for path in sorted((folder / "transfer").glob("*.json")):
        if found := _mapping(run, f"transfer/{path.name}", read_json):
            run.transfers.append(found)
    _read_metrics(run)
    run.samples = read_samples(folder / "samples.npz", run.problems)
    if (folder / "views.png").is_file():
        try:
            run.views = read_bytes(folder / "views.png", most=MOST_PICTURE)
        except InputError as error:
            run.problems.append(f"views.png cannot be read: {reason(error, folder / 'views.png')}")
    return run


def _mapping(run: Run, name: str, read: Callable[[Path], Any]) -> dict[str, Any]:
    path = run.folder / name
    if not path.is_file():
        run.problems.append(f"{name} is not there (yet).")
        return {}
    try:
        found = read(path)
    except InputError as error:
        run.problems.append(f"{name} cannot be read: {reason(error, path)}")
        return {}
    if not isinstance(found, dict):
        run.problems.append(f"{name} does not hold what a run writes there.")
        return {}
    return clean(found)


def _lines(run: Run, path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(path)
    except InputError as error:
        run.problems.append(f"{path.name} cannot be read to its end: {reason(error, path)}")


def _read_metrics(run: Run) -> None:
    path = run.folder / "metrics.jsonl"
    if not path.is_file():
        run.problems.append("metrics.jsonl is not there (yet).")
        return
    unreadable, repeated, by_step = 0, 0, dict[float, dict[str, Any]]()
    for line in _lines(run, path):
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
        run.problems.append(f"metrics.jsonl: {unreadable} line(s) cannot be read, e.g. cut off by a crash; left out.")
    if repeated:
        run.problems.append(f"metrics.jsonl: {repeated} step(s) occur twice (a resumed run); the later line counts.")
