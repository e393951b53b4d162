"""An experiment: a question, runs that answer it, claims judged by what was measured."""

import logging
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.lab.arms import Arm, named, run_arm
from coulomb.lab.claims import Rows
from coulomb.lab.measure import baselines
from coulomb.lab.settings import Settings
from coulomb.training.config import load_config
from coulomb.training.environment import environment
from coulomb.training.run_folder import RunFolder, read_json, write_json

log = logging.getLogger("coulomb")


@dataclass(frozen=True)
class Experiment:
    """What the lab can do.

    Args:
        name, title, question: for people.
        arms: the runs for some settings.
        judge: figures by row → claims, charts and notes.
        columns: (key of the figures, heading, how it is written: percent, figure, count, duration or text).
        baselines: measure raw pixels and the untrained network as well.
    """

    name: str
    title: str
    question: str
    arms: Callable[[Settings], list[Arm]]
    judge: Callable[[Rows, Settings], dict[str, Any]]
    columns: tuple[tuple[str, str, str], ...]
    baselines: bool = True


def perform(experiment: Experiment, settings: Settings, command: list[str] | None = None) -> dict[str, Any]:
    """Do every run that is not finished yet, judge, and return the result, ready for JSON.

    Finished runs are kept, and one that was interrupted is resumed: the same call goes on where the last one stopped.

    Raises:
        InputError: the folder holds runs of other settings, or the data have no labels.
    """
    folder = settings.out / experiment.name
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out={str(settings.out)!r}: {folder} is a file; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    arms = named(experiment.arms(settings), settings.only)
    rows: Rows = {}
    for number, arm in enumerate(arms, 1):
        log.info("%s, run %d of %d: %s", experiment.name, number, len(arms), arm.name)
        rows[arm.name] = run_arm(arm, settings, folder)["figures"]
    first = next((arm for arm in arms if "failed" not in rows[arm.name]), None)
    if experiment.baselines and first is not None:
        rows |= _baselines(folder, RunFolder(folder / first.name), settings)
    ends = {name: found for name, found in rows.items() if "failed" not in found}
    result = {
        "experiment": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "settings": {**asdict(settings), "out": str(settings.out)},
        "command": shlex.join(command) if command else None,
        "columns": [list(column) for column in experiment.columns],
        "rows": rows,
        "arms": {arm.name: arm.options for arm in arms},
        "protocol": _protocol(folder / first.name) if first else {},
        "environment": environment(),
        **experiment.judge(ends, settings),
    }
    write_json(folder / "result.json", result)
    return result


def _baselines(folder: Path, run: RunFolder, settings: Settings) -> Rows:
    path = folder / "baselines.json"
    if path.is_file():
        found: Rows = read_json(path)
    else:
        found = baselines(run, settings.draws)
        write_json(path, found)
    return found


def _protocol(run: Path) -> dict[str, Any]:
    config = load_config(RunFolder(run).config)
    return {
        "encoder": config.encoder,
        "encoder width": config.encoder_width,
        "image size": config.image_size,
        "batch size": config.batch_size,
        "split": read_json(RunFolder(run).data)["split"],
        "kNN": f"weighted by exp(cos/{config.knn_sigma:g}), k = {config.knn_k}, features before the head",
        "linear": "logistic regression on frozen features, C chosen on a held-out part of the training images",
        "few-shot": "mean over draws of 1, 5 or 10 labelled images a class",
        "seed": config.seed,
    }
