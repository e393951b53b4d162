"""From what the user handed over to images ready for training: opened, measured, split, decoded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coulomb.data import Images, Source, open_source, stratified_split, suggest_image_size, survey
from coulomb.errors import InputError
from coulomb.training.config import Config


@dataclass
class Part:
    """One side of the split: which images of which store, with their labels by image index (None: no labels)."""

    images: Images
    indices: np.ndarray
    labels: np.ndarray | None

    @property
    def own_labels(self) -> np.ndarray | None:
        """Labels of ``indices``, in their order."""
        return None if self.labels is None else self.labels[self.indices]


@dataclass
class Facts:
    """What a recipe may decide by."""

    images: int
    image_size: int
    channels: int
    labelled: int
    digits: bool


@dataclass
class Prepared:
    """Images for training and for evaluation, and what was found out about them."""

    train: Part
    test: Part
    facts: Facts
    class_names: list[str] | None
    split: str
    source: dict[str, Any]

    def describe(self, corrupt: list[dict[str, str]]) -> dict[str, Any]:
        """The content of ``data.json``."""
        return {
            "source": self.source,
            "train": len(self.train.indices),
            "test": len(self.test.indices),
            "labelled": self.facts.labelled,
            "classes": self.class_names,
            "image_size": self.facts.image_size,
            "channels": self.facts.channels,
            "kind": self.source.get("kind"),
            "split": self.split,
            "corrupt": corrupt,
        }


def open_data(config: Config, data: Any = None, test: Any = None) -> tuple[Source, Source | None]:
    """The sources of a run: objects given in Python, or what ``config`` names."""
    train_source = open_source(config.data if data is None else data)
    wanted = config.test if test is None else test
    test_source = None if wanted is None else open_source(wanted)
    if len(train_source) < 2:
        raise InputError(f"data={config.data!r}: {len(train_source)} image; contrastive learning needs at least 2")
    return train_source, test_source


def measure(config: Config, source: Source) -> Facts:
    """Image size and channels the network will see, from the options or from a survey of the images."""
    found = survey(source, seed=config.seed)
    largest = 96 if config.preset == "small" else 224
    return Facts(
        images=len(source),
        image_size=config.image_size or suggest_image_size(found, largest),
        channels=config.channels or found.channels,
        labelled=0 if source.labels is None else int((source.labels >= 0).sum()),
        digits=source.kind == "digits",
    )


def prepare(config: Config, sources: tuple[Source, Source | None], facts: Facts, *, progress: bool = True) -> Prepared:
    """Split, decode into the bounded cache, and leave out what cannot be read."""
    source, test_source = sources
    workers = loader_workers(config)
    store = _store(source, facts, config, workers, progress)
    labels = store_labels(source)
    if test_source is not None:
        test_store = _store(test_source, facts, config, workers, progress)
        train_indices, test_indices = np.arange(len(source)), np.arange(len(test_source))
        test_labels = _same_classes(source, test_source)
        split = f"the user's own: {len(source)} images in {source.name}, {len(test_source)} in {test_source.name}"
    else:
        test_store, test_labels = store, labels
        train_indices, test_indices = stratified_split(source.labels, config.test_fraction, config.seed)
        kind = "stratified by class" if labels is not None else "random (no labels)"
        split = f"{kind}, seed {config.seed}: {len(train_indices)} for training, {len(test_indices)} held out"
    return Prepared(
        train=Part(store, _readable(store, train_indices), labels),
        test=Part(test_store, _readable(test_store, test_indices), test_labels),
        facts=facts,
        class_names=source.class_names,
        split=split,
        source=source.describe(),
    )


def loader_workers(config: Config) -> int:
    """Decoding processes: as asked, or the cores, at most 8."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if config.workers is None else config.workers


def store_labels(source: Source) -> np.ndarray | None:
    """Labels by image index, or None when not one image has any."""
    if source.labels is None or not (source.labels >= 0).any():
        return None
    return np.asarray(source.labels)


def label_tensor(part: Part) -> torch.Tensor | None:
    """Labels by image index as a tensor."""
    return None if part.labels is None else torch.from_numpy(np.ascontiguousarray(part.labels, dtype=np.int64))


def _store(source: Source, facts: Facts, config: Config, workers: int, progress: bool) -> Images:
    images = Images(
        source,
        size=canvas_size(source, facts.image_size, config.seed),
        channels=facts.channels,
        cache_bytes=int(config.cache_gb * 2**30),
        workers=workers,
    )
    images.load(progress=progress)
    return images


def canvas_size(source: Source, image_size: int, seed: int = 0) -> int:
    """Side of the stored square: the images' own when they are small and all alike, else a third above what is seen.

    The margin keeps crops sharp: a crop of 9/16 of the area is still at full resolution.
    """
    found = survey(source, seed=seed)
    if found.uniform and found.width == found.height and found.width <= 2 * image_size:
        return int(found.width)
    return int(np.ceil(image_size * 4 / 3 / 8) * 8)


def _readable(store: Images, indices: np.ndarray) -> np.ndarray:
    if not store.failures:
        return indices
    return indices[~np.isin(indices, np.fromiter(store.failures, dtype=np.int64))]


def _same_classes(train: Source, test: Source) -> np.ndarray | None:
    """Labels of the test source in the numbering of the training source, matched by class name."""
    labels = store_labels(test)
    if labels is None or test.class_names is None or train.class_names is None or test.class_names == train.class_names:
        return labels
    number = {name: index for index, name in enumerate(train.class_names)}
    unknown = [name for name in test.class_names if name not in number]
    if unknown:
        raise InputError(
            f"test={test.name!r}: class {unknown[0]!r} is not among the training classes "
            f"({', '.join(train.class_names[:5])}, …); rename it, or leave its label out"
        )
    table = np.array([*(number[name] for name in test.class_names), -1])
    return table[labels]
