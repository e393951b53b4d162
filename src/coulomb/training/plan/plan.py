"""The plan of a run on images: what it will do, and with which images. `check` shows it, and `train` follows it."""

import logging
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from coulomb.ground.errors import InputError, counted
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.canvas import Canvas, canvas_size
from coulomb.kinds.image.views import ViewMaker
from coulomb.methods import Method
from coulomb.tables import (
    Samples,
    Source,
    Survey,
    image_samples,
    match_classes,
    survey,
)
from coulomb.tables.check import rounded_sentence
from coulomb.tables.check_groups import group_finding, group_like
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.split import imbalance, most_frequent_class
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.resolved import Resolved, batches_per_epoch
from coulomb.training.record.provenance import fingerprints

log = logging.getLogger("coulomb")

Sources = tuple[Source, Source | None]  # the data, and the test set if there is one


@dataclass(frozen=True)
class Part:
    """One side of the split: indices of images in a store, and labels by image index (None without labels)."""

    images: Samples
    indices: np.ndarray
    labels: np.ndarray | None

    @property
    def own_labels(self) -> np.ndarray | None:
        """Labels of ``indices``, in the same order."""
        return None if self.labels is None else self.labels[self.indices]

    @property
    def ids(self) -> list[str]:
        """Ids of the images ``indices``, in the same order."""
        return [self.images.table.item_id(index) for index in self.indices.tolist()]

    def sample(self, most: int, seed: int, purpose: str) -> "Part":
        """Returns a part with at most ``most`` of the images, drawn by ``seed`` and ``purpose``, in ascending order."""
        chosen = self.indices
        if len(chosen) > most:
            chosen = np.sort(numpy_generator(seed, purpose).choice(chosen, most, replace=False))
        return Part(self.images, chosen, self.labels)


