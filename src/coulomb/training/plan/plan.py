"""The plan of a run: from data and options to configuration, split and number of steps.

`coulomb check` shows the plan and `coulomb train` follows it, so that the two cannot disagree.
"""

import copy
import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from coulomb.ground.errors import InputError, counted
from coulomb.ground.randomness import derive_seed
from coulomb.ground.text import first_few
from coulomb.methods import Method
from coulomb.methods.options import SHARED, accepted_parameters, complete_options, find_method, short_name
from coulomb.models import Encoder, build_encoder, has_weights, wrap_encoder
from coulomb.models.build import require_encoder, takes_norm, takes_width
from coulomb.models.tuning import Tune
from coulomb.models.user_code import is_user_code, with_absolute_path
from coulomb.tables import Source
from coulomb.training.plan.config import Config, check_names
from coulomb.training.plan.frozen_recipe import for_frozen
from coulomb.training.plan.objects import Objects
from coulomb.training.plan.prepare import Facts, Prepared, arrange, measure, open_data
from coulomb.training.plan.recipes import find_recipe
from coulomb.training.plan.recipes_from_weights import from_weights
from coulomb.training.plan.start import AUTO
from coulomb.training.record.folder import free_folder

log = logging.getLogger("coulomb")

Sources = tuple[Source, Source | None]  # the data, and the test set if there is one


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    Attributes:
        config: the complete configuration, as in ``config.yaml``.
        prepared: the split and the image stores.
        learned: indices of the training images that the method uses.
        processes: number of processes that ``config`` starts, see `count_processes`.
        steps_per_epoch: batches per epoch.
    """

    config: Config
    prepared: Prepared
    learned: np.ndarray
    processes: int
    steps_per_epoch: int

    @property
    def batch(self) -> int:
        """Images per step of all processes together; a run that is resumed on another number of processes keeps it."""
        return self.config.batch_size * self.processes

    @property
    def steps(self) -> int:
        """Batches in the whole run."""
        return self.config.epochs * self.steps_per_epoch

    @property
    def updates(self) -> int:
        """Optimizer steps in the whole run: one per ``accumulate`` batches."""
        return math.ceil(self.steps / self.config.accumulate)


def plan(options: dict[str, Any], objects: Objects | None = None, sources: Sources | None = None) -> Plan:
    """Returns the plan of ``coulomb train`` with these options. Images are not decoded, so unreadable ones are included.

    ``sources``: data and test set, if they are already open.

    Raises:
        InputError: training would refuse the data or an option.
    """
    objects = (objects or Objects()).with_options(options)
    config, sources, facts = configure(options, objects, sources)
    return plan_prepared(config, arrange(config, sources, facts), objects.find_method(config))


def plan_prepared(config: Config, prepared: Prepared, method: type[Method]) -> Plan:
    """Returns the plan for prepared images.

    Raises:
        InputError: the method needs labels and there are none, or the batch is larger than the training set, or there are
            fewer images than neighbors.
    """
    learned = find_training_images(prepared, method)
    if len(learned) < 2:
        raise InputError(f"data={config.data!r}: {_too_few(len(learned), prepared)}")
    if config.neighbors >= len(learned):
        raise InputError(f"neighbors={config.neighbors}: there are {len(learned)} training images; use fewer neighbors")
    processes = count_processes(config)
    return Plan(config, prepared, learned, processes, batches_per_epoch(len(learned), config.batch_size, processes))


def _too_few(learned: int, prepared: Prepared) -> str:
    """Returns what is wrong with data that leave fewer than two images to learn from, and what to do."""
    source, unreadable = prepared.sources[0], dict(prepared.facts.survey.unreadable)
    unreadable |= {prepared.train.images.item_id(row): why for row, why in prepared.train.images.failures.items()}
    counts = [counted(len(source), "image")]
    if prepared.sources[1] is None:
        counts.append(f"{len(prepared.test.indices)} held out")
    if unreadable:
        named = first_few([f"{name}: {why}" for name, why in unreadable.items()])
        counts.append(f"{len(unreadable)} unreadable: {named}")
    remedy = "add images, or pass the held-out ones as test" if prepared.sources[1] is None else "add images"
    if unreadable:
        remedy = "repair the list or the files"
    return (
        f"{counted(learned, 'training image')} ({', '.join(counts)}); contrastive learning needs at least 2: {remedy}"
    )


def configure(
    options: dict[str, Any], objects: Objects, sources: Sources | None = None
) -> tuple[Config, Sources, Facts]:
    """Completes the configuration: the recipe of method and preset, overridden by the user's ``options``.

    Returns the configuration, the opened sources and the facts that the recipe depends on.
    """
    check_names(options)
    if objects.views is not None:
        size = {"image_size": objects.views.size, "channels": objects.views.channels}
        options = size | options | {"views": f"custom:{type(objects.views).__name__}"}
    if options.get("encoder") == AUTO:
        options = {name: value for name, value in options.items() if name != "encoder"}
    given = Config(**options)
    if is_user_code(given.method):
        options = options | {"method": with_absolute_path(given.method)}
    method = objects.method or find_method(given.method)
    sources = sources or open_data(given, objects.data, objects.test)
    own: dict[str, Any] = {} if objects.encoder is None else {"encoder": custom_name(objects.encoder)}
    facts = measure(dataclasses.replace(given, **own), *sources)
    recipe = find_settings(given.method, given.preset, facts)
    kind = Tune.parse(given.tune or recipe.tune).frozen_kind
    if kind is not None:
        recipe, options = for_frozen(kind, recipe, options, facts.images, method.needs_labels)
    accepted, open_ended = accepted_parameters(method)
    taken = {*accepted, *(("embedding_dim",) if kind == "whiten" else ())}
    if unused := [name for name in SHARED if name in options and not (name in taken or open_ended)]:
        log.warning("%s: not used, because %s has no such option", ", ".join(unused), short_name(given.method))
    chosen = recipe.method_options | options.get("method_options", {})
    options = options | {"method_options": complete_options(given.method, method, chosen)}
    mild = recipe.view_options if given.views is None else {}
    options = options | {"view_options": mild | given.view_options}
    if "epochs" in options:  # a shorter run: at most a tenth of it is warm-up of any kind, with five live evaluations
        shorter = {
            "warmup_epochs": min(recipe.warmup_epochs, options["epochs"] / 10),
            "head_epochs": min(recipe.head_epochs, options["epochs"] / 10),
            "knn_every": max(1, min(recipe.knn_every or 1, options["epochs"] // 5)),
        }
        options = shorter | options
    if options.get("encoder") and not takes_width(options["encoder"]):
        options = {"encoder_width": None} | options  # the recipe's width is that of its own encoder
    config = dataclasses.replace(recipe, **options)
    if method.needs_labels and facts.labeled == 0:
        raise InputError(
            f"method={config.method!r}: needs labels, and {sources[0].name!r} has none; use one that needs none: 'simclr'"
        )
    if objects.encoder is None:
        require_encoder(str(config.encoder))  # before a folder is created
        if config.encoder_width is not None and not takes_width(config.encoder):
            raise InputError(
                f"encoder_width={config.encoder_width}: encoder={config.encoder!r} has no such option; leave it out"
            )
        if config.norm != "batch" and not takes_norm(config.encoder):
            raise InputError(
                f"norm={config.norm!r}: encoder={config.encoder!r} has no such option; leave it out, or use resnet18"
            )
        require_weights(config)
    elif config.norm != "batch":
        raise InputError(f"norm={config.norm!r}: your own encoder has its own norm layers; leave it out")
    else:
        config = dataclasses.replace(config, **own)
    if config.tune not in (None, "all"):
        blank_encoder(config, facts, objects)  # raises errors before images are decoded
    if config.out is None:
        config = dataclasses.replace(
            config, out=str(free_folder(sources[0].name, kind if kind == "whiten" else short_name(config.method)))
        )
    return config, sources, facts


def require_weights(config: Config) -> None:
    """Raises `InputError` if an option keeps parts of the encoder as they are at the start, and they are random."""
    if has_weights(config.encoder):
        return
    whole = {"tune": (None, "all"), "norm_statistics": ("moving",), "stay_close": (0,), "head_epochs": (0,)}
    for name, values in whole.items():
        if (value := getattr(config, name)) not in values:
            raise InputError(
                f"{name}={value!r}: encoder={config.encoder!r} has random weights, which are not worth keeping; "
                f"leave {name} out, or start from weights, such as lite0"
            )


def custom_name(module: nn.Module) -> str:
    """Returns what a configuration has in place of the name of a user's module."""
    return f"custom:{type(module).__name__}"


