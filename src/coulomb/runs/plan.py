"""The plan of a run: from data and options to configuration, split and number of steps.

`coulomb check` shows the plan and `coulomb train` follows it, so the two cannot disagree.
"""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from coulomb.data import Source
from coulomb.errors import InputError
from coulomb.methods.choice import method_class, short_name
from coulomb.methods.making import complete_options
from coulomb.models.encoder import require_encoder
from coulomb.models.published import is_published
from coulomb.models.user_code import absolute, is_own_file
from coulomb.runs.config import Config, check_names
from coulomb.runs.folder import free_folder
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Facts, Prepared, arrange, measure, open_data
from coulomb.runs.recipes import find_recipe

Sources = tuple[Source, Source | None]  # the data, and the test set if there is one


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    Attributes:
        config: the complete configuration, as ``config.yaml`` holds it.
        prepared: the split and the image stores.
        learned: indices of the training images that the method learns from.
        processes: processes that train together.
        steps_per_epoch: batches per epoch and process.
    """

    config: Config
    prepared: Prepared
    learned: np.ndarray
    processes: int
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        """Batches in the whole run, per process."""
        return self.config.epochs * self.steps_per_epoch

    @property
    def updates(self) -> int:
        """Updates of the weights: one per ``accumulate`` steps."""
        return math.ceil(self.steps / self.config.accumulate)


def plan(options: dict[str, Any], objects: Objects | None = None, sources: Sources | None = None) -> Plan:
    """The plan of ``coulomb train`` with these options; images are not decoded, so unreadable ones are still counted.

    ``sources``: the opened data and test set, if they are open already.

    Raises:
        InputError: training would refuse the data or an option.
    """
    objects = (objects or Objects()).with_options(options)
    config, sources, facts = configure(options, objects, sources)
    return plan_of(config, arrange(config, sources, facts), objects.method_of(config))


def plan_of(config: Config, prepared: Prepared, method: type[nn.Module], processes: int | None = None) -> Plan:
    """The plan for images that are already prepared; ``processes`` defaults to what ``config`` and this machine give.

    Raises:
        InputError: the method needs labels and there are none, or the batch is larger than the training set.
    """
    learned = learned_from(prepared, method)
    processes = processes_of(config) if processes is None else processes
    return Plan(config, prepared, learned, processes, batches_per_epoch(len(learned), config.batch_size, processes))


def configure(
    options: dict[str, Any], objects: Objects, sources: Sources | None = None
) -> tuple[Config, Sources, Facts]:
    """The complete configuration: the recipe of method and preset, then the user's own ``options`` over it.

    Returns the configuration, the opened sources and the facts it was decided by.
    """
    check_names(options)
    if objects.views is not None:
        given = {"image_size": objects.views.size, "channels": objects.views.channels}
        options = given | options | {"views": f"custom:{type(objects.views).__name__}"}
    asked = Config(**options)
    if is_own_file(asked.method):
        options = options | {"method": absolute(asked.method)}
    method = objects.method or method_class(asked.method)
    sources = sources or open_data(asked, objects.data, objects.test)
    facts = measure(asked, *sources)
    recipe = find_recipe(asked.method, asked.preset)(facts)
    own = recipe.method_options | options.get("method_options", {})
    options = options | {"method_options": complete_options(asked.method, method, own)}
    if "epochs" in options:  # a shorter run warms up for a tenth of it at most, and is looked at at least five times
        shorter = {
            "warmup_epochs": min(recipe.warmup_epochs, options["epochs"] / 10),
            "knn_every": max(1, min(recipe.knn_every or 1, options["epochs"] // 5)),
        }
        options = shorter | options
    if is_published(options.get("encoder")):
        options = {"encoder_width": None} | options  # the recipe's is of its own encoder
    config = dataclasses.replace(recipe, **options)
    if getattr(method, "needs_labels", False) and facts.labelled == 0:
        raise InputError(
            f"method={config.method!r}: needs labels, and {sources[0].name!r} has none; use one that needs none: 'simclr'"
        )
    if objects.encoder is None:
        require_encoder(str(config.encoder))  # before a folder is made
    else:
        config = dataclasses.replace(config, encoder=f"custom:{type(objects.encoder).__name__}")
    if config.out is None:
        config = dataclasses.replace(config, out=str(free_folder(sources[0].name, short_name(config.method))))
    return config, sources, facts


def learned_from(prepared: Prepared, method: type[nn.Module]) -> np.ndarray:
    """The training images that the method can use: all, or those with a label where it asks for ``labelled_only``.

    Raises:
        InputError: the method needs labels, and no training image has one.
    """
    labels, indices = prepared.train.own_labels, prepared.train.indices
    if not getattr(method, "needs_labels", False):
        return indices
    known = np.zeros(len(indices), dtype=bool) if labels is None else labels >= 0
    if not known.any():
        raise InputError(
            f"method={method.__name__!r}: needs labels, and none of the {len(indices)} training images has one"
        )
    return indices[known] if getattr(method, "labelled_only", False) else indices


def matches_labels(method: type[nn.Module]) -> bool:
    """True if the method's positives are the images of the same class in the batch (SupCon, triplets).

    Methods that compare with a centre or a weight vector per class ask for the classes by name instead.
    """
    asked = inspect.signature(method).parameters
    return bool(getattr(method, "needs_labels", False)) and not {"class_counts", "num_classes"} & set(asked)


def processes_of(config: Config) -> int:
    """Processes that a run with this configuration starts on this machine: one per GPU, or one on the CPU."""
    gpus = 0 if config.accelerator == "cpu" else torch.cuda.device_count()
    return config.num_nodes * (config.devices or max(gpus, 1))


def batches_per_epoch(images: int, batch_size: int, processes: int = 1) -> int:
    """Full batches of ``batch_size`` in one epoch, per process.

    Raises:
        InputError: not even one batch can be filled.
    """
    room = images // processes
    if room >= batch_size:
        return room // batch_size
    each = f" of each of the {processes} processes" if processes > 1 else ""
    if room < 2:
        remedy = "use fewer processes" if each else "give more images, or the held-out ones as test"
        raise InputError(
            f"data: {room} training image{'s' * (room != 1)}{each}; contrastive learning needs at least 2: {remedy}"
        )
    raise InputError(
        f"batch_size={batch_size}: larger than the {room} training images{each}; use batch_size={room} or less"
    )
