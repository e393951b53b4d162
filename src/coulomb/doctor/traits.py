"""What is normal for a method: the same figure may be health in one and sickness in another."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """What the rules must know of a method.

    Args:
        negatives: pushes an anchor away from negatives whose weights follow a temperature.
        labels: learns from labels. Classes then fall together by design, and the effective rank of the embeddings tends
            to classes − 1 (neural collapse; Papyan et al., 2020).
        momentum: has a momentum encoder.
        queue: may keep keys of past batches.
        classifier: what is called the head is a classifier, whose size is its confidence.
        floor: how far below ``no_signal`` the loss can come: ``"instances"``, ``"classes"`` (class mates stay in the
            denominator), or ``"zero"``.
        ceiling: a loss above ``no_signal`` is worse than knowing nothing. Not so with a margin, which lifts the loss of all
            but the most certain answers.
    """

    negatives: bool = False
    labels: bool = False
    momentum: bool = False
    queue: bool = False
    classifier: bool = False
    floor: str = "instances"
    ceiling: bool = True


TRAITS = {
    "simclr": Traits(negatives=True),
    "moco": Traits(negatives=True, momentum=True, queue=True),
    "instdisc": Traits(negatives=True),
    "byol": Traits(momentum=True),
    "simsiam": Traits(),
    "debiased": Traits(negatives=True),
    "hard": Traits(negatives=True),
    "supcon": Traits(negatives=True, labels=True, floor="classes"),
    "triplet": Traits(labels=True, floor="zero"),
    "arcface": Traits(labels=True, floor="zero", ceiling=False),
    "paco": Traits(negatives=True, labels=True, momentum=True, queue=True, floor="classes"),
    "softmax": Traits(labels=True, classifier=True, floor="zero"),
    "balanced_softmax": Traits(labels=True, classifier=True, floor="zero"),
}


def traits_of(method: str, needs_labels: bool | None = None) -> Traits:
    """The traits of a method; one's own is taken for one with negatives in the batch, and labels as it says itself."""
    if method in TRAITS:
        return TRAITS[method]
    labels = bool(needs_labels)
    return Traits(negatives=True, labels=labels, momentum=True, queue=True, floor="zero" if labels else "instances")
