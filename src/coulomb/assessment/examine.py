"""The doctor's visit: what a run folder holds becomes evidence, and the verdicts are written into it."""

import dataclasses
import logging
from typing import Any

from coulomb.assessment.examine_data import copies
from coulomb.assessment.examine_network import network_figures
from coulomb.doctor import Evidence, diagnose
from coulomb.reading import read_lines
from coulomb.runs.config import load_config
from coulomb.runs.contents import read_data, read_evaluation
from coulomb.runs.journal import read_metrics
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Prepared
from coulomb.runs.run_folder import RunFolder, write_json
from coulomb.training.launch import reopen

log = logging.getLogger("coulomb")


def examine(
    folder: RunFolder,
    prepared: Prepared | None = None,
    objects: Objects | None = None,
    *,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Judge a run, write ``doctor.json``, and return its content; see `coulomb.doctor.diagnose.diagnose`.

    Args:
        folder: the run; it may still be training, or have stopped.
        prepared: the run's data, when at hand; else opened again as ``config.yaml`` says.
        objects: what the run was handed over in Python, if anything.
        quick: from the files of the folder alone: neither images nor checkpoint are opened, and the rules that need them
            answer "unknown".
        progress: show what goes on.

    Raises:
        InputError: the folder is no run, or its data changed.
    """
    folder.require()
    result = diagnose(evidence_of(folder, prepared, objects or Objects(), quick=quick, progress=progress))
    write_json(folder.doctor, result)
    return result


def evidence_of(
    folder: RunFolder, prepared: Prepared | None, objects: Objects, *, quick: bool, progress: bool = True
) -> Evidence:
    """All that rules may look at."""
    config = load_config(folder.config)
    data = read_data(folder)
    network: dict[str, Any] = {}
    method = None if quick and objects.method is None else objects.method_of(config)
    if not quick:
        if prepared is None:
            config, prepared = reopen(folder, objects, progress=progress)
        views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
        data = data | {"train": len(prepared.train.indices), "class_counts": prepared.class_counts}
        data |= copies(prepared, views, config.seed)
        network = network_figures(config, folder, prepared, objects, views)
    return Evidence(
        config=dataclasses.asdict(config),
        metrics=read_metrics(folder.metrics),
        evaluation=read_evaluation(folder) if folder.evaluation.exists() else None,
        data=data,
        network=network,
        failed=stopped_by(folder),
        needs_labels=None if method is None else bool(getattr(method, "needs_labels", False)),
    )


def stopped_by(folder: RunFolder) -> str | None:
    """What ended the training, if its last word in ``train.log`` is of NaN or infinite values."""
    if not folder.log.exists():
        return None
    told = None
    for line in (content.decode("utf-8", errors="replace").rstrip("\r\n") for content in read_lines(folder.log)):
        if "stopped: NonFiniteError" in line:
            told = line.partition("NonFiniteError: ")[2].partition(". ")[0]
        elif " INFO trained " in line:
            told = None
    return told
