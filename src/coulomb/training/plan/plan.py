"""The plan of a run: resolved once, from options and facts about the data. `check` shows it, and `train` follows it.

options  →  `Given`: names, and the user's objects and code in place of names
facts    →  `measure`: split, image size, channels, what the encoder begins from
recipe   →  of method and preset, overridden by the options: the complete `Config`
`Plan`   →  the configuration with everything that it names: tables, method, views
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few
from coulomb.kinds.image.views import ViewMaker
from coulomb.methods import Method
from coulomb.methods.options import short_name
from coulomb.tables import Samples, Source
from coulomb.tables.check_groups import group_finding, group_like
from coulomb.tables.shards.blocks import Blocks
from coulomb.training.plan.complete import check_encoder, complete
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.facts import Facts, measure, open_data
from coulomb.training.plan.given import Given
from coulomb.training.plan.prepare import Prepared, arrange, decode
from coulomb.training.plan.resolved import Resolved, batches_per_epoch, count_processes
from coulomb.training.plan.start import AUTO
from coulomb.training.record.folder import RunFolder, free_folder, read_split, stored_bands
from coulomb.training.record.provenance import changed, fingerprints

log = logging.getLogger("coulomb")

Sources = tuple[Source, Source | None]  # the data, and the test set if there is one


@dataclass(frozen=True)
class Plan(Resolved):
    """What a run will do: every value decided, every name resolved.

    Attributes:
        config: the complete configuration, as in ``config.yaml``.
        prepared: the split and the image stores, and the facts about them: image size, channels, the encoder's start.
        method: the class of the method.
        views: the augmentations.
        module: the user's own encoder; None for an encoder that ``config`` names.
        processes: number of processes that the run begins with, see `count_processes`.
        learned: indices of the training images that the method uses.
        steps_per_epoch: batches per epoch.

    Raises:
        InputError: the method needs labels and there are none, or the batch is larger than the training set, or there are
            fewer images than neighbors.
    """

    config: Config
    prepared: Prepared
    method: type[Method]
    views: ViewMaker
    module: nn.Module | None = None
    processes: int = 1
    learned: np.ndarray = field(init=False)
    steps_per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        learned = find_training_images(self.prepared, self.method)
        neighbors = self.config.neighbors
        if len(learned) < 2:
            raise InputError(f"data={self.config.data!r}: {_too_few(len(learned), self.prepared)}")
        if neighbors >= len(learned):
            raise InputError(f"neighbors={neighbors}: there are {len(learned)} training images; use fewer neighbors")
        object.__setattr__(self, "learned", learned)
        steps = batches_per_epoch(len(learned), self.config.batch_size, self.processes)
        object.__setattr__(self, "steps_per_epoch", steps)

    @property
    def learned_labels(self) -> np.ndarray | None:
        """Labels of ``learned``, −1 unknown; None without labels."""
        labels = self.prepared.train.labels
        return None if labels is None else labels[self.learned]

    @property
    def blocks(self) -> Blocks | None:
        """Parts of shards that are read at once; None where images are read one by one."""
        return self.prepared.train.images.table.blocks

    @property
    def epochs_of(self) -> int:
        """Steps from which on a checkpoint is written at the end of each epoch: always."""
        return 1

    def announce(self) -> None:
        """Logs what the encoder begins from, and a warning if the names of images look as if some belonged together."""
        begins = self.prepared.facts.start
        log.log(logging.WARNING if begins.missing else logging.INFO, "%s", begins.reason)
        if (bands := self.prepared.facts.bands) is not None:
            log.info("%s. Pictures show %s.", bands.describe(), bands.shown)
            for note in self.prepared.facts.band_notes:
                log.info("%s", note)
        if left_out := views_left_out(self.views):
            log.info("views: %s", left_out)
        source, test_source = self.prepared.sources
        if self.config.group is None and test_source is None:
            finding = group_finding(group_like(source, copies=[]))
            if finding is not None:
                log.warning("%s", finding)

    @property
    def stores(self) -> list[Samples]:
        """The image stores of both parts."""
        return self.prepared.stores

    def describe(self, corrupt: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the content of ``data.json``."""
        left_out = views_left_out(self.views)
        return self.prepared.describe(corrupt) | ({"views_left_out": left_out} if left_out else {})

    def split_record(self) -> dict[str, Any]:
        """Returns the content of ``split.json``."""
        prepared, config = self.prepared, self.config
        return {
            "seed": config.seed,
            "group": config.group,
            "long_tail": config.long_tail,
            "class_counts": prepared.class_counts,
            "train": prepared.train.ids,
            "test": prepared.test.ids,
            "fingerprints": fingerprints(prepared.sources),
        }

    def decoded(self, *, progress: bool = True) -> "Plan":
        """Decodes the images into the bounded cache; returns the plan without unreadable ones."""
        return replace(self, prepared=decode(self.prepared, self.config, progress=progress))


