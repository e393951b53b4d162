"""A run, from configuration to trained encoder."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from coulomb.data.views import Views, contact_sheet, make_views
from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.models import Encoder, build_encoder, save_encoder, wrap_encoder
from coulomb.randomness import derive_seed, generator
from coulomb.training.checkpoints import Checkpoints
from coulomb.training.config import Config, check_names, load_config
from coulomb.training.corrupt import CorruptImages
from coulomb.training.environment import environment
from coulomb.training.journal import Journal
from coulomb.training.live_evaluation import LiveEvaluation
from coulomb.training.module import ContrastiveTraining
from coulomb.training.order import RunLoader, RunOrder
from coulomb.training.prepare import Prepared, label_tensor, measure, open_data, prepare
from coulomb.training.progress import progress_callbacks
from coulomb.training.quiet import quiet_lightning
from coulomb.training.recipes import RECIPES
from coulomb.training.run_folder import RunFolder, free_folder, read_json, write_json
from coulomb.training.train_log import train_log
from coulomb.training.training_figures import TrainingFigures

log = logging.getLogger("coulomb")


@dataclass
class Objects:
    """What can only be handed over in Python: not a name but the thing itself."""

    data: Any = None
    test: Any = None
    encoder: nn.Module | None = None


def configure(options: dict[str, Any], objects: Objects) -> tuple[Config, Any, Any]:
    """The complete configuration: the recipe of method and preset, then the user's own ``options`` over it.

    Returns the configuration, the opened sources and the facts it was decided by.
    """
    check_names(options)
    asked = Config(**options)
    sources = open_data(asked, objects.data, objects.test)
    facts = measure(asked, sources[0])
    recipe = RECIPES[asked.method, asked.preset](facts)
    if "epochs" in options and "warmup_epochs" not in options:  # a shorter run warms up for a tenth of it at most
        options = options | {"warmup_epochs": min(recipe.warmup_epochs, options["epochs"] / 10)}
    config = dataclasses.replace(recipe, **options)
    if config.method == "supcon" and facts.labelled == 0:
        raise InputError(f"method='supcon': needs labels, and {sources[0].name!r} has none; use method='simclr'")
    if objects.encoder is not None:
        config = dataclasses.replace(config, encoder=f"custom:{type(objects.encoder).__name__}")
    if config.out is None:
        config = dataclasses.replace(config, out=str(free_folder(sources[0].name, config.method)))
    return config, sources, facts


def start(options: dict[str, Any], objects: Objects, *, progress: bool = True) -> tuple[RunFolder, Prepared]:
    """Configure, create the run folder, prepare the data and train."""
    if options.get("out") is not None:
        RunFolder(options["out"]).refuse_existing()  # before minutes are spent on the data
    config, sources, facts = configure(options, objects)
    folder = RunFolder(str(config.out))
    folder.create()
    with train_log(folder.log):
        prepared = prepare(config, sources, facts, progress=progress)
        config.save(folder.config)
        corrupt = CorruptImages([prepared.train.images, prepared.test.images], config.max_corrupt)
        write_json(folder.data, prepared.describe(corrupt.listed()))
        write_json(
            folder.split,
            {"seed": config.seed, "train": prepared.train.indices.tolist(), "test": prepared.test.indices.tolist()},
        )
        write_json(folder.environment, environment())
        fit(config, folder, prepared, corrupt, objects.encoder, resume=False)
    return folder, prepared


def resume(path: str | Path, objects: Objects, *, progress: bool = True) -> tuple[RunFolder, Prepared]:
    """Continue a run from its last checkpoint; its own ``config.yaml`` says how."""
    folder = RunFolder(path)
    folder.require()
    config = dataclasses.replace(load_config(folder.config), out=str(folder.path))
    sources = open_data(config, objects.data, objects.test)
    facts = measure(config, sources[0])
    with train_log(folder.log):
        prepared = prepare(config, sources, facts, progress=progress)
        if folder.split.exists():
            written = read_json(folder.split)
            for name, part in (("train", prepared.train), ("test", prepared.test)):
                if written[name] != part.indices.tolist():
                    raise InputError(
                        f"{str(folder.path)!r}: the {name} images are not those the run began with "
                        f"({len(written[name])} then, {len(part.indices)} now); restore the data, or start a new run"
                    )
        corrupt = CorruptImages([prepared.train.images, prepared.test.images], config.max_corrupt)
        fit(config, folder, prepared, corrupt, objects.encoder, resume=folder.checkpoint.exists())
    return folder, prepared


def fit(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    corrupt: CorruptImages,
    module: nn.Module | None,
    *,
    resume: bool,
) -> None:
    """Train and export the encoder."""
    with quiet_lightning():
        trainer = _trainer(config, folder)
    views = make_views(
        str(config.views), size=prepared.facts.image_size, channels=prepared.facts.channels, **config.view_options
    )
    order = RunOrder(
        prepared.train.indices,
        config.batch_size,
        config.epochs,
        config.seed,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )
    encoder = make_encoder(config, prepared, module)
    if module is not None and not resume:
        save_encoder(
            encoder, folder.initial
        )  # the baseline of the evaluation: a user's module has no recipe to redo it
    training = ContrastiveTraining(
        make_method(config, encoder), views, label_tensor(prepared.train), config, order.steps_per_epoch, folder.path
    )
    if trainer.is_global_zero and not folder.views.exists():
        save_sheet(folder.views, prepared, views, config.seed)
    journal = Journal(folder.metrics, folder.path / "tensorboard" if trainer.is_global_zero else None)
    streaming = 0 if prepared.train.images.cached else prepared.train.images.workers
    trainer.callbacks += [  # type: ignore[attr-defined]
        *progress_callbacks(),
        corrupt,
        TrainingFigures(journal),
        LiveEvaluation(prepared, views, config, journal),
        Checkpoints(folder.checkpoint, config.checkpoint_every),
    ]
    log.info("training %s on %d images: %s", config.method, len(prepared.train.indices), folder.path)
    checkpoint = str(folder.checkpoint) if resume else None
    with quiet_lightning():
        trainer.fit(
            training, RunLoader(prepared.train.images, order, streaming), ckpt_path=checkpoint, weights_only=True
        )
    if trainer.interrupted:
        raise KeyboardInterrupt
    if trainer.is_global_zero:
        save_encoder(encoder.cpu(), folder.path)
        write_json(folder.data, prepared.describe(corrupt.listed()))
    log.info("trained %d steps", trainer.global_step)


def make_encoder(config: Config, prepared: Prepared, module: nn.Module | None) -> Encoder:
    """The encoder of a run with its first weights: the same every time for the same seed."""
    facts = prepared.facts
    mean, std = (each.tolist() for each in prepared.train.images.normalisation(indices=prepared.train.indices))
    if module is not None:
        return wrap_encoder(module, channels=facts.channels, image_size=facts.image_size, mean=mean, std=std)
    width: dict[str, Any] = {} if config.encoder_width is None else {"width": config.encoder_width}
    return build_encoder(
        str(config.encoder),
        channels=facts.channels,
        image_size=facts.image_size,
        mean=mean,
        std=std,
        seed=derive_seed(config.seed, "encoder"),
        **width,
    )


def make_method(config: Config, encoder: Encoder) -> nn.Module:
    """The method with its head, seeded likewise."""
    return METHODS[config.method](
        encoder,
        temperature=config.temperature,
        embedding_dim=config.embedding_dim,
        head_layers=config.head_layers,
        head_hidden_dim=config.head_hidden_dim,
        seed=derive_seed(config.seed, "head"),
    )


def save_sheet(path: Path, prepared: Prepared, views: Views, seed: int) -> None:
    """The contact sheet of the views, for the report."""
    chosen = prepared.train.indices[:: max(1, len(prepared.train.indices) // 8)][:8]
    batch = next(prepared.train.images.batches(chosen, len(chosen)))
    contact_sheet(batch["image"], views, generator(seed, "sheet"), n=8, aspect=batch["aspect"]).save(path)


def _trainer(config: Config, folder: RunFolder) -> pl.Trainer:
    accelerator = config.accelerator
    devices: int | str = config.devices or ("auto" if accelerator == "gpu" or torch.cuda.is_available() else 1)
    many = config.num_nodes > 1 or (isinstance(devices, int) and devices > 1) or torch.cuda.device_count() > 1
    return pl.Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=config.num_nodes,
        strategy="ddp" if many else "auto",
        precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        max_epochs=1,
        accumulate_grad_batches=config.accumulate,
        use_distributed_sampler=False,
        logger=False,  # the journal writes all there is to know
        default_root_dir=folder.path,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        log_every_n_steps=1,
    )
