"""From the user's data to images ready for training: opened, measured, split, decoded."""

import logging
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from coulomb.ground import machine
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.bands import Bands, Measured, parse_bands
from coulomb.kinds.image.canvas import Canvas, canvas_size
from coulomb.tables import (
    Samples,
    Source,
    Survey,
    image_samples,
    match_classes,
    open_source,
    split_sentence,
    stratified_split,
    suggest_image_size,
    survey,
)
from coulomb.tables.bands import find_bands
from coulomb.tables.check import rounded_sentence
from coulomb.tables.groups import find_groups, grouped_sentence, grouped_split, require_apart
from coulomb.tables.split import LongTail, imbalance, long_tail_subset, most_frequent_class
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config
from coulomb.training.plan.resolved import Split
from coulomb.training.plan.start import FROM_SCRATCH, Start, choose_start

log = logging.getLogger("coulomb")

LARGEST = {"small": 96, "paper": 224}  # largest image size that a preset chooses, in pixels


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
class Facts:
    """Facts that recipes depend on, and the survey and split they come from, which `arrange` reuses."""

    images: int  # for training, without held-out images and those that a long tail removes
    image_size: int
    channels: int
    labeled: int
    digits: bool
    fast_bf16: bool
    survey: Survey
    split: Split
    start: Start = FROM_SCRATCH
    bands: Bands | None = None  # of images that are no photos
    band_notes: tuple[str, ...] = ()
    band_findings: tuple[str, ...] = ()  # of these, what is worth attention


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


def open_data(config: Config, data: Any = None, test: Any = None) -> tuple[Source, Source | None]:
    """Opens the sources of a run: the objects passed in Python, or what ``config`` names."""
    source = open_source(config.data if data is None else data, labels=config.labels, root=config.root)
    given = config.test if test is None else test
    test_source = None if given is None else open_source(given, labels=config.labels, root=config.root)
    if len(source) < 2:
        raise InputError(f"data={config.data!r}: {len(source)} image; contrastive learning needs at least 2")
    return source, test_source


def make_split(config: Config, source: Source, test_source: Source | None) -> Split:
    """Splits the data by the test set, or else by groups and seed of ``config``; subsamples the training part to a long tail.

    Raises:
        InputError: there are too few images or groups, or a group is in both the data and the test set.
    """
    labels = source.labels
    groups = None if config.group is None else find_groups(source, config.group)
    if test_source is not None:
        train, test = np.arange(len(source)), np.arange(len(test_source))
        sentence = f"the user's own: {len(source)} images of {source.name}, {len(test_source)} of {test_source.name}"
        if config.group is not None and groups is not None:
            require_apart(groups, find_groups(test_source, config.group))
            sentence += f"; no {visible(groups.noun)} is in both"
    elif groups is not None:
        train, test = grouped_split(labels, groups, config.test_fraction, config.seed)
        sentence = grouped_sentence(labels, groups, train, test, config.seed)
    else:
        train, test = stratified_split(labels, config.test_fraction, config.seed, count=len(source))
        sentence = split_sentence(labels, train, test, config.test_fraction, config.seed)
    if config.long_tail is not None:
        whole, train = len(train), long_tail_subset(labels, train, LongTail.parse(config.long_tail), config.seed)
        sentence += (
            f"; long tail {config.long_tail}: {len(train)} of {whole} training images kept, the test images untouched"
        )
    return Split(train, test, sentence)


def measure(
    config: Config, source: Source, test_source: Source | None = None, *, bands: Measured | None = None
) -> Facts:
    """Computes the facts: the split, and the size and channels of the network's input, from options or from a survey.

    ``bands``: of the run, if it has begun; by default they are measured on the training images, see `find_bands`.

    Raises:
        InputError: as in `make_split` and `find_bands`, or ``config`` has another number of channels than bands.
    """
    surveyed = survey(source, seed=config.seed)
    split = make_split(config, source, test_source)
    if bands is None:
        chosen = None if config.bands is None else parse_bands(config.bands)
        bands = find_bands(source, split.train, surveyed, chosen, config.seed)
    if bands is not None:
        dtype = "uint8" if bands.bands.eight_bits else "float32"
        surveyed = replace(surveyed, channels=len(bands.bands.chosen), dtype=dtype, bands=True)
        if config.channels not in (None, surveyed.channels):
            raise InputError(
                f"channels={config.channels}: {visible(source.name)} has {surveyed.channels} bands; train an encoder on them "
                "(--encoder lite0 adapts weights for photos), or choose others with --bands"
            )
    start = choose_start(config, surveyed, len(split.train), digits=source.kind == "digits")
    return Facts(
        images=len(split.train),
        image_size=config.image_size or start.image_size or suggest_image_size(surveyed, LARGEST[config.preset]),
        channels=config.channels or start.channels or surveyed.channels,
        labeled=0 if source.labels is None else int((source.labels >= 0).sum()),
        digits=source.kind == "digits",
        fast_bf16=machine.fast_bf16(),
        survey=surveyed,
        split=split,
        start=start,
        bands=None if bands is None else bands.bands,
        band_notes=() if bands is None else bands.notes,
        band_findings=() if bands is None else bands.findings,
    )


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
