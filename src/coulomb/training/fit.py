"""The training of a run, as its plan says."""

import copy
import dataclasses
import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning.pytorch as pl

from coulomb.ground.errors import InputError, LostProcessError, counted
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.machine import keep_freed_memory
from coulomb.ground.randomness import generator
from coulomb.ground.team import is_lost_connection
from coulomb.kinds.image.views import ViewMaker, contact_sheet
from coulomb.methods import Method
from coulomb.models import Encoder, load_encoder, save_encoder
from coulomb.models.classifier import save_classifier
from coulomb.models.lora import merge_lora
from coulomb.training.batch_norm import describe_batch_norms, share_batch_norms
from coulomb.training.checkpoint_callback import Checkpoints, SignalHandlers
from coulomb.training.checkpoints import does_not_fit, is_finished
from coulomb.training.feature_cache import FeatureCache
from coulomb.training.frozen import add_adapter, whiten
from coulomb.training.layout import make_trainer, require_shares
from coulomb.training.module import ContrastiveTraining
from coulomb.training.network import (
    compile_encoders,
    make_classifier,
    make_method,
    set_micro_batch,
    starting_encoder,
)
from coulomb.training.order import RunLoader, RunOrder
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Plan, tune_encoder
from coulomb.training.plan.prepare import Prepared
from coulomb.training.record.folder import RunFolder, command_for
from coulomb.training.record.journal import Journal
from coulomb.training.stay_close import StayClose
from coulomb.training.stopping import Signals
from coulomb.training.watching.live_evaluation import LiveEvaluation
from coulomb.training.watching.pulse import ClassGradients, Pulse
from coulomb.training.watching.records import Alarm, CorruptImages, MakeWatcher, TrainingFigures, progress_callbacks

log = logging.getLogger("coulomb")


JOINED = "COULOMB_JOIN_RUN"  # environment variable with the run folder, for the processes that Lightning starts


def fit(
    plan: Plan,
    folder: RunFolder,
    corrupt: CorruptImages,
    signals: Signals,
    *,
    checkpoint: Path | None,
    watch: MakeWatcher | None = None,
    progress: bool = True,
) -> None:
    """Trains as ``plan`` says, with its images decoded; then saves the encoder and the method's classifier, if any.

    ``checkpoint``: to resume from, see `coulomb.training.checkpoints.checkpoint_to_resume`; None for a new run. ``watch``
    makes the live checks, such as `coulomb.evaluation.doctor.Watcher`; None: no checks.

    Raises:
        LostProcessError: another process of the run ended.
        KeyboardInterrupt: a signal stopped the training.
    """
    config, prepared, views = plan.config, plan.prepared, plan.views
    keep_freed_memory()
    os.environ[JOINED] = str(folder.path)
    with quiet_lightning():
        trainer = make_trainer(config, folder.path)
    device, first = trainer.strategy.root_device, trainer.is_global_zero
    require_shares(plan, trainer.world_size)
    order = _order(plan, trainer)
    encoder = starting_encoder(
        config, prepared, folder.initial, plan.module, resumed=checkpoint is not None, save=first
    )
    cache = None
    if config.frozen_kind is not None:
        add_adapter(encoder, config, prepared.train, views, device, checkpoint=checkpoint, progress=progress)
        if config.frozen_kind == "none" and not is_finished(checkpoint, plan.updates):
            cache = FeatureCache(folder, plan.learned, config, dim=encoder.backbone_dim)
            if first:
                cache.fill(encoder, prepared.train.images, views, device, progress=progress)
            cache.opened()
        corrupt.add(prepared.train.images, prepared.train.images.failures)
    samples = prepared.train.images if cache is None else cache.samples()
    (encoder.column,) = samples.kinds  # before a method copies it
    stay_close = _prepare_network(plan, folder, encoder, order.own_images)
    method = make_method(config, prepared, plan.method, encoder, len(plan.learned))
    _require_features(config, method)
    if trainer.world_size > 1:
        if config.sync_batchnorm:
            share_batch_norms(method)
        if sentence := describe_batch_norms(method, config.sync_batchnorm, order.own_images):
            log.info("%s", sentence)
    if config.compile:
        compile_encoders(method, device)
    training = ContrastiveTraining(
        method,
        views if cache is None else samples.kind.views,
        config,
        order.steps_per_epoch,
        folder.path,
        stay_close,
    )
    if first and not folder.views.exists():
        save_sheet(folder.views, prepared, views, config.seed)
    checkpoints = Checkpoints(
        folder.checkpoint,
        config.checkpoint_every,
        signals,
        damaged=checkpoint not in (None, folder.checkpoint) and folder.checkpoint.exists(),
    )
    trainer.callbacks += [  # type: ignore[attr-defined]
        SignalHandlers(signals),
        corrupt,
        *_watchers(plan, folder, method, order, watch, first=first),
        *(progress_callbacks() if progress else []),
        checkpoints,
    ]
    _log_start(plan, folder, method, checkpoint)
    loader = RunLoader(samples, order, samples.readers, pinned=device.type == "cuda")
    try:
        with quiet_lightning(), _lost_processes_named(trainer, folder):
            if plan.steps:
                trainer.fit(training, loader, ckpt_path=checkpoint, weights_only=True)
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if checkpoint is None or checkpoints.begun or isinstance(error, InputError | LostProcessError):
            raise
        raise does_not_fit(checkpoint, error) from error
    finally:
        signals.patient = False
    if signals.number is not None:
        raise KeyboardInterrupt
    encoder.column = "image"
    if first:
        _save(plan, folder, training, encoder, progress=progress)
        write_json(folder.data, prepared.describe(corrupt.listed()))
        if cache is not None and not config.keep_cache:
            cache.delete()
    log.info("trained %s", counted(trainer.global_step, "step"))


