"""The runs of an experiment: settings that they share, and one run with its record."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.ground.files import write_json
from coulomb.ground.reading import maybe, read_object, table
from coulomb.training.launch import resume, start
from coulomb.training.plan.plan import Plan
from coulomb.training.plan.preflight import estimate
from coulomb.training.plan.resolve import AnyPlan, resolve
from coulomb.training.record.folder import RunFolder
from coulomb_lab.measure import measure

TAIL = "exponential:100"
RECORD = {"asked": table, "figures": maybe(table)}
Measure = Callable[[RunFolder, Plan], dict[str, Any]]  # what an experiment measures in addition

log = logging.getLogger("coulomb")


@dataclass(frozen=True)
class Settings:
    """Settings that all runs of an experiment share.

    Args:
        data, test: images with labels, as for training.
        out: folder that gets a subfolder for each experiment.
        quick: a few epochs per run, about three minutes in total for digits on two cores.
        epochs: epochs of every run; by default set by each method's recipe.
        budget: minutes of training per run, in place of epochs; a short measurement converts them to epochs.
        seed: seed of all random draws; the first of several.
        seeds: number of seeds; results are then mean ± standard deviation. By default 3, or 1 for a quick run.
        long_tail: split of the experiments ``longtail`` and ``imbalance``.
        only: names of runs; by default all.
        options: further options of training for all runs.
    """

    data: str = "digits"
    test: str | None = None
    out: Path = Path("runs/lab")
    quick: bool = False
    epochs: int | None = None
    budget: float | None = None
    seed: int = 0
    seeds: int | None = None
    long_tail: str = TAIL
    only: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = [name for name in ("quick", "epochs", "budget") if getattr(self, name)]
        if len(lengths) > 1:
            raise InputError(f"{' and '.join(lengths)}: each sets the length of the training; give one of them")
        if self.budget is not None and not 0 < self.budget < float("inf"):
            raise InputError(f"budget={self.budget!r}: must be a positive number of minutes")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs={self.epochs!r}: must be at least 1")
        if self.seeds is not None and self.seeds < 1:
            raise InputError(f"seeds={self.seeds!r}: must be at least 1")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds that every run is repeated with."""
        return tuple(range(self.seed, self.seed + (self.seeds or (1 if self.quick else 3))))

    @property
    def digits(self) -> bool:
        """True for the built-in digits, whose kNN accuracy is near its ceiling before any training."""
        return self.data == "digits"

    @property
    def headline(self) -> str:
        """The result that claims are checked with: 5 labels per class for digits, kNN for other data."""
        return "few_5" if self.digits else "knn"

    @property
    def draws(self) -> int:
        """Draws of the few-shot evaluation."""
        return 5 if self.quick else 20


@dataclass(frozen=True)
class Arm:
    """A run: its ``name`` (folder and row) and its training options; ``quick``: its epochs with ``--quick`` on digits."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    quick: int = 10

    def training_options(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Returns all options that differ from the recipe."""
        options: dict[str, Any] = {"data": settings.data, "seed": seed}
        if settings.test is not None:
            options["test"] = settings.test
        epochs = settings.epochs or (self.quick if settings.quick and settings.digits else None)
        if epochs is not None:
            options["epochs"] = epochs
        own = settings.options.get("method_options", {}) | self.options.get("method_options", {})
        return options | settings.options | self.options | ({"method_options": own} if own else {})


def arm_folder(arm: Arm, settings: Settings, folder: Path, seed: int) -> RunFolder:
    """Returns ``NAME/`` for the first seed, ``NAME-seed1/`` and so on for the others."""
    return RunFolder(folder / (arm.name if seed == settings.seed else f"{arm.name}-seed{seed}"))


def run_arm(
    arm: Arm, settings: Settings, folder: Path, seed: int | None = None, measure_more: Measure | None = None
) -> dict[str, Any]:
    """Trains and measures a run, unless its record exists already; an interrupted run is resumed. Returns the record.

    The record ``NAME.json`` has the options and, in the end, the results, including the results of ``measure_more``. ``NAME/``
    is an ordinary run folder.

    Raises:
        InputError: the record is of a run with other options.
    """
    seed = settings.seed if seed is None else seed
    run = arm_folder(arm, settings, folder, seed)
    record_path = folder / f"{run.path.name}.json"
    options = arm.training_options(settings, seed)
    about = {"asked": options, "budget": settings.budget, "draws": settings.draws}
    record: dict[str, Any] = read_object(record_path, RECORD) if record_path.is_file() else about | {"figures": None}
    if any(record.get(key) != value for key, value in about.items()):
        raise InputError(
            f"{record_path}: the options differ ({_differences(record, about)}); give another --out, or remove the file"
        )
    if record["figures"] is not None:
        log.info("%s: already finished", run.path.name)
        return record
    write_json(record_path, record)
    try:
        plan = _train(options, settings, run)
        results = measure(run, plan, settings.draws)
        record["figures"] = results if measure_more is None else results | measure_more(run, plan)
    except NonFiniteError as error:
        record["figures"] = {"failed": str(error)}
    except BaseException:
        if not run.path.exists():  # nothing was trained: the corrected command may use the same folder
            record_path.unlink()
        raise
    write_json(record_path, record)
    return record


def _train(options: dict[str, Any], settings: Settings, run: RunFolder) -> Plan:
    if run.config.is_file():
        return of_images(resume(run.path, options, progress=False)[1])
    if run.path.exists():
        shutil.rmtree(run.path)  # stopped before training began: only an empty folder and a log
    options = options | {"out": str(run.path)}
    minutes = settings.budget or (0.12 if settings.quick and not settings.digits else None)
    if minutes is not None and "epochs" not in options:
        options["epochs"] = epochs_within(options, minutes)
    return of_images(start(options, progress=False)[1])


def of_images(plan: AnyPlan) -> Plan:
    """Returns the plan of a run on images, as all experiments are."""
    return cast(Plan, plan)


def epochs_within(options: dict[str, Any], minutes: float) -> int:
    """Returns how many epochs, at least 1, take ``minutes`` on this machine.

    Estimated from a few steps, so approximate on a busy machine; the table shows the actual time.
    """
    plan = resolve(options)
    return max(1, int(60 * minutes / (estimate(plan)["seconds_per_step"] * plan.steps_per_epoch)))


def _differences(record: dict[str, Any], about: dict[str, Any]) -> str:
    before, now = (
        {**part.get("asked", {}), **{k: part.get(k) for k in ("budget", "draws")}} for part in (record, about)
    )
    different = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    return ", ".join(f"{key} {before.get(key)!r} then, {now.get(key)!r} now" for key in different)


def select_arms(arms: list[Arm], only: tuple[str, ...] | None) -> list[Arm]:
    """Returns the runs with the given names, or all of them.

    Raises:
        InputError: a name does not exist.
    """
    if only is None:
        return arms
    names = [arm.name for arm in arms]
    for name in only:
        if name not in names:
            raise InputError(f"only={name!r}: no such run; there are {', '.join(names)}")
    return [arm for arm in arms if arm.name in only]
