"""The seeded split into training and test images, and long-tailed training sets."""

from dataclasses import dataclass

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


PROFILES = ("exponential", "step", "own")


@dataclass(frozen=True)
class LongTail:
    """How many training images each class keeps: ``profile`` and imbalance ``factor`` IF ≥ 1, n_max / n_min.

    - ``exponential``: n_c = n_max · IF^(−c/(C−1)) (Cui et al., 2019; Cao et al., 2019), class 0 the most frequent;
    - ``step``: the first half of the classes (the larger, when odd) keep n_max, the others n_max / IF (Buda et al., 2018);
    - ``own``: the data's own counts; nothing is left out.

    n_max is the most that leaves every class at its share: where all classes have as many images, as in CIFAR, that number.
    """

    profile: str
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "LongTail":
        """``exponential:100``, ``step:100`` or ``own``. Raises `InputError` for anything else."""
        profile, colon, number = text.partition(":")
        if text == "own":
            return cls("own")
        try:
            factor = float(number) if colon else float("nan")
        except ValueError:
            factor = float("nan")
        if profile not in PROFILES[:2] or not 1 <= factor < float("inf"):
            raise InputError(
                f"long_tail={text!r}: write exponential:FACTOR, step:FACTOR (FACTOR = most / fewest images, at least 1; "
                "the usual ones are 10, 50 and 100) or own"
            )
        return cls(profile, factor)

    def shares(self, classes: int) -> np.ndarray:
        """n_c / n_max for each of ``classes`` classes, float64."""
        if self.profile == "step":
            return np.where(np.arange(classes) < (classes + 1) // 2, 1.0, 1 / self.factor)
        return self.factor ** (-np.arange(classes) / max(classes - 1, 1))

    def counts(self, available: np.ndarray) -> np.ndarray:
        """Images that each class keeps of those ``available`` [C]: ⌊n_max · share⌋, at least one; classes without stay so."""
        available = np.asarray(available, dtype=np.int64)
        present = available > 0
        if self.profile == "own" or not present.any():
            return available.copy()
        shares = self.shares(int(present.sum()))
        most = (available[present] / shares).min()
        kept = available.copy()
        # A hair above, so that 5000 · 100⁻¹ is 50 and not 49.
        kept[present] = np.clip(np.floor(most * shares * (1 + 1e-12)), 1, available[present]).astype(np.int64)
        return kept


def long_tail_subset(labels: Labels | None, indices: Labels, tail: LongTail, seed: int) -> Labels:
    """The ``indices`` (of training images) that the ``tail`` keeps, in their order; which images of a class, ``seed`` decides.

    ``labels`` [N] are those of all images, −1 unknown. Images without a label are all kept: they are in no class.
    Subsets are nested: of two tails with one seed, the one that keeps more of a class keeps all the other keeps.

    Raises `InputError` without labels or with fewer than two classes (``own`` needs none).
    """
    if tail.profile == "own":
        return indices
    own = np.full(len(indices), -1) if labels is None else labels[indices]
    classes = np.unique(own[own >= 0])
    if len(classes) < 2:
        raise InputError(
            f"long_tail='{tail.profile}:{tail.factor:g}': needs labels of at least 2 classes among the training images, "
            f"found {len(classes)}; leave it out"
        )
    available = np.bincount(own[own >= 0])
    counts = tail.counts(available)
    kept = [indices[own < 0]]
    for label in classes:
        order = numpy_generator(seed, "long tail", int(label)).permutation(indices[own == label])
        kept.append(order[: counts[label]])
    return indices[np.isin(indices, np.concatenate(kept))]


def imbalance(counts: np.ndarray) -> float:
    """Most over fewest images of a class, of the classes that have any; 1 where there is none."""
    present = np.asarray(counts)[np.asarray(counts) > 0]
    return float(present.max() / present.min()) if len(present) else 1.0