def find_settings(method: str, preset: str, facts: Facts) -> Config:
    """Returns the recipe of a method and preset; with ``small``, an encoder with weights has a recipe of its own."""
    if preset == "small" and facts.start.encoder is not None:
        return from_weights(method, facts)
    return find_recipe(method, preset)(facts)


def blank_encoder(config: Config, facts: Facts, objects: Objects) -> Encoder:
    """Builds the encoder of a run with random weights, or a copy of the user's module; to check it or to time it.

    Raises:
        InputError: the options do not fit the encoder.
    """
    shared: dict[str, Any] = {"channels": facts.channels, "image_size": facts.image_size}
    if objects.encoder is None:
        encoder = build_encoder(str(config.encoder), weights=False, **shared, **config.encoder_options)
        encoder.config["name"] = str(config.encoder)  # for messages
    else:
        encoder = wrap_encoder(copy.deepcopy(objects.encoder), **shared)
    tune_encoder(config, encoder)
    return encoder


def tune_encoder(config: Config, encoder: Encoder) -> str:
    """Freezes what the run does not train, see `coulomb.models.tuning.Tune.apply`; returns a sentence for the log."""
    seed = derive_seed(config.seed, "lora")
    trains = Tune.parse(config.tune).apply(encoder, norm_statistics=config.norm_statistics, seed=seed)
    return f"tune={config.tune or 'all'}: {trains}"


