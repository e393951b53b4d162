"""An experiment: a question, the runs that answer it, and claims that are checked against the results."""

import logging
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.reading import read_object, table
from coulomb.tables import open_source
from coulomb.training.plan.config import load_config
from coulomb.training.record.folder import RunFolder, read_data
from coulomb.training.record.provenance import environment
from coulomb.training.record.seeds import deviation
from coulomb_lab.arms import Arm, Measure, Settings, arm_folder, run_arm, select_arms
from coulomb_lab.claims import Rows
from coulomb_lab.measure import measure_baselines

QUICK_NOTE = "A quick run of a few epochs: longer training may change the results; draw conclusions without --quick."

log = logging.getLogger("coulomb")


@dataclass(frozen=True)
class Experiment:
    """An experiment of the lab.

    Args:
        name, title, question: for readers.
        arms: settings → the runs; empty if nothing is trained.
        summarize: results by row (means over the seeds) → claims, charts, notes, and optionally tables.
        columns: (key of the results, heading, format: percent, figure, count, duration or text).
        baselines: whether raw pixels and the untrained network are measured too.
        measure: further measurements of each finished run, stored in its record.
        derive: results computed from others; computed per seed, not stored.
    """

    name: str
    title: str
    question: str
    arms: Callable[[Settings], list[Arm]]
    summarize: Callable[[Rows, Settings], dict[str, Any]]
    columns: tuple[tuple[str, str, str], ...]
    baselines: bool = True
    measure: Measure | None = None
    derive: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def perform(experiment: Experiment, settings: Settings, command: list[str] | None = None) -> dict[str, Any]:
    """Trains every run that is not finished yet, checks the claims, and returns the result, ready for JSON.

    Finished runs are kept and an interrupted one is resumed, so the same call continues where the last one stopped.

    Raises:
        InputError: the folder has runs with other settings, or the data have no labels.
    """
    folder = settings.out / experiment.name
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out={str(settings.out)!r}: {folder} is a file; give another folder")
    arms = select_arms(experiment.arms(settings), settings.only)
    if arms:
        require_labels(settings)
    folder.mkdir(parents=True, exist_ok=True)
    runs = _perform_runs(experiment, arms, settings, folder)
    rows: Rows = {arm.name: mean_over_seeds([runs[arm.name, seed] for seed in settings.all_seeds]) for arm in arms}
    first = next((arm for arm in arms if "failed" not in runs[arm.name, settings.seed]), None)
    if experiment.baselines and first is not None:
        rows |= _baselines(folder, first, settings)
    summary = experiment.summarize({name: row for name, row in rows.items() if "failed" not in row}, settings)
    summary["notes"] = [*summary["notes"], *([QUICK_NOTE] if settings.quick and rows else [])]
    result = {
        "experiment": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "settings": {**asdict(settings), "out": str(settings.out)},
        "seeds": list(settings.all_seeds),
        "command": shlex.join(command) if command else None,
        "columns": [list(column) for column in experiment.columns],
        "rows": rows,
        "arms": {arm.name: arm.options for arm in arms},
        "protocol": _protocol(folder / first.name) if first else {},
        "environment": environment(),
        **summary,
    }
    write_json(folder / "result.json", result)
    return result


def require_labels(settings: Settings) -> None:
    """Raises InputError for data without labels, before anything is trained."""
    for name, data in (("data", settings.data), ("test", settings.test)):
        if data is not None and open_source(data, labels=settings.options.get("labels")).labels is None:
            raise InputError(f"{name}={data!r}: has no labels; experiments need labels to measure accuracies")


def _perform_runs(
    experiment: Experiment, arms: list[Arm], settings: Settings, folder: Path
) -> dict[tuple[str, int], Any]:
    """Returns the results by name and seed; all runs use the first seed before any uses the second."""
    results = {}
    planned = [(seed, arm) for seed in settings.all_seeds for arm in arms]
    for number, (seed, arm) in enumerate(planned, 1):
        suffix = f", seed {seed}" if len(settings.all_seeds) > 1 else ""
        log.info("%s, run %d of %d: %s%s", experiment.name, number, len(planned), arm.name, suffix)
        figures = run_arm(arm, settings, folder, seed, experiment.measure)["figures"]
        if experiment.derive is not None and "failed" not in figures:
            figures = figures | experiment.derive(figures)
        results[arm.name, seed] = figures
    return results


def _baselines(folder: Path, arm: Arm, settings: Settings) -> Rows:
    """Returns results of raw pixels and the untrained network, which depend on the seed by split and initial weights."""
    measured: list[Rows] = []
    for seed in settings.all_seeds:
        run = arm_folder(arm, settings, folder, seed)
        path = folder / ("baselines.json" if seed == settings.seed else f"baselines-seed{seed}.json")
        if path.is_file():
            measured.append(read_object(path, {"untrained": table, "raw_pixels": table}))
        elif run.config.is_file():
            measured.append(measure_baselines(run, settings.draws))
            write_json(path, measured[-1])
    return {name: mean_over_seeds([rows[name] for rows in measured]) for name in measured[0]}


def _protocol(run: Path) -> dict[str, Any]:
    config = load_config(RunFolder(run).config)
    return {
        "encoder": config.encoder,
        "encoder width": config.encoder_width,
        "image size": config.image_size,
        "batch size": config.batch_size,
        "split": read_data(RunFolder(run)).get("split"),
        "kNN": f"weighted by exp(cos/{config.knn_sigma:g}), k = {config.knn_k}, features before the head",
        "linear": "logistic regression on frozen features, C chosen on a held-out part of the training images",
        "few-shot": "mean over draws of 1, 5 or 10 labeled images per class",
    }


def mean_over_seeds(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means of the results, ``NAME_std`` (n − 1) for every number, and ``seeds``, the number of runs.

    Lists and tables of the same shape are averaged element by element; anything else is taken from the first run. Runs
    that ``failed`` are counted in ``failed_seeds`` and left out; if all failed, the first one is returned.
    """
    finished = [run for run in runs if "failed" not in run]
    if not finished or len(runs) == 1:
        return dict(runs[0])
    means: dict[str, Any] = {}
    for key in finished[0]:
        values = [run.get(key) for run in finished]
        means[key] = _mean(values)
        numbers = [float(value) for value in values if value is not None and _is_number(value)]
        if _is_number(means[key]) and len(numbers) > 1:
            means[f"{key}_std"] = deviation(numbers)
    failed = len(runs) - len(finished)
    return means | {"seeds": len(finished)} | ({"failed_seeds": failed} if failed else {})


def _mean(values: Sequence[Any]) -> Any:
    """Returns the mean of numbers, of lists element by element, or of tables key by key; else the first value."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if all(_is_number(value) for value in present):
        return present[0] if len(set(present)) == 1 else math.fsum(present) / len(present)
    if all(isinstance(value, list) for value in present) and len({len(value) for value in present}) == 1:
        return [_mean(place) for place in zip(*present, strict=True)]
    if all(isinstance(value, dict) for value in present):
        return {key: _mean([value.get(key) for value in present]) for key in present[0]}
    return present[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
