"""Read a run folder into one value. Whatever is missing or broken becomes a sentence in ``problems``, never an error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.reading import MIB, parse_json, read_bytes, read_json, read_lines, read_yaml
from coulomb.report.cleaning import clean, finite, reason
from coulomb.report.samples import Samples, read_samples

__all__ = ["Run", "Samples", "collect", "finite"]

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
