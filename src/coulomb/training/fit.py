"""The training of a run, as its plan says."""

import copy
import dataclasses
import io
import logging
from pathlib import Path

import lightning.pytorch as pl

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.randomness import generator
from coulomb.kinds.image.views import ViewMaker, contact_sheet
from coulomb.methods import Method
from coulomb.models import Encoder, load_encoder, save_encoder
from coulomb.models.classifier import save_classifier
from coulomb.models.lora import merge_lora
from coulomb.training.checkpoints import is_finished
from coulomb.training.feature_cache import FeatureCache
from coulomb.training.frozen import add_adapter, whiten
from coulomb.training.loop import Loop
from coulomb.training.module import ContrastiveTraining
from coulomb.training.network import (
    make_classifier,
    make_method,
    set_micro_batch,
    starting_encoder,
    tune_encoder,
)
from coulomb.training.order import ColumnViews
from coulomb.training.plan.config import Config
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import Plan, Prepared
from coulomb.training.record.folder import RunFolder
from coulomb.training.stay_close import StayClose
from coulomb.training.stopping import Signals
from coulomb.training.watching.live_evaluation import LiveEvaluation
from coulomb.training.watching.pulse import ClassGradients
from coulomb.training.watching.records import Alarm, CorruptImages, MakeWatcher

log = logging.getLogger("coulomb")


def fit(
    plan: Plan,
    folder: RunFolder,
    corrupt: CorruptImages,
    signals: Signals,
    given: Given,
    *,
    checkpoint: Path | None,
    watch: MakeWatcher | None = None,
    progress: bool = True,
) -> None:
    """Trains as ``plan`` says, with its images decoded; then saves the encoder and the method's classifier, if any.

    ``given`` has the user's callbacks and loggers. ``checkpoint``: to resume from, see
    `coulomb.training.checkpoints.checkpoint_to_resume`; None for a new run. ``watch`` makes the live checks, such as
    `coulomb.evaluation.doctor.Watcher`; None: no checks.

    Raises:
        LostProcessError: another process of the run ended.
        KeyboardInterrupt: a signal stopped the training.
    """
    config, prepared, views = plan.config, plan.prepared, plan.views
    loop = Loop(plan, folder, corrupt, signals, given, checkpoint=checkpoint, progress=progress)
    encoder = starting_encoder(
        config, prepared, folder.initial, plan.module, resumed=checkpoint is not None, save=loop.first
    )
    cache = None
    if config.frozen_kind is not None:
        add_adapter(encoder, config, prepared.train, views, loop.device, checkpoint=checkpoint, progress=progress)
        if config.frozen_kind == "none" and not is_finished(checkpoint, plan.updates):
            cache = FeatureCache(
                folder.features,
                plan.learned,
                views=config.cached_views,
                dim=encoder.backbone_dim,
                seed=config.seed,
                neighbors=config.neighbors,
            )
            if loop.first:
                cache.fill(encoder, prepared.train.images, views, loop.device, progress=progress)
            cache.opened()
        corrupt.add(prepared.train.images, prepared.train.images.failures)
    samples = prepared.train.images if cache is None else cache.samples()
    (encoder.column,), encoder.cached = samples.kinds, cache is not None  # before a method copies it
    stay_close = _prepare_network(plan, folder, encoder, loop.order.own_images)
    method = make_method(config, prepared, plan.method, encoder, len(plan.learned))
    _require_features(config, method)
    if loop.first and not folder.views.exists():
        save_sheet(folder.views, prepared, views, config.seed)
    _log_start(plan, folder, method)
    drawn = ColumnViews(views if cache is None else samples.kind.views, config.n_views)
    training = loop.run(method, samples, {encoder.column: drawn}, _watchers(plan, loop, method, watch), stay_close)
    encoder.column, encoder.cached = "image", False
    if loop.first:
        _save(plan, folder, training, encoder, progress=progress)
        write_json(folder.data, plan.describe(corrupt.listed()))
        if cache is not None and not config.keep_cache:
            cache.delete()


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


def _watchers(plan: Plan, loop: Loop, method: Method, watch: MakeWatcher | None) -> list[pl.Callback]:
    """Returns the callbacks that measure and record the training of images."""
    config, prepared, journal = plan.config, plan.prepared, loop.journal
    counts = prepared.class_counts
    facts = {"train": len(prepared.train.indices), "class_counts": counts}
    return [
        LiveEvaluation(prepared, plan.views, config, journal),
        *([ClassGradients(journal, len(counts))] if counts and any(counts) else []),
        *([Alarm(journal, watch(dataclasses.asdict(config), facts, method.needs_labels))] if watch is not None else []),
    ]


def _log_start(plan: Plan, folder: RunFolder, method: Method) -> None:
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
