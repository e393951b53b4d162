"""An experiment: a question, the runs that answer it, and claims that are checked against the results."""

import logging
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coulomb.data import open_source
from coulomb.errors import InputError
from coulomb.lab.arms import Arm, More, Settings, folder_of, named, run_arm
from coulomb.lab.claims import Rows
from coulomb.lab.measure import baselines
from coulomb.reading import read_object, table
from coulomb.runs.config import load_config
from coulomb.runs.folder import RunFolder, read_data, write_json
from coulomb.runs.provenance import environment
from coulomb.runs.seeds import deviation


def over_seeds(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means of the figures, with ``NAME_std`` (n − 1) beside every number of them, and ``seeds``, how many there are.

    Lists and tables are averaged place by place where they have one shape; what is no number is the first run's. Runs that
    ``failed`` are left out and counted in ``failed_seeds``; where all did, the first says why.
    """
    well = [run for run in runs if "failed" not in run]
    if not well:
        return dict(runs[0])
    if len(runs) == 1:
        return dict(runs[0])
    found: dict[str, Any] = {}
    for key in well[0]:
        values = [run.get(key) for run in well]
        found[key] = mean_of(values)
        numbers = [float(value) for value in values if value is not None and _number(value)]
        if _number(found[key]) and len(numbers) > 1:
            found[f"{key}_std"] = deviation(numbers)
    return found | {"seeds": len(well)} | ({"failed_seeds": len(runs) - len(well)} if len(well) < len(runs) else {})


def mean_of(values: Sequence[Any]) -> Any:
    """The mean of numbers (those that are there), of lists place by place, of tables by key; else the first."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if all(_number(value) for value in there):
        return there[0] if len(set(there)) == 1 else math.fsum(there) / len(there)
    if all(isinstance(value, list) for value in there) and len({len(value) for value in there}) == 1:
        return [mean_of(place) for place in zip(*there, strict=True)]
    if all(isinstance(value, dict) for value in there):
        return {key: mean_of([value.get(key) for value in there]) for key in there[0]}
    return there[0]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


log = logging.getLogger("coulomb")

QUICK = "A quick look: a few epochs each; signs may turn round in a longer training. Judge by a run without --quick."


@dataclass(frozen=True)
class Experiment:
    """What the lab can do.

    Args:
        name, title, question: for people.
        arms: the runs for some settings; none where nothing is trained.
        judge: figures by row (means over the seeds) → claims, charts and notes, and perhaps tables.
        columns: (key of the figures, heading, how it is written: percent, figure, count, duration or text).
        baselines: measure raw pixels and the untrained network as well.
        more: further figures measured of each finished run, kept with its others.
        derive: figures that follow from others, made anew each time; they have a deviation over seeds like the others.
    """

    name: str
    title: str
    question: str
    arms: Callable[[Settings], list[Arm]]
    judge: Callable[[Rows, Settings], dict[str, Any]]
    columns: tuple[tuple[str, str, str], ...]
    baselines: bool = True
    more: More | None = None
    derive: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def perform(experiment: Experiment, settings: Settings, command: list[str] | None = None) -> dict[str, Any]:
    """Do every run that is not finished yet, judge, and return the result, ready for JSON.

    Finished runs are kept, and one that was interrupted is resumed: the same call goes on where the last one stopped.

    Raises:
        InputError: the folder holds runs of other settings, or the data have no labels.
    """
    folder = settings.out / experiment.name
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out={str(settings.out)!r}: {folder} is a file; give another folder")
    arms = named(experiment.arms(settings), settings.only)
    if arms:
        require_labels(settings)
    folder.mkdir(parents=True, exist_ok=True)
    runs = _runs(experiment, arms, settings, folder)
    rows: Rows = {arm.name: over_seeds([runs[arm.name, seed] for seed in settings.all_seeds]) for arm in arms}
    first = next((arm for arm in arms if "failed" not in runs[arm.name, settings.seed]), None)
    if experiment.baselines and first is not None:
        rows |= _baselines(folder, first, settings)
    judged = experiment.judge({name: found for name, found in rows.items() if "failed" not in found}, settings)
    judged["notes"] = [*judged["notes"], *([QUICK] if settings.quick and rows else [])]
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
        **judged,
    }
    write_json(folder / "result.json", result)
    return result


def require_labels(settings: Settings) -> None:
    """Refuse data without labels before anything is trained on them."""
    for name, data in (("data", settings.data), ("test", settings.test)):
        if data is not None and open_source(data, labels=settings.options.get("labels")).labels is None:
            raise InputError(f"{name}={data!r}: has no labels; experiments are judged by labels")


def _runs(experiment: Experiment, arms: list[Arm], settings: Settings, folder: Path) -> dict[tuple[str, int], Any]:
    """Figures by name and seed; every run with the first seed, then with the second, and so on."""
    found = {}
    planned = [(seed, arm) for seed in settings.all_seeds for arm in arms]
    for number, (seed, arm) in enumerate(planned, 1):
        told = f", seed {seed}" if len(settings.all_seeds) > 1 else ""
        log.info("%s, run %d of %d: %s%s", experiment.name, number, len(planned), arm.name, told)
        figures = run_arm(arm, settings, folder, seed, experiment.more)["figures"]
        if experiment.derive is not None and "failed" not in figures:
            figures = figures | experiment.derive(figures)
        found[arm.name, seed] = figures
    return found


def _baselines(folder: Path, arm: Arm, settings: Settings) -> Rows:
    """Raw pixels and the untrained network, which differ by seed too: by the split and the first weights."""
    found: list[Rows] = []
    for seed in settings.all_seeds:
        run = folder_of(arm, settings, folder, seed)
        path = folder / ("baselines.json" if seed == settings.seed else f"baselines-seed{seed}.json")
        if path.is_file():
            found.append(read_object(path, {"untrained": table, "raw_pixels": table}))
        elif run.config.is_file():
            found.append(baselines(run, settings.draws))
            write_json(path, found[-1])
    return {name: over_seeds([rows[name] for rows in found]) for name in found[0]}


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
        "few-shot": "mean over draws of 1, 5 or 10 labelled images a class",
    }
