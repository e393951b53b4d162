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
MAX_CLUSTERS = 1_000
MAPS = ("tsne", "umap", "pca")
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
    """Sampled images, held-out images first, as `coulomb.evaluation.samples` describes them.

    Attributes:
        thumbnails: uint8 [n, h, w, 3].
        labels: int64 [n]; −1 if unknown.
        ids: n names.
        held_out: how many of the first images are held out; the others are training images.
        neighbors: int64 [n, k]; None with fewer than two held-out images.
        clusters: int64 [n]; None if there are none.
        maps: key → positions [n, 2] in percent of a square.
    """

    thumbnails: np.ndarray
    labels: np.ndarray
    ids: list[str]
    held_out: int
    neighbors: np.ndarray | None = None
    clusters: np.ndarray | None = None
    maps: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class RunData:
    """Everything in a run folder, cleaned for display; ``problems`` names what could not be read."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    stopped: dict[str, Any] = field(default_factory=dict)  # by a callback; empty for other runs
    training: list[dict[str, Any]] = field(default_factory=list)  # lines with a loss
    measures: list[dict[str, Any]] = field(default_factory=list)  # lines of live evaluation
    evaluation: dict[str, Any] = field(default_factory=dict)
    transfers: list[dict[str, Any]] = field(default_factory=list)  # evaluations on other data
    environment: dict[str, Any] = field(default_factory=dict)
    doctor: dict[str, Any] = field(default_factory=dict)  # empty before the first diagnosis
    samples: Samples | None = None
    views: bytes | None = None
    shown_views: dict[str, Any] = field(default_factory=dict)  # of one column of texts or vectors
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return clean(self.folder.name) or "run"

    @property
    def columns(self) -> list[str]:
        """The names of both columns of an evaluation of pairs; empty for other evaluations."""
        names = self.evaluation.get("columns")
        if not isinstance(names, list) or len(names) != 2:
            return []
        return names if all(isinstance(each, str) for each in names) else []

    @property
    def column(self) -> str | None:
        """The name of the column of an evaluation of one column; None for other evaluations."""
        name = self.evaluation.get("column")
        return name if isinstance(name, str) else None

    @property
    def rows_are(self) -> str:
        """What a row of the data is: "pair", "image", or the kind of the only column."""
        if self.columns:
            return "pair"
        kind = self.evaluation.get("kind") if self.column is not None else None
        return kind if kind in ("text", "vector") else "image"

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
    if (folder / "stopped.json").is_file():
        run.stopped = _read_mapping(run, "stopped.json", read_json)
    for path in sorted((folder / "transfer").glob("*.json")):
        if evaluation := _read_mapping(run, f"transfer/{path.name}", read_json):
            run.transfers.append(evaluation)
    if (folder / "views.json").is_file():
        run.shown_views = _read_mapping(run, "views.json", read_json)
    _read_metrics(run)
    if not run.columns and run.column is None:  # those of runs on columns: pair_section, column_section
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
    """Reads held-out images, and training images if the file has some; ``problems`` receives what is missing or damaged."""
    if not path.is_file():
        problems.append("samples.npz does not exist (yet): no neighbors and no map.")
        return None
    try:
        with open_arrays(path, most=MAX_EXPANDED) as stored:
            samples = _samples(stored)
    except InputError as error:
        problems.append(f"samples.npz cannot be read: {_reason(error, path)}")
        return None
    if samples is None:
        problems.append("samples.npz has an unexpected structure.")
    return samples


def _samples(stored: Arrays) -> Samples | None:
    """Returns the samples in a file; None if its arrays do not fit together."""
    prefixes = ("", "training_") if "training_ids" in stored else ("",)
    parts = [{name: stored[prefix + name] for name in ("thumbnails", "labels", "ids")} for prefix in prefixes]
    if not all(map(_consistent, parts)) or len({part["thumbnails"].shape[1:] for part in parts}) > 1:
        return None
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    n, held_out = len(joined["ids"]), len(parts[0]["ids"])
    samples = Samples(
        joined["thumbnails"],
        joined["labels"].astype(np.int64),
        [clean(str(name)) for name in joined["ids"]],
        held_out,
        stored["neighbors"].astype(np.int64) if "neighbors" in stored else None,
        stored["clusters"].astype(np.int64) if "clusters" in stored else None,
        {key: stored[f"map_{key}"].astype(float) for key in MAPS if f"map_{key}" in stored},
    )
    return samples if n and _fits(samples) else None


def _consistent(part: dict[str, np.ndarray]) -> bool:
    pictures, n = part["thumbnails"], len(part["ids"])
    return (
        pictures.ndim == 4
        and pictures.shape[-1] == 3
        and pictures.dtype == np.uint8
        and part["labels"].ndim == part["ids"].ndim == 1
        and np.issubdtype(part["labels"].dtype, np.integer)
        and len(pictures) == len(part["labels"]) == n <= MAX_SAMPLES
    )


def _fits(samples: Samples) -> bool:
    """True if the neighbors, clusters and maps are of these samples."""
    n, neighbors, clusters = len(samples), samples.neighbors, samples.clusters
    return (
        (
            neighbors is None
            or (neighbors.ndim == 2 and len(neighbors) == n and _inside(neighbors, 0, samples.held_out - 1))
        )
        and (clusters is None or (clusters.shape == (n,) and _inside(clusters, 0, MAX_CLUSTERS - 1)))
        and all(places.shape == (n, 2) and _inside(places, 0, 100) for places in samples.maps.values())
    )


def _inside(values: np.ndarray, low: float, high: float) -> bool:
    return bool(((values >= low) & (values <= high)).all())
