"""From the facts about the data of a run to its images, ready for training: arranged, decoded."""

import logging
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.canvas import Canvas, canvas_size
from coulomb.tables import (
    Samples,
    Source,
    Survey,
    image_samples,
    match_classes,
    survey,
)
from coulomb.tables.check import rounded_sentence
from coulomb.tables.split import imbalance, most_frequent_class
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts

log = logging.getLogger("coulomb")


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
