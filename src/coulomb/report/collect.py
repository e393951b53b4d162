"""Read a run folder into one value. Whatever is missing or broken becomes a sentence in ``problems``, never an error."""

import json
import math
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from coulomb.errors import InputError

TURNING = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # they make a name read as another
EXPECTED = ("config.yaml", "metrics.jsonl", "evaluation.json", "data.json", "samples.npz")


@dataclass(frozen=True)
class Samples:
    """Held-out images with their features, aligned: thumbnails uint8 [n, h, w, 3], features float32 [n, F]."""

    thumbnails: np.ndarray
    features: np.ndarray
    labels: np.ndarray  # int64 [n], −1: unknown
    ids: list[str]

    def __len__(self) -> int:
        return len(self.ids)


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
    run.config = _mapping(run, "config.yaml", yaml.safe_load)
    run.data = _mapping(run, "data.json", json.loads)
    run.environment = _mapping(run, "environment.json", json.loads)
    run.evaluation = _mapping(run, "evaluation.json", json.loads)
    for path in sorted((folder / "transfer").glob("*.json")):
        if found := _mapping(run, f"transfer/{path.name}", json.loads):
            run.transfers.append(found)
    _read_metrics(run)
    run.samples = _read_samples(run)
    if (folder / "views.png").is_file():
        run.views = (folder / "views.png").read_bytes()
    return run


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


def finite(value: Any) -> float | None:
    """``value`` as a float, None when it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _mapping(run: Run, name: str, parse: Any) -> dict[str, Any]:
    path = run.folder / name
    if not path.is_file():
        run.problems.append(f"{name} is not there (yet).")
        return {}
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        run.problems.append(f"{name} cannot be read: it is damaged or incomplete.")
        return {}
    if not isinstance(found, dict):
        run.problems.append(f"{name} does not hold what a run writes there.")
        return {}
    return clean(found)


def _read_metrics(run: Run) -> None:
    path = run.folder / "metrics.jsonl"
    if not path.is_file():
        run.problems.append("metrics.jsonl is not there (yet).")
        return
    unreadable, repeated, by_step = 0, 0, dict[float, dict[str, Any]]()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
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


def _read_samples(run: Run) -> Samples | None:
    path = run.folder / "samples.npz"
    if not path.is_file():
        run.problems.append("samples.npz is not there (yet): no neighbours and no map.")
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            thumbnails, features = stored["thumbnails"], stored["features"].astype(np.float32)
            labels, ids = stored["labels"].astype(np.int64), [clean(str(name)) for name in stored["ids"]]
    except Exception:  # a damaged archive fails in many ways, and none of them may stop a report
        run.problems.append("samples.npz cannot be read: it is damaged or incomplete.")
        return None
    n = len(ids)
    fits = thumbnails.ndim == 4 and thumbnails.shape[-1] == 3 and thumbnails.dtype == np.uint8 and features.ndim == 2
    if not fits or not (len(thumbnails) == len(features) == len(labels) == n) or labels.ndim != 1:
        run.problems.append("samples.npz does not hold what a run writes there.")
        return None
    usable = np.isfinite(features).all(1) & (np.abs(features).max(1, initial=0) > 0)
    if not usable.all():
        run.problems.append(
            f"{n - usable.sum()} of {n} samples have features that are not finite or all zero; left out."
        )
    kept = np.flatnonzero(usable)
    if len(kept) == 0:
        run.problems.append("samples.npz holds no usable sample: no neighbours and no map.")
        return None
    return Samples(thumbnails[kept], features[kept], labels[kept], [ids[i] for i in kept])
