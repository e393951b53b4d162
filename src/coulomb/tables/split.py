"""Which images are trained on, and how often: test split, long tails, samplers by class."""

from dataclasses import dataclass
from math import exp, lgamma

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.randomness import numpy_generator
from coulomb.tables.source import Labels


def stratified_split(
    labels: "Labels | np.ndarray | None", test_fraction: float, seed: int, *, count: int | None = None
) -> tuple[Labels, Labels]:
    """Splits images into training and test indices, stratified by class.

    Of the n images of a class, test_fraction·n are tested, rounded down or up by the largest remainders so that the total
    is right, but never all of them: a class with one image stays in training. So do images without a label (−1), which
    cannot be scored.

    Args:
        labels: int64 [N], −1 unknown; None for a random split without classes.
        test_fraction: between 0 and 1.
        seed: seed of the random draw.
        count: N; only needed if ``labels`` is None.

    Returns:
        Training indices and test indices, int64, sorted.

    Raises:
        InputError: there are too few images for a test set.

    Shape:
        labels: [N].
        output: two arrays of rows.

    >>> train, test = stratified_split(np.array([0] * 8 + [1] * 2), 0.5, seed=0)
    >>> len(train), len(test), 8 in train or 9 in train
    (5, 5, True)
    """
    check_fraction(test_fraction)
    if labels is None and count is None:
        raise InputError("stratified_split: count= (the number of images) is required without labels")
    classes = np.zeros(count or 0, dtype=np.int64) if labels is None else np.asarray(labels)
    draw = numpy_generator(seed, "split")
    members = [draw.permutation(np.flatnonzero(classes == label)) for label in np.unique(classes[classes >= 0])]
    sizes = np.array([len(member) for member in members], dtype=np.int64)
    takes = _apportion(sizes, test_fraction)
    if not takes.sum():
        raise InputError(
            f"{len(classes)} images ({int(sizes.sum())} labeled, {len(sizes)} classes): too few to hold out a test set; "
            "give a test set or more images" + ("" if labels is None else ", or ignore the labels by labels='none'")
        )
    test = np.sort(np.concatenate([member[:take] for member, take in zip(members, takes, strict=True)]))
    train = np.setdiff1d(np.arange(len(classes)), test)
    return train.astype(np.int64), test.astype(np.int64)


def check_fraction(test_fraction: float) -> None:
    """Raises `InputError` unless the fraction of held-out images is between 0 and 1."""
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction={test_fraction}: must be between 0 and 1, for example 0.2")


def _apportion(sizes: Labels, fraction: float) -> Labels:
    """Number of test images per class: largest remainders, at most n − 1, and at least one in total if a class has two."""
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
    """Describes a split by :func:`stratified_split` for the report.

    >>> train, test = stratified_split(None, 0.2, seed=0, count=50)
    >>> split_sentence(None, train, test, 0.2, seed=0)
    '...'
    """
    held_out = f"{len(test)} of {len(train) + len(test)} images held out ({test_fraction:.0%}, seed {seed}"
    if labels is None:
        return f"{held_out}, drawn at random because there are no labels)."
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    untested = len(np.setdiff1d(known, labels[test]))
    sentence = f"{held_out}, stratified by class)."
    if untested:
        single = int((counts == 1).sum())
        sentence += (
            f" {untested} of {counted(len(known), 'class', 'classes')} {'has' if untested == 1 else 'have'} no test image "
            f"({single} {'has' if single == 1 else 'have'} one image, which stays in training)."
        )
    if unknown := int((labels < 0).sum()):
        sentence += f" {counted(unknown, 'image without a label stays', 'images without a label stay')} in training."
    return sentence


PROFILES = ("exponential", "step", "own")