def find_training_images(prepared: Prepared, method: type[Method]) -> np.ndarray:
    """Returns the indices of the training images that the method uses: all, or with ``labeled_only`` those with a label.

    Raises:
        InputError: the method needs labels, and no training image has one.
    """
    labels, indices = prepared.train.own_labels, prepared.train.indices
    if not method.needs_labels:
        return indices
    labeled = np.zeros(len(indices), dtype=bool) if labels is None else labels >= 0
    if not labeled.any():
        raise InputError(
            f"method={method.__name__!r}: needs labels, and none of the {len(indices)} training images has one"
        )
    return indices[labeled] if method.labeled_only else indices


def matches_labels(method: type[Method]) -> bool:
    """Returns True if the method's positives are the images of the same class in the batch (SupCon, triplets).

    Methods with a center or a weight vector per class declare ``class_counts`` or ``num_classes`` instead.
    """
    return method.needs_labels and not {"class_counts", "num_classes"} & set(accepted_parameters(method)[0])


def count_processes(config: Config) -> int:
    """Returns the number of processes that a run begins with: by default one per GPU, or one on the CPU."""
    gpus = 0 if config.accelerator == "cpu" else torch.cuda.device_count()
    return config.num_nodes * (config.devices or max(gpus, 1))


def batches_per_epoch(images: int, batch_size: int, processes: int = 1) -> int:
    """Returns the number of full batches of ``batch_size`` per epoch and process.

    Raises:
        InputError: there are fewer images than one batch.
    """
    available = images // processes
    if available >= batch_size:
        return available // batch_size
    each = f" for each of the {processes} processes" if processes > 1 else ""
    if available < 2:
        remedy = "use fewer processes" if each else "add images, or pass the held-out ones as test"
        raise InputError(
            f"data: {available} training image{'s' * (available != 1)}{each}; contrastive learning needs at least 2: {remedy}"
        )
    raise InputError(
        f"batch_size={batch_size}: larger than the {available} training images{each}; use batch_size={available} or less"
    )
