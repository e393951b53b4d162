"""The runs of an experiment: common settings, and one run with its record."""

import dataclasses
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coulomb.errors import InputError, NonFiniteError
from coulomb.lab.measure import measure
from coulomb.reading import maybe, read_object, table
from coulomb.runs.folder import RunFolder, write_json
from coulomb.runs.objects import Objects
from coulomb.runs.plan import plan
from coulomb.runs.preflight import estimate
from coulomb.runs.prepare import Prepared
from coulomb.training.launch import resume, start

TAIL = "exponential:100"


@dataclass(frozen=True)
class Settings:
    """The same for all runs of an experiment.

    Args:
        data, test: images with labels, as for training.
        out: folder; each experiment has one of its own in it.
        quick: a few epochs each, about three minutes in all on two cores for digits; to see it work, not to judge by.
        epochs: of every run; None: each method's own recipe.
        budget: minutes of training for every run, instead of epochs; a short measurement says how many epochs that is.
        seed: of all; the first of several.
        seeds: how many, one after the other; figures are then mean ± deviation. None: 1 for a quick look, else 3.
        long_tail: split of the experiment ``longtail``.
        only: names of runs; None: all.
        options: any further options of training, for all runs.
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
        chosen = [name for name in ("quick", "epochs", "budget") if getattr(self, name)]
        if len(chosen) > 1:
            raise InputError(f"{' and '.join(chosen)}: each says how long to train; give one of them")
        if self.budget is not None and not 0 < self.budget < float("inf"):
            raise InputError(f"budget={self.budget!r}: minutes, more than 0")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs={self.epochs!r}: must be at least 1")
        if self.seeds is not None and self.seeds < 1:
            raise InputError(f"seeds={self.seeds!r}: must be at least 1")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Every run is done with each of these."""
        return tuple(range(self.seed, self.seed + (self.seeds or (1 if self.quick else 3))))

    @property
    def digits(self) -> bool:
        """Whether the data are the built-in digits, whose kNN is near its ceiling before any training."""
        return self.data == "digits"

    @property
    def headline(self) -> str:
        """The figure that claims are judged by: five labels a class on digits, kNN elsewhere."""
        return "few_5" if self.digits else "knn"

    @property
    def draws(self) -> int:
        """Draws of the few-shot evaluation."""
        return 5 if self.quick else 20


def epochs_for(options: dict[str, Any], minutes: float) -> int:
    """Passes over the training images that ``minutes`` of training allow on this machine, at least 1.

    Measured on a few steps of the configuration that ``options`` make; on a machine with other work it is a rough figure, and
    the time that a run took stands in its row.
    """
    planned = plan(options)
    return max(1, int(60 * minutes / (estimate(planned)["seconds_per_step"] * planned.steps_per_epoch)))


RECORD = {"asked": table, "figures": maybe(table)}
More = Callable[[RunFolder, Prepared], dict[str, Any]]  # what an experiment measures of a run besides

log = logging.getLogger("coulomb")


@dataclass(frozen=True)
class Arm:
    """A run: its ``name`` (folder and row), and the options of training that set it apart.

    ``quick`` is how many epochs ``--quick`` gives it on digits.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    quick: int = 10

    def asked(self, settings: Settings, seed: int) -> dict[str, Any]:
        """All options that are given to training; the rest is the recipe's."""
        asked: dict[str, Any] = {"data": settings.data, "seed": seed}
        if settings.test is not None:
            asked["test"] = settings.test
        epochs = settings.epochs or (self.quick if settings.quick and settings.digits else None)
        if epochs is not None:
            asked["epochs"] = epochs
        own = settings.options.get("method_options", {}) | self.options.get("method_options", {})
        return asked | settings.options | self.options | ({"method_options": own} if own else {})


def folder_of(arm: Arm, settings: Settings, folder: Path, seed: int) -> RunFolder:
    """``NAME/`` of the first seed, ``NAME-seed1/`` and so on of the others."""
    return RunFolder(folder / (arm.name if seed == settings.seed else f"{arm.name}-seed{seed}"))


def run_arm(
    arm: Arm, settings: Settings, folder: Path, seed: int | None = None, more: More | None = None
) -> dict[str, Any]:
    """The arm's figures; from the record beside its run folder where it is finished, continued where it was interrupted.

    ``NAME.json`` holds the options asked for and, in the end, the figures, with those that ``more`` adds; ``NAME/`` is an
    ordinary run folder.

    Raises:
        InputError: the record is of other options.
    """
    seed = settings.seed if seed is None else seed
    run = folder_of(arm, settings, folder, seed)
    record_path = folder / f"{run.path.name}.json"
    asked = arm.asked(settings, seed)
    about = {"asked": asked, "budget": settings.budget, "draws": settings.draws}
    record: dict[str, Any] = read_object(record_path, RECORD) if record_path.is_file() else about | {"figures": None}
    if any(record.get(key) != value for key, value in about.items()):
        raise InputError(
            f"{record_path}: is of another experiment ({_differences(record, about)}); give another --out, or remove it"
        )
    if record["figures"] is not None:
        log.info("%s: finished before", run.path.name)
        return record
    write_json(record_path, record)
    try:
        prepared = _train(asked, settings, run)
        figures = measure(run, prepared, settings.draws)
        record["figures"] = figures if more is None else figures | more(run, prepared)
    except NonFiniteError as error:
        record["figures"] = {"failed": str(error)}
    except BaseException:
        if not run.path.exists():  # nothing was trained: the corrected command may use the same folder
            record_path.unlink()
        raise
    write_json(record_path, record)
    return record


def _train(asked: dict[str, Any], settings: Settings, run: RunFolder) -> Any:
    if run.config.is_file():
        return resume(run.path, Objects().with_options(asked), progress=False)[1]
    if run.path.exists():
        shutil.rmtree(run.path)  # stopped before it had begun: nothing is in it but an empty folder and a log
    options = asked | {"out": str(run.path)}
    minutes = settings.budget or (0.12 if settings.quick and not settings.digits else None)
    if minutes is not None and "epochs" not in options:
        options["epochs"] = epochs_for(options, minutes)
    return start(options, Objects(), progress=False)[1]


def _differences(record: dict[str, Any], about: dict[str, Any]) -> str:
    before, now = (
        {**part.get("asked", {}), **{k: part.get(k) for k in ("budget", "draws")}} for part in (record, about)
    )
    different = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    return ", ".join(f"{key} {before.get(key)!r} then, {now.get(key)!r} now" for key in different)


def named(arms: list[Arm], only: tuple[str, ...] | None) -> list[Arm]:
    """The arms asked for by name.

    Raises:
        InputError: a name that is none.
    """
    if only is None:
        return arms
    known = [arm.name for arm in arms]
    for name in only:
        if name not in known:
            raise InputError(f"only={name!r}: no such run; there are {', '.join(known)}")
    return [arm for arm in arms if arm.name in only]


def described(arm: Arm) -> dict[str, Any]:
    """For JSON."""
    return dataclasses.asdict(arm)
