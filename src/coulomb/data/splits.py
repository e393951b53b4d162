"""A seeded split into training and test images that keeps every class's share."""

import numpy as np

from coulomb.data.source import Labels
from coulomb.errors import InputError
from coulomb.randomness import numpy_generator


def stratified_split(
    labels: "Labels | np.ndarray | None", test_fraction: float, seed: int, *, count: int | None = None
) -> tuple[Labels, Labels]:
    """(training indices, test indices), sorted, int64.

    Of each class's n images, test_fraction·n rounded down or up go to the test set (largest remainders are rounded up, so
    that the total is right), but never all of them: a class with one image stays in training. Images without a label
    (−1) stay in training: they could not be scored. ``labels`` None needs ``count`` and draws plainly.

    Raises :class:`InputError` where nothing would be left for one side.
    """
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction={test_fraction}: give a number between 0 and 1, for instance 0.2")
    if labels is None and count is None:
        raise InputError("stratified_split: without labels, count= (the number of images) is needed")
    classes = np.zeros(count or 0, dtype=np.int64) if labels is None else np.asarray(labels)
    draw = numpy_generator(seed, "split")
    members = [draw.permutation(np.flatnonzero(classes == label)) for label in np.unique(classes[classes >= 0])]
    sizes = np.array([len(member) for member in members], dtype=np.int64)
    takes = _apportion(sizes, test_fraction)
    if not takes.sum():
        raise InputError(
            f"{len(classes)} images ({int(sizes.sum())} labelled, {len(sizes)} classes): too few to hold out a test set; "
            "give a test set or more images" + ("" if labels is None else ", or ignore the labels: labels='none'")
        )
    test = np.sort(np.concatenate([member[:take] for member, take in zip(members, takes, strict=True)]))
    train = np.setdiff1d(np.arange(len(classes)), test)
    return train.astype(np.int64), test.astype(np.int64)


def _apportion(sizes: Labels, fraction: float) -> Labels:
    """How many of each class are tested: largest remainders, at most n − 1, at least one in all where any class has two."""
    wanted = sizes * fraction
    takes = np.floor(wanted).astype(np.int64)  # at most n − 1, for fraction < 1
    total = max(1, int(np.floor(sizes[sizes > 1].sum() * fraction + 0.5)))
    remainders = np.where((takes < sizes - 1) & (wanted > takes), wanted - takes, -1.0)
    order = np.argsort(-remainders, kind="stable")
    for index in order[: max(0, total - int(takes.sum()))]:
        if remainders[index] > 0:
            takes[index] += 1
    return takes


def split_sentence(labels: "Labels | None", train: Labels, test: Labels, test_fraction: float, seed: int) -> str:
    """What :func:`stratified_split` did, for the report."""
    drawn = f"{len(test)} of {len(train) + len(test)} images held out ({test_fraction:.0%}, seed {seed}"
    if labels is None:
        return f"{drawn}, drawn at random: there are no labels)."
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    untested = len(np.setdiff1d(known, labels[test]))
    said = f"{drawn}, stratified by class)."
    if untested:
        single = int((counts == 1).sum())
        said += f" {untested} of {len(known)} classes have no test image ({single} have one image, which stays in training)."
    unknown = int((labels < 0).sum())
    if unknown:
        said += f" {unknown} images without a label stay in training."
    return said
