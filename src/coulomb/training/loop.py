"""The loop that every run shares: the trainer, the order of the samples, the callbacks, and what a stop means."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import lightning.pytorch as pl
import torch

from coulomb.ground.errors import InputError, LostProcessError, counted
from coulomb.ground.files import write_json
from coulomb.ground.machine import keep_freed_memory
from coulomb.ground.team import is_lost_connection
from coulomb.methods import Method
from coulomb.tables import Samples
from coulomb.training.batch_norm import describe_batch_norms, share_batch_norms
from coulomb.training.checkpoint_callback import Checkpoints, SignalHandlers
from coulomb.training.checkpoints import does_not_fit
from coulomb.training.layout import make_trainer, require_shares
from coulomb.training.module import ContrastiveTraining
from coulomb.training.network import compile_encoders
from coulomb.training.order import ColumnViews, RunLoader, RunOrder
from coulomb.training.own_callbacks import OwnCallbacks
from coulomb.training.plan.given import Given
from coulomb.training.plan.resolved import Resolved
from coulomb.training.record.folder import RunFolder, command_for
from coulomb.training.record.journal import Journal
from coulomb.training.record.loggers import RunLoggers
from coulomb.training.stay_close import StayClose
from coulomb.training.stopping import Signals
from coulomb.training.watching.pulse import Pulse
from coulomb.training.watching.records import CorruptImages, TrainingFigures, progress_callbacks

log = logging.getLogger("coulomb")

JOINED = "COULOMB_JOIN_RUN"  # environment variable with the run folder, for the processes that Lightning starts


class Loop:
    """The training loop of one run, in one of its processes.

    Args:
        plan: what the run will do.
        folder: where it is recorded.
        corrupt: collects samples that cannot be read.
        signals: of the process.
        given: the user's callbacks and loggers.
        checkpoint: to resume from, see `coulomb.training.checkpoints.checkpoint_to_resume`; None for a new run.
        progress: show progress bars.

    Attributes:
        trainer: Lightning's trainer.
        order: the order of the samples.
        journal: writes ``metrics.jsonl``.
    """

    def __init__(
        self,
        plan: Resolved,
        folder: RunFolder,
        corrupt: CorruptImages,
        signals: Signals,
        given: Given,
        *,
        checkpoint: Path | None,
        progress: bool = True,
    ) -> None:
        keep_freed_memory()
        os.environ[JOINED] = str(folder.path)
        self.plan, self.folder, self.corrupt, self.signals = plan, folder, corrupt, signals
        self.checkpoint, self.progress = checkpoint, progress
        with quiet_lightning():
            self.trainer = make_trainer(plan.config, folder.path)
        require_shares(plan, self.trainer.world_size)
        self.order = RunOrder(
            plan.learned,
            plan.batch,
            plan.config.epochs,
            plan.config.seed,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            sampler=plan.config.sampler,
            labels=plan.learned_labels,
            blocks=plan.blocks,
        )
        with_events = self.first and plan.config.logger == "tensorboard"
        self.journal = Journal(folder.metrics, folder.path / "tensorboard" if with_events else None)
        self.loggers = RunLoggers(plan.config, folder, given.loggers, resumed=checkpoint is not None)
        self.own = OwnCallbacks(given.callbacks, self.journal, folder.checkpoint.parent)

    @property
    def first(self) -> bool:
        """Whether this is the first process, which writes the files."""
        return bool(self.trainer.is_global_zero)

    @property
    def device(self) -> torch.device:
        """Where this process trains."""
        return self.trainer.strategy.root_device

    def run(
        self,
        method: Method,
        samples: Samples,
        views: Mapping[str, ColumnViews],
        watchers: list[pl.Callback],
        stay_close: StayClose | None = None,
    ) -> ContrastiveTraining:
        """Trains ``method`` on ``samples``, with ``views`` by column; returns the trained module.

        ``watchers``: callbacks that measure and record, after the pulse and the figures of each update.

        Raises:
            InputError: the logger cannot be opened, or a file cannot be written.
            LostProcessError: another process of the run ended.
            KeyboardInterrupt: a signal stopped the training.
        """
        plan, config, trainer, checkpoint = self.plan, self.plan.config, self.trainer, self.checkpoint
        if trainer.world_size > 1:
            if config.sync_batchnorm:
                share_batch_norms(method)
            if sentence := describe_batch_norms(method, config.sync_batchnorm, self.order.own_images):
                log.info("%s", sentence)
        if config.compile:
            compile_encoders(method, self.device)
        training = ContrastiveTraining(method, views, config, self.order.steps_per_epoch, self.folder.path, stay_close)
        checkpoints = Checkpoints(
            self.folder.checkpoint,
            config.checkpoint_every,
            self.signals,
            epochs_of=plan.epochs_of,
            damaged=checkpoint not in (None, self.folder.checkpoint) and self.folder.checkpoint.exists(),
        )
        pulse = Pulse(config.pulse, self.order.labels)
        trainer.callbacks += [  # type: ignore[attr-defined]
            SignalHandlers(self.signals),
            self.corrupt,
            pulse,  # before TrainingFigures, which writes its values
            TrainingFigures(self.journal, lambda: pulse.figures),
            *watchers,
            self.own,
            *(progress_callbacks() if self.progress else []),
            checkpoints,
        ]
        if checkpoint is not None:
            log.info("resuming from %s", checkpoint)
        loader = RunLoader(samples, self.order, samples.readers, pinned=self.device.type == "cuda")
        if not plan.steps:
            self._report_end()
            return training
        try:
            with (
                quiet_lightning(),
                _lost_processes_named(trainer, self.folder),
                self.loggers.during(trainer, self.journal),
            ):
                trainer.fit(training, loader, ckpt_path=checkpoint, weights_only=True)
                if self.signals.number is not None:
                    raise KeyboardInterrupt
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            if checkpoint is None or checkpoints.begun or isinstance(error, InputError | LostProcessError):
                raise
            raise does_not_fit(checkpoint, error) from error
        finally:
            self.signals.patient = False
        self._report_end()
        return training

    def _report_end(self) -> None:
        """Logs how far the training went, and records a stop by a callback for the report."""
        steps, stopped = counted(self.trainer.global_step, "step"), self.own.stopped
        if stopped is None:
            log.info("trained %s", steps)
            return
        why = f": {stopped['reason']}" if stopped["reason"] else ""
        log.info("trained %s of %d; %s ended the run%s", steps, self.plan.updates, stopped["by"], why)
        if self.first:
            write_json(self.folder.stopped, stopped)


@contextmanager
def _lost_processes_named(trainer: pl.Trainer, folder: RunFolder) -> Iterator[None]:
    """Converts the error of a connection to a process that ended into `LostProcessError`."""
    try:
        yield
    except RuntimeError as error:
        if trainer.world_size == 1 or not is_lost_connection(error):
            raise
        raise LostProcessError(
            f"process {trainer.global_rank} of {trainer.world_size}: another process of the run ended or cannot be "
            f"reached, see its message; resume with: {command_for('train --resume', folder.path)}"
        ) from None


IGNORED_WARNINGS = (  # of Lightning, which the user cannot act on
    r".*LeafSpec.*deprecated.*",  # between versions of torch and Lightning
    r".*does not have many workers.*",  # batches come from memory
    r".*module\(s\) in eval mode at the start of training.*",  # frozen parts of the encoder
    r".*find_unused_parameters=True.*did not find any unused.*",  # after the epochs of the head alone
    r".*GPU available but not used.*",  # accelerator="cpu" is intended
    r".*multiprocessing.*fork.*",
)


# Of Lightning: a thread that outlives the training repeats which process ended, which `LostProcessError` says.
OBSERVER = "lightning.fabric.strategies.launchers.subprocess_script"


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hides Lightning's log messages below WARNING, and warnings that the user cannot act on."""
    logging.getLogger(OBSERVER).setLevel(logging.WARNING)  # for good
    known = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("lightning.")]
    # Loggers without a level of their own follow these two; to set a level costs a walk over all loggers.
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    loggers += [logger for logger in known if logger.level and logger not in loggers]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