@dataclass(frozen=True)
class Prepared:
    """Images for training and evaluation, and the facts about them."""

    train: Part
    test: Part
    facts: Facts
    class_names: list[str] | None
    split: str
    source: dict[str, Any]
    long_tail: str | None = None

    @property
    def stores(self) -> list[Samples]:
        """The distinct image stores of both parts."""
        return list({id(part.images): part.images for part in (self.train, self.test)}.values())

    @property
    def sources(self) -> tuple[Source, Source | None]:
        """The data, and the test set if it is separate."""
        first, *others = (cast(Source, store.table) for store in self.stores)
        return first, others[0] if others else None

    def readable(self) -> "Prepared":
        """Returns both parts without the images that could not be decoded."""
        train, test = (
            replace(part, indices=np.intersect1d(part.indices, part.images.usable)) for part in (self.train, self.test)
        )
        return replace(self, train=train, test=test)

    @property
    def unseen(self) -> Part:
        """Images for figures of the evaluation: the held-out ones, or training images if fewer than two are held out."""
        return self.test if len(self.test.indices) >= 2 else self.train

    @property
    def class_counts(self) -> list[int] | None:
        """Number of training images of each class [C]; None without labels."""
        labels = self.train.own_labels
        if labels is None:
            return None
        return np.bincount(labels[labels >= 0], minlength=len(self.class_names or [])).tolist()

    def describe(self, corrupt: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the content of ``data.json``."""
        kind = self.train.images.kind
        return {
            "source": self.source,
            "train": len(self.train.indices),
            "test": len(self.test.indices),
            "labeled": self.facts.labeled,
            "classes": self.class_names,
            "class_counts": self.class_counts,
            "long_tail": self.long_tail,
            "imbalance": None if self.class_counts is None else imbalance(np.array(self.class_counts)),
            "image_size": self.facts.image_size,
            "canvas": Canvas(kind.size, kind.dtype, kind.bands).to_dict(),
            "channels": self.facts.channels,
            "kind": self.source.get("kind"),
            "start": self.facts.start.reason,
            "split": self.split,
            "corrupt": corrupt,
            "rounded": sum(len(store.rounded) for store in self.stores),
            **({"band_notes": list(self.facts.band_notes)} if kind.bands is not None else {}),
        }


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


def arrange(config: Config, sources: tuple[Source, Source | None], facts: Facts) -> Prepared:
    """Returns the split and the image stores of a run. Nothing is decoded yet, so unreadable images are still included.

    Raises:
        InputError: the split leaves no training or no test images, the classes of the test set differ, or a sampler needs
            labels and there are none.
    """
    source, test_source = sources
    labels = source.labels
    train = facts.split.train
    if config.sampler != "uniform" and (labels is None or not (labels[train] >= 0).any()):
        raise InputError(f"sampler={config.sampler!r}: needs labels, and {source.name!r} has none")
    store = _store(source, facts.survey, facts, config)
    if test_source is None:
        test_store, test_labels = store, labels
    else:
        test_store = _store(test_source, survey(test_source, seed=config.seed), facts, config)
        test_labels = match_classes(test_source, source.class_names)
    return Prepared(
        train=Part(store, train, labels),
        test=Part(test_store, facts.split.test, test_labels),
        facts=facts,
        class_names=source.class_names,
        split=facts.split.sentence,
        source=source.describe(),
        long_tail=config.long_tail,
    )


def decode(prepared: Prepared, config: Config, *, progress: bool = True) -> Prepared:
    """Decodes the images of ``prepared`` into the bounded cache; returns it without unreadable ones."""
    for store in prepared.stores:
        for note in store.table.notes:
            log.info("%s", note)
    for store in prepared.stores:
        store.load(progress=progress)
        if store.rounded:
            log.info("%s", rounded_sentence([store.item_id(position) for position in sorted(store.rounded)]))
    prepared = prepared.readable()
    _log_classes(prepared, config)
    return prepared


def prepare(config: Config, sources: tuple[Source, Source | None], facts: Facts, *, progress: bool = True) -> Prepared:
    """Calls `arrange`, then `decode`."""
    return decode(arrange(config, sources, facts), config, progress=progress)


def _log_classes(prepared: Prepared, config: Config) -> None:
    """Logs the class counts of a long tail, and how often a sampler draws the images of the most frequent class."""
    labels, counts = prepared.train.own_labels, prepared.class_counts
    if labels is None or not counts or not any(counts):
        return
    names = prepared.class_names or [str(label) for label in range(len(counts))]
    if config.long_tail is not None:
        log.info(
            "long tail %s: %d training images, imbalance %.3g: %s",
            config.long_tail,
            len(prepared.train.indices),
            imbalance(np.array(counts)),
            first_few([f"{name} {count}" for name, count in zip(names, counts, strict=True)], 20),
        )
    if config.sampler != "uniform":
        label, times = most_frequent_class(labels, config.sampler)
        log.info(
            "sampler %s: each of the %d images of %s is drawn %.3g times per epoch on average",
            config.sampler,
            counts[label],
            visible(names[label]),
            times,
        )


def require_readable(store: Samples, corrupt: list[int], allowed: float) -> None:
    """Raises `InputError`, with the first names, if more than the fraction ``allowed`` of a store's images is corrupt."""
    if len(corrupt) > allowed * len(store):
        first = ", ".join(store.item_id(index) for index in corrupt[:5])
        raise InputError(
            f"data={store.table.name!r}: {len(corrupt)} of {len(store)} images cannot be read, more than "
            f"max_corrupt={allowed:g} allows ({first}{', …' if len(corrupt) > 5 else ''}; all are in the log); "
            "repair or remove them, or raise max_corrupt"
        )


def label_tensor(part: Part) -> torch.Tensor | None:
    """Returns the labels by image index as a tensor."""
    return None if part.labels is None else torch.from_numpy(part.labels.astype(np.int64))


def _store(source: Source, surveyed: Survey, facts: Facts, config: Config) -> Samples:
    return image_samples(
        source,
        size=canvas_size(surveyed.square, facts.image_size),
        channels=facts.channels,
        cache_bytes=int(config.cache_gb * 2**30),
        workers=cores() if config.workers is None else config.workers,
        dtype=surveyed.dtype if facts.bands is None else facts.survey.dtype,
        bands=facts.bands,
    )