def _order(plan: Plan, trainer: pl.Trainer) -> RunOrder:
    """Returns the order in which this process visits the images."""
    config, train = plan.config, plan.prepared.train
    return RunOrder(
        plan.learned,
        plan.batch,
        config.epochs,
        config.seed,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        sampler=config.sampler,
        labels=None if train.labels is None else train.labels[plan.learned],
        blocks=train.images.table.blocks,
    )


def _prepare_network(plan: Plan, folder: RunFolder, encoder: Encoder, own_images: int) -> StayClose | None:
    """Sets which parameters are trained and the micro-batches; returns the penalty of ``stay_close``, if any."""
    config, stay_close = plan.config, None
    if config.frozen_kind is None:
        if not any(parameter.requires_grad for parameter in encoder.parameters()):
            raise InputError(f"encoder={config.encoder!r}: has no parameters to train; give another one")
        if config.stay_close:
            start = copy.deepcopy(encoder)
            if plan.module is not None:  # when resuming, the weights of the user's module come from this call
                start = load_encoder(folder.initial, start.backbone)
            stay_close = StayClose(start, config.stay_close)
        log.info("%s", tune_encoder(config, encoder))
    set_micro_batch(encoder, config, own_images)
    if stay_close is not None:
        stay_close.start.micro_batch = config.micro_batch
    return stay_close


def _whitens(config: Config) -> bool:
    """Whether the features are whitened after the training."""
    return config.frozen_kind is None and config.whitening > 0


def _require_features(config: Config, method: Method) -> None:
    if _whitens(config) and method.classifier() is not None:
        raise InputError(
            f"whitening={config.whitening!r}: method={config.method!r} trains a classifier of features as they are; "
            "leave it out"
        )


def _watchers(
    plan: Plan, folder: RunFolder, method: Method, order: RunOrder, watch: MakeWatcher | None, *, first: bool
) -> list[pl.Callback]:
    """Returns the callbacks that measure and record the training; ``first``: in the first process."""
    config, prepared = plan.config, plan.prepared
    journal = Journal(folder.metrics, folder.path / "tensorboard" if first else None)
    pulse, counts = Pulse(config.pulse, order.labels), prepared.class_counts
    facts = {"train": len(prepared.train.indices), "class_counts": counts}
    return [
        pulse,  # before TrainingFigures, which writes its values
        TrainingFigures(journal, lambda: pulse.figures),
        LiveEvaluation(prepared, plan.views, config, journal),
        *([ClassGradients(journal, len(counts))] if counts and any(counts) else []),
        *([Alarm(journal, watch(dataclasses.asdict(config), facts, method.needs_labels))] if watch is not None else []),
    ]


def _log_start(plan: Plan, folder: RunFolder, method: Method, checkpoint: Path | None) -> None:
    config, labels = plan.config, plan.prepared.train.own_labels
    count, unknown = len(plan.prepared.train.indices), 0 if labels is None else int((labels < 0).sum())
    if unknown and method.needs_labels:
        left_out = f": {type(method).__name__} leaves them out" if len(plan.learned) < count else ""
        log.info("%d of %d training images have no label%s", unknown, count, left_out)
    if config.frozen_kind == "whiten":
        log.info("tune=whiten is in closed form: nothing is trained, and method, views and optimizer are not used")
    else:
        log.info(
            "training %s on %d images, %d steps of %d: %s",
            config.method, len(plan.learned), plan.steps, plan.batch, folder.path,
        )  # fmt: skip
    if checkpoint is not None:
        log.info("resuming from %s", checkpoint)


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


def _save(plan: Plan, folder: RunFolder, training: ContrastiveTraining, encoder: Encoder, *, progress: bool) -> None:
    """Saves the encoder, whitened if the configuration says so, and the method's classifier."""
    config, prepared, views = plan.config, plan.prepared, plan.views
    if _whitens(config):
        part, width = prepared.train, encoder.feature_dim
        whiten(encoder, part, views, training.device, dim=width, power=config.whitening, progress=progress)
    if config.frozen_kind != "whiten":
        classifier = make_classifier(training.method, encoder, prepared, views, config.seed, training.device)
        if classifier is not None:
            save_classifier(classifier, folder.path, prepared.class_names)
    save_encoder(merge_lora(encoder.cpu()), folder.path)


def save_sheet(path: Path, prepared: Prepared, views: ViewMaker, seed: int) -> None:
    """Saves the contact sheet of the views, for the report."""
    chosen = prepared.train.indices[:: max(1, len(prepared.train.indices) // 8)][:8]
    batch = next(prepared.train.images.batches(chosen, len(chosen)))
    buffer = io.BytesIO()
    sheet = contact_sheet(batch.stack, views, generator(seed, "sheet"), n=8)
    sheet.save(buffer, "PNG")
    write_atomically(path, buffer.getvalue())


IGNORED_WARNINGS = (  # of Lightning, which the user cannot act on
    r".*LeafSpec.*deprecated.*",  # between versions of torch and Lightning
    r".*does not have many workers.*",  # batches come from memory
    r".*module\(s\) in eval mode at the start of training.*",  # frozen parts of the encoder
    r".*find_unused_parameters=True.*did not find any unused.*",  # after the epochs of the head alone
    r".*GPU available but not used.*",  # accelerator="cpu" is intended
    r".*multiprocessing.*fork.*",
)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hides Lightning's log messages below WARNING, and warnings that the user cannot act on."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    loggers += [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("lightning.")]
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
