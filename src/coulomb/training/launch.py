"""The start of a run: new, resumed, or joined by an additional process."""

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from coulomb.ground.errors import InputError, NonFiniteError, Stopped
from coulomb.ground.files import locked, write_json
from coulomb.ground.reading import read_object, text
from coulomb.ground.team import Team, torchrun
from coulomb.training.checkpoints import checkpoint_to_resume
from coulomb.training.fit import fit
from coulomb.training.fit_columns import fit_columns
from coulomb.training.layout import resumed_on, with_processes
from coulomb.training.loop import JOINED
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.given import Given
from coulomb.training.plan.resolve import AnyPlan, reopen_run, resolve_run
from coulomb.training.record.folder import RunFolder, command_for
from coulomb.training.record.journal import read_metrics
from coulomb.training.record.loggers import require_logger
from coulomb.training.record.provenance import environment
from coulomb.training.stopping import Signals, stoppable
from coulomb.training.watching.records import CorruptImages, MakeWatcher, train_log

log = logging.getLogger("coulomb")


def start(
    options: Given | Mapping[str, Any], *, watch: MakeWatcher | None = None, progress: bool = True
) -> tuple[RunFolder, AnyPlan]:
    """Resolves the plan of a run, creates its folder, decodes the images and trains.

    A run that ends before its first update, for any reason, leaves no files. ``watch`` makes the live checks, see `fit`.

    Raises:
        InputError: an argument is wrong.
        NonFiniteError: the loss became NaN or infinite.
        Stopped: Ctrl-C or SIGTERM.
    """
    given = Given.of(options)
    out = given.named.get("out")
    team = Team.meet(given.named.get("process_timeout", Config.process_timeout))
    if not first_process():
        return join(out, given, team, watch=watch)
    with team.leading() as tell:
        given = with_processes(given)
        if out is not None and same_job(out) and RunFolder(out).environment.exists():
            return _resume(RunFolder(out), given, tell, None, None, watch=watch, progress=progress)
        return _start(out, given, tell, watch=watch, progress=progress)


def _start(
    out: str | None, given: Given, tell: Callable[[str], Any], *, watch: MakeWatcher | None, progress: bool
) -> tuple[RunFolder, AnyPlan]:
    """`start` in the first process; ``tell`` sends the folder to the others, when they can join."""
    require_logger(given.named.get("logger"))
    if out is not None and not same_job(out):
        RunFolder(out).refuse_existing()  # before minutes are spent on the data
    plan = resolve_run(given)  # raises all errors that do not depend on decoding
    config = plan.config
    folder = RunFolder(str(config.out))
    folder.create()
    if (job := torchrun()) is not None:
        write_json(folder.job, {"job": job.job})
    with (
        locked(folder.lock),
        removed_if_untrained(folder),
        train_log(folder.log),
        stoppable(partial(stopped_sentence, folder, new=True)) as signals,
    ):
        plan.announce()
        plan = plan.decoded(progress=progress)
        config.save(folder.config)
        corrupt = CorruptImages(plan.stores, config.max_corrupt)
        write_json(folder.data, plan.describe(corrupt.listed()))
        write_json(folder.split, plan.split_record())
        write_json(folder.environment, environment())
        tell(str(folder.path))
        train_plan(plan, folder, corrupt, signals, given, checkpoint=None, watch=watch, progress=progress)
    return folder, plan


def train_plan(plan: AnyPlan, *args: Any, **named: Any) -> None:
    """Trains as a plan says: `coulomb.training.fit.fit` of images, `coulomb.training.fit_columns.fit_columns` of columns."""
    if isinstance(plan, ColumnsPlan):
        fit_columns(plan, *args, **named)
    else:
        fit(plan, *args, **named)


def same_job(out: str | Path | None) -> bool:
    """Returns True if torchrun started this process again, after it began the run in ``out``: the run then continues."""
    job = torchrun()
    if job is None or out is None or not (file := RunFolder(out).job).exists():
        return False
    begun = read_object(file, {"job": text})["job"]
    return job.restarts > 0 or (begun == job.job and begun != "none")


@contextmanager
def removed_if_untrained(folder: RunFolder) -> Iterator[None]:
    """Removes the new ``folder`` if the block raises before the first update."""
    try:
        yield
    except NonFiniteError:
        raise  # the message names a file in the folder
    except BaseException:
        if untrained(folder):
            folder.discard()
        raise


def untrained(folder: RunFolder) -> bool:
    """Returns True if the run in ``folder`` made no update and computed no features."""
    if folder.features.exists():
        return False
    return not folder.checkpoint.exists() and not any(line["step"] for line in read_metrics(folder.metrics))