@dataclass(frozen=True)
class LongTail:
    """A long-tailed class distribution: a ``profile`` and the imbalance ``factor`` IF = n_max / n_min ≥ 1.

    - ``exponential``: n_c = n_max · IF^(−c/(C−1)) (Cui et al., 2019; Cao et al., 2019), class 0 being the most frequent;
    - ``step``: the first half of the classes (rounded up) keep n_max, the others n_max / IF (Buda et al., 2018);
    - ``own``: the counts of the data, unchanged.

    n_max is the largest number for which every class has enough images; if all classes have the same number of images, as
    in CIFAR, it is that number.
    """

    profile: str
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "LongTail":
        """Parses ``exponential:100``, ``step:100`` or ``own``. Raises `InputError` for anything else."""
        profile, colon, number = text.partition(":")
        if text == "own":
            return cls("own")
        try:
            factor = float(number) if colon else float("nan")
        except ValueError:
            factor = float("nan")
        if profile not in PROFILES[:2] or not 1 <= factor < float("inf"):
            raise InputError(
                f"long_tail={text!r}: must be exponential:FACTOR, step:FACTOR (FACTOR = most / fewest images, at least 1; "
                "usually 10, 50 or 100) or own"
            )
        return cls(profile, factor)

    def shares(self, classes: int) -> np.ndarray:
        """Returns n_c / n_max for each of ``classes`` classes, float64."""
        if self.profile == "step":
            return np.where(np.arange(classes) < (classes + 1) // 2, 1.0, 1 / self.factor)
        return self.factor ** (-np.arange(classes) / max(classes - 1, 1))

    def counts(self, available: np.ndarray) -> np.ndarray:
        """Images to keep of those ``available`` [C] per class: ⌊n_max · share⌋, at least 1; empty classes stay empty."""
        available = np.asarray(available, dtype=np.int64)
        present = available > 0
        if self.profile == "own" or not present.any():
            return available.copy()
        shares = self.shares(int(present.sum()))
        most = (available[present] / shares).min()
        counts = available.copy()
        # Slightly above, so that rounding errors do not turn 5000 · 100⁻¹ into 49.
        counts[present] = np.clip(np.floor(most * shares * (1 + 1e-12)), 1, available[present]).astype(np.int64)
        return counts


def long_tail_subset(labels: Labels | None, indices: Labels, tail: LongTail, seed: int) -> Labels:
    """Returns the training ``indices`` that remain in the long ``tail``, in their order.

    Images without a label are all kept. Subsets are nested: for one seed, a tail that keeps more images of a class keeps
    all those that the other keeps.

    Args:
        labels: labels of all images [N], −1 unknown.
        indices: the training images.
        tail: how many images each class keeps.
        seed: seed of the random draw of images within a class.

    Raises:
        InputError: there are fewer than two classes, unless the profile is ``own``.
    """
    if tail.profile == "own":
        return indices
    known = np.full(len(indices), -1) if labels is None else labels[indices]
    classes = np.unique(known[known >= 0])
    if len(classes) < 2:
        raise InputError(
            f"long_tail='{tail.profile}:{tail.factor:g}': needs labels of at least 2 classes among the training images, which "
            f"have {len(classes)}; leave it out"
        )
    counts = tail.counts(np.bincount(known[known >= 0]))
    kept = [indices[known < 0]]
    for label in classes:
        order = numpy_generator(seed, "long tail", int(label)).permutation(indices[known == label])
        kept.append(order[: counts[label]])
    return indices[np.isin(indices, np.concatenate(kept))]


def imbalance(counts: np.ndarray) -> float:
    """Returns the ratio of most to fewest images among classes that have any; 1 if there are none."""
    present = np.asarray(counts)[np.asarray(counts) > 0]
    return float(present.max() / present.min()) if len(present) else 1.0


SAMPLERS = {"uniform": 1.0, "square_root": 0.5, "class_balanced": 0.0}  # exponent q: p(class c) ∝ n_c^q


def class_probabilities(counts: np.ndarray, sampler: str) -> np.ndarray:
    """Probability of each class, p_c ∝ n_c^q (Kang et al., 2020), float64 [C], from its ``counts`` n [C].

    q is 1 for ``uniform`` (over images), ½ for ``square_root`` and 0 for ``class_balanced``. Classes without images have
    probability 0. Raises `InputError` for an unknown sampler.
    """
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r}: must be one of {', '.join(SAMPLERS)}")
    counts = np.asarray(counts, dtype=np.float64)
    weights = np.where(counts > 0, counts ** SAMPLERS[sampler], 0.0)
    return weights / max(weights.sum(), 1e-300)


