"""The loggers of a run: Lightning's own, opened by name, and continued when the run is resumed."""

import dataclasses
import importlib.util
import logging
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, WandbLogger

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.reading import RESTORE, Shape, maybe, read_object
from coulomb.training.plan.config import Config
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.journal import Journal

log = logging.getLogger("coulomb")
Opened = TypeVar("Opened")

PACKAGES = {"wandb": "wandb", "mlflow": "mlflow"}  # names of loggers that need another package, and its name
ID = Shape("letters and digits", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w-]{1,64}", value)))
IDS = {name: maybe(ID) for name in PACKAGES}
PROJECT = "coulomb"  # of wandb, and experiment of mlflow, unless their environment variables name another


def require_logger(name: str | None) -> None:
    """Raises `InputError` if the package of a logger is not installed."""
    package = PACKAGES.get(name or "")
    if package is not None and importlib.util.find_spec(package) is None:
        raise InputError(f"logger={name!r}: needs the package {package}; install it: pip install 'coulomb[{name}]'")


class RunLoggers:
    """The loggers of a run besides TensorBoard's files, which the journal writes itself.

    Args:
        config: the options of the run; ``config.logger`` names the logger.
        folder: the run. ``loggers.json`` there holds the ids under which wandb and mlflow know the run.
        own: the user's logger objects, in place of a name.
        resumed: whether the run is resumed.
    """

    def __init__(self, config: Config, folder: RunFolder, own: Sequence[Logger] = (), *, resumed: bool = False):
        self.config, self.folder, self.resumed = config, folder, resumed
        self.ids = read_object(folder.loggers, IDS, remedy=RESTORE) if folder.loggers.exists() else {}
        self.own, self.opened = list(own), list[Logger]()

    def _make(self) -> list[Logger]:
        name, path = self.config.logger, self.folder.path
        if name == "csv":
            return [CSVLogger(path, name="csv", version="")]
        if name == "wandb":
            run_id = self.ids.get("wandb") or secrets.token_hex(4)
            project = os.environ.get("WANDB_PROJECT", PROJECT)
            # Not in the run folder: wandb makes links that lead out of it.
            return [WandbLogger(name=path.name, project=project, save_dir=os.environ.get("WANDB_DIR", "."), id=run_id)]
        if name == "mlflow":
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            store, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
            if not store:  # a database, because mlflow 3 refuses its older store of files
                store, artifacts = f"sqlite:///{path.resolve() / 'mlflow.db'}", (path.resolve() / "mlflow").as_uri()
            return [
                MLFlowLogger(
                    experiment,
                    run_name=path.name,
                    tracking_uri=store,
                    artifact_location=artifacts,
                    run_id=self.ids.get("mlflow"),
                )
            ]
        return []

    def _begins(self, logger: Logger) -> bool:
        """Whether the log of a logger that is open is empty. Lightning's logger of CSV files removes an earlier file."""
        if isinstance(logger, CSVLogger):
            return not Path(logger.experiment.metrics_file_path).exists()
        return not self.ids.get(self.config.logger) if logger in self.opened else not self.resumed

    @contextmanager
    def during(self, trainer: pl.Trainer, journal: Journal) -> Iterator[None]:
        """Opens the loggers for ``trainer`` and ``journal``, in the first process, and closes those that have a name after.

        Raises:
            InputError: a logger cannot be opened.
        """
        if not trainer.is_global_zero:
            trainer.loggers = self.own
            yield
            return
        self.opened = [] if self.own else self._opening(self._make)
        trainer.loggers = [*self.own, *self.opened]
        for logger in trainer.loggers:
            self._opening(self._open, logger)
        journal.loggers = list(trainer.loggers)
        journal.new_loggers = [logger for logger in journal.loggers if self._begins(logger)] if self.resumed else []
        if self.opened and self.config.logger in PACKAGES:
            write_json(self.folder.loggers, self.ids | {self.config.logger: str(self.opened[0].version)})
        failed = True
        try:
            yield
            failed = False
        finally:
            for logger in self.opened:
                if isinstance(logger, WandbLogger):  # the next run of this process would be added to it
                    logger.experiment.finish(exit_code=int(failed))
                elif isinstance(logger, MLFlowLogger) and failed:
                    logger.finalize("KILLED")

    def _open(self, logger: Logger) -> None:
        with warnings.catch_warnings():
            # The log of a resumed run is written again from metrics.jsonl.
            warnings.filterwarnings("ignore", message="Experiment logs directory.*exists and is not empty")
            getattr(logger, "experiment", None)  # Lightning's open with it
        if self._begins(logger):
            logger.log_hyperparams(dataclasses.asdict(self.config))

    def _opening(self, step: Callable[..., Opened], *args: Any) -> Opened:
        try:
            return step(*args)
        except Exception as error:  # accounts, servers, databases: many types
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            offline = "; without an account or network set WANDB_MODE=offline" if self.config.logger == "wandb" else ""
            raise InputError(
                f"logger={self.config.logger!r}: cannot be opened ({type(error).__name__}: {reason}){offline}; "
                "or choose another logger, such as csv"
            ) from error