def stopped_sentence(folder: RunFolder, signals: Signals, *, new: bool = False) -> str:
    """Returns the message after a signal stopped the run; ``new``: `removed_if_untrained` applies."""
    if new and untrained(folder):
        return "stopped before the first update; no files were written"
    step = "before its first checkpoint" if signals.step is None else f"at step {signals.step}"
    return f"stopped {step}; resume with: {command_for('train --resume', folder.path)}"


def resume(
    path: str | Path,
    options: Given | Mapping[str, Any] | None = None,
    *,
    watch: MakeWatcher | None = None,
    progress: bool = True,
) -> tuple[RunFolder, AnyPlan]:
    """Resumes a run from its last checkpoint, with the options in its ``config.yaml``.

    If ``last.ckpt`` is damaged, the run resumes from ``previous.ckpt``, with a warning. Of ``options``, those count that the
    folder does not hold (see `reopen`), and ``devices`` and ``num_nodes``, other numbers of processes and machines than those
    that the run began with; each step keeps its images.
    """
    folder, given = RunFolder(path), Given.of(options or {})
    devices, num_nodes = given.named.get("devices"), given.named.get("num_nodes")
    team = Team.meet(load_config(folder.config).process_timeout if torchrun() and folder.config.is_file() else None)
    if not first_process():
        return join(path, given, team, devices, num_nodes, watch=watch)
    with team.leading() as tell:
        return _resume(folder, given, tell, devices, num_nodes, watch=watch, progress=progress)


def _resume(
    folder: RunFolder,
    given: Given,
    tell: Callable[[str], Any],
    devices: int | None,
    num_nodes: int | None,
    *,
    watch: MakeWatcher | None,
    progress: bool,
) -> tuple[RunFolder, AnyPlan]:
    """`resume` in the first process; ``tell`` sends the folder to the others, when they can join."""
    folder.require()
    config = load_config(folder.config)
    require_logger(given.named.get("logger", config.logger))
    resumed_on(config, devices, num_nodes)  # raises errors before anything is written to the folder
    with locked(folder.lock), train_log(folder.log), stoppable(partial(stopped_sentence, folder)) as signals:
        checkpoint, notice = checkpoint_to_resume(folder.checkpoint)
        if notice is not None:
            log.warning("%s", notice)
        plan = _reopened(folder, given, devices, num_nodes, progress=progress)
        corrupt = CorruptImages(plan.stores, plan.config.max_corrupt)
        tell(str(folder.path))
        train_plan(plan, folder, corrupt, signals, given, checkpoint=checkpoint, watch=watch, progress=progress)
    return folder, plan


def _reopened(
    folder: RunFolder, given: Given, devices: int | None, num_nodes: int | None, *, progress: bool
) -> AnyPlan:
    """Returns the plan of an existing run, on other numbers of processes and machines."""
    plan = reopen_run(folder, given, progress=progress, trains=True)
    return dataclasses.replace(plan, config=resumed_on(plan.config, devices, num_nodes))


def join(
    path: str | Path | None,
    given: Given,
    team: Team,
    devices: int | None = None,
    num_nodes: int | None = None,
    *,
    watch: MakeWatcher | None = None,
) -> tuple[RunFolder, AnyPlan]:
    """Joins, as an additional process, a run that the first process has set up."""
    if team.world > 1:
        folder = RunFolder(team.follow())
        if not folder.environment.exists():
            raise InputError(
                f"out={str(folder.path)!r}: the first process has set up the run there, and this machine does not see it; "
                "use a folder that all machines share"
            )
    else:
        folder = _awaited(path or os.environ.get(JOINED))
    try:
        with stoppable(partial(stopped_sentence, folder)) as signals:
            plan = _reopened(folder, given, devices, num_nodes, progress=False)
            corrupt = CorruptImages(plan.stores, plan.config.max_corrupt)
            checkpoint = checkpoint_to_resume(folder.checkpoint)[0]
            train_plan(plan, folder, corrupt, signals, given, checkpoint=checkpoint, watch=watch, progress=False)
    except Stopped:
        # The first process prints the message. With any other exit code, Lightning would kill that process.
        sys.exit(0)
    return folder, plan


def _awaited(path: str | Path | None) -> RunFolder:
    """Returns the folder of a run, when the first process has set it up."""
    if path is None:
        raise InputError("out: missing; several processes need the run folder: add --out")
    folder = RunFolder(path)
    deadline = time.monotonic() + 600
    while not folder.environment.exists():  # the last file that the first process writes before it trains
        if time.monotonic() > deadline:
            raise InputError(f"out={str(path)!r}: the first process has not set up the run within ten minutes")
        time.sleep(0.2)
    return folder


def first_process() -> bool:
    """Returns True if this process sets up the run: the only one, or the first of several on one or more machines."""
    return getattr(rank_zero_only, "rank", 0) == 0 and os.environ.get("NODE_RANK", "0") == "0"
