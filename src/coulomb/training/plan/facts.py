"""Facts about the data of a run, from which its recipe follows: split, image size, channels, what the encoder begins from."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coulomb.ground import machine
from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.kinds.image.bands import Bands, Measured, parse_bands
from coulomb.tables import Source, Survey, open_source, split_sentence, stratified_split, suggest_image_size, survey
from coulomb.tables.bands import find_bands
from coulomb.tables.groups import find_groups, grouped_sentence, grouped_split, require_apart
from coulomb.tables.split import LongTail, long_tail_subset
from coulomb.training.plan.config import Config
from coulomb.training.plan.resolved import Split
from coulomb.training.plan.start import FROM_SCRATCH, Start, choose_start

LARGEST = {"small": 96, "paper": 224}  # largest image size that a preset chooses, in pixels


@dataclass(frozen=True)
class Facts:
    """Facts that recipes depend on, and the survey and split that they come from, which are used again for the images."""

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


def open_data(config: Config, data: Any = None, test: Any = None) -> tuple[Source, Source | None]:
    """Opens the sources of a run: the objects passed in Python, or what ``config`` names."""
    source = open_source(config.data if data is None else data, labels=config.labels, root=config.root)
    given = config.test if test is None else test
    test_source = None if given is None else open_source(given, labels=config.labels, root=config.root)
    if len(source) < 2:
        raise InputError(f"data={config.data!r}: {len(source)} image; contrastive learning needs at least 2")
    return source, test_source


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