def views_left_out(views: ViewMaker) -> str:
    """Returns a sentence on the operations of ``views`` that are left out; empty if there are none."""
    left_out = views.describe().get("left_out") or []
    if not left_out:
        return ""
    return f"{', '.join(row['operation'] for row in left_out)} left out: {left_out[0]['reason']}"


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


def resolve(options: Given | Mapping[str, Any], sources: Sources | None = None) -> Plan:
    """Returns the plan of a new run with these options. Images are not decoded, so unreadable ones are included.

    Args:
        options: fields of `Config`; ``data``, ``test``, ``encoder``, ``views`` and ``method`` may be objects, see `Given`.
        sources: data and test set, if they are already open.

    Raises:
        InputError: training would refuse the data or an option.
    """
    given = Given.of(options)
    if given.encoders and given.module is None:
        raise InputError(
            f"encoder={given.named['encoder']!r}: is for columns of texts; give the columns, or one module for images alone"
        )
    named = {name: value for name, value in given.named.items() if (name, value) != ("encoder", AUTO)}
    asked = Config(**named)
    method = given.find_method(asked)
    sources = sources or open_data(asked, given.data, given.test)
    facts = measure(asked, *sources)
    config = complete(named, asked, method, facts, own_encoder=given.module is not None)
    if method.needs_labels and facts.labeled == 0:
        raise InputError(
            f"method={config.method!r}: needs labels, and {sources[0].name!r} has none; use one that needs none: 'simclr'"
        )
    check_encoder(config, facts, given.module)
    if config.out is None:
        name = "whiten" if config.frozen_kind == "whiten" else short_name(config.method)
        config = replace(config, out=str(free_folder(sources[0].name, name)))
    return _plan(config, given, sources, facts, count_processes(config))


def reopen(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, progress: bool, trains: bool = False
) -> Plan:
    """Returns the plan of an existing run from its folder, with the images decoded; the split must be the saved one.

    Args:
        folder: the run.
        options: objects, user's code and data of this call; everything else is in the folder.
        progress: show progress bars.
        trains: the run will be resumed, so that user code and files outside the folder must be among ``options``, see
            `Given.resumed`; else the number of processes is of no importance.

    Raises:
        InputError: the data or the split changed, or an object is missing.
    """
    given = Given.of(options or {})
    config = load_config(folder.config)
    config = replace(given.resumed(config, folder) if trains else config, out=str(folder.path))
    sources = open_data(config, given.data, given.test)
    saved = read_split(folder)
    if changes := changed(saved["fingerprints"], fingerprints(sources)):
        raise InputError(
            f"{str(folder.path)!r}: the data changed since the run began: {changes}; restore them, or start a new run"
        )
    facts = measure(config, *sources, bands=stored_bands(folder))
    processes = count_processes(config) if trains else 1
    plan = _plan(config, given, sources, facts, processes).decoded(progress=progress)
    for name, part in (("train", plan.prepared.train), ("test", plan.prepared.test)):
        if saved[name] != part.ids:
            raise InputError(
                f"{str(folder.path)!r}: the {name} images are not those the run began with "
                f"({len(saved[name])} then, {len(part.ids)} now); restore the data, or start a new run"
            )
    return plan


def _plan(config: Config, given: Given, sources: Sources, facts: Facts, processes: int) -> Plan:
    """Resolves the names of a complete configuration."""
    prepared = arrange(config, sources, facts)
    views = given.build_views(config, facts.image_size, facts.channels)
    return Plan(config, prepared, given.find_method(config), views, given.module, processes)


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