def epoch_order(indices: Labels, labels: Labels | None, sampler: str, draw: np.random.Generator) -> Labels:
    """Returns the images of one epoch in random order, N in total.

    ``uniform`` shows every image once. The other samplers show L·p_c images of class c, where L is the number of labeled
    images: quotas are rounded up or down at random so that their mean over epochs is exact, and the number of times that
    two images of a class are shown differs by at most 1. Images of rare classes occur several times in an epoch, possibly
    in one batch, where methods that treat all other images as negatives treat such copies as negatives. Images without a
    label (−1) are shown once.

    Args:
        indices: the training images, int64 [N].
        labels: their labels in the same order; None if there are no labels.
        sampler: a name from ``SAMPLERS``.
        draw: generator of the epoch, the only source of randomness.

    Raises:
        InputError: the sampler is unknown, or needs labels and there are none.
    """
    if sampler == "uniform":
        return draw.permutation(indices)
    if labels is None or not (labels >= 0).any():
        raise InputError(f"sampler={sampler!r}: needs labels, and the training images have none; use sampler='uniform'")
    counts = np.bincount(labels[labels >= 0])
    total = int(counts.sum())
    # Systematic rounding: every quota is ⌊L·p⌋ or ⌈L·p⌉, their sum is L, and each is exact in expectation.
    edges = np.concatenate([[0.0], np.cumsum(class_probabilities(counts, sampler))]) * total
    edges[1:] = np.append(np.minimum(edges[1:-1], total), total)  # cumsum may not end at exactly 1
    quotas = np.diff(np.floor(edges + draw.random()).astype(np.int64))
    shown = [indices[labels < 0]]
    for label in np.flatnonzero(quotas):
        members = indices[labels == label]
        rounds, rest = divmod(int(quotas[label]), len(members))
        shown += [members] * rounds + [draw.permutation(members)[:rest]]
    return draw.permutation(np.concatenate(shown))


def most_frequent_class(labels: Labels, sampler: str) -> tuple[int, float]:
    """Returns the class whose images the sampler shows most often, and how often per epoch."""
    counts = np.bincount(labels[labels >= 0])
    times = class_probabilities(counts, sampler) * counts.sum() / np.maximum(counts, 1)
    return int(times.argmax()), float(times.max())


def p_no_positive(class_count: int, total: int, batch_size: int) -> float:
    """Probability that a batch of B has no other image of the anchor's class, if it is drawn without replacement.

    It is C(N − n, B − 1) / C(N − 1, B − 1) for a class of n among N images (hypergeometric, by log-gamma). Only other
    images count; with two views, an anchor also has its own other view as a positive.

    Args:
        class_count: n, images of the class.
        total: N, images in total.
        batch_size: B.

    Raises:
        InputError: ``class_count`` or ``batch_size`` is not in 1…total.

    >>> round(p_no_positive(class_count=10, total=1000, batch_size=64), 2)
    0.56
    """
    if not 1 <= class_count <= total or not 1 <= batch_size <= total:
        raise InputError(
            f"class_count={class_count}, total={total}, batch_size={batch_size}: the first and the last must lie in 1…total"
        )
    others, drawn = total - class_count, batch_size - 1
    if drawn > others:
        return 0.0
    log_p = lgamma(others + 1) - lgamma(others - drawn + 1) - lgamma(total) + lgamma(total - drawn)
    return min(1.0, exp(log_p))


def smallest_batch(class_count: int, total: int, most: float) -> int | None:
    """Returns the smallest batch size with `p_no_positive` ≤ ``most``, by bisection; None if there is none."""
    if p_no_positive(class_count, total, total) > most:
        return None
    low, high = 0, total  # P(low) > most ≥ P(high)
    while high - low > 1:
        middle = (low + high) // 2
        if p_no_positive(class_count, total, middle) > most:
            low = middle
        else:
            high = middle
    return high
