"""The evidence that rules use: the figures of a run and the traits of its method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


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


Line = Mapping[str, Any]
BEGUN = 20  # updates before which a run has hardly begun: neither collapse nor rest can be told from the start


@dataclass(frozen=True)
class Evidence:
    """The findings of a run. Everything but ``config`` may be empty: a rule without its figure says "unknown".

    Args:
        config: the options of the run, as in ``config.yaml``.
        metrics: the lines of ``metrics.jsonl``, in order.
        evaluation: ``evaluation.json``, if there is one.
        data: facts about the images: ``train``, ``test`` (how many), ``class_counts``; ``copies`` {"images", "exact",
            "near", "blank"} and ``leaks`` likewise, as `coulomb.evaluation.examine` finds them.
        network: figures of the trained network: ``scale_change``, ``distance``, ``growth``, ``pixel_retrieval``,
            ``matcher_separation``, ``identical_views``, ``transplant``, ``labels``, ``negatives`` and ``sweep``, as
            `coulomb.evaluation.examine_network` finds them.
        failed: what stopped the training, if it ended with NaN or infinite values.
        needs_labels: whether the method learns from labels; None: as its name says.
    """

    config: Line
    metrics: Sequence[Line] = ()
    evaluation: Line | None = None
    data: Line = field(default_factory=dict)
    network: Line = field(default_factory=dict)
    failed: str | None = None
    needs_labels: bool | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config.get("method"))

    @property
    def traits(self) -> Traits:
        """What is normal for the method."""
        return traits_of(self.method, self.needs_labels)

    def option(self, name: str) -> Any:
        """An option of the method itself; None where it has none of this name."""
        return (self.config.get("method_options") or {}).get(name)

    @property
    def updates(self) -> int:
        """Updates that the run has made."""
        return max((int(line["step"]) for line in self.metrics if "loss" in line), default=0)

    @property
    def planned(self) -> int:
        """Updates that the run has made or, while it is under way, will have made as far as its options tell."""
        epochs, batch, images = self.config.get("epochs"), self.config.get("batch_size"), self.data.get("train")
        if not epochs or not batch or not images:
            return self.updates
        return max(self.updates, epochs * (images // batch) // (self.config.get("accumulate") or 1))

    @property
    def classes(self) -> int | None:
        """Classes that occur in the training images; None without labels."""
        counts = self.data.get("class_counts")
        return None if not counts or not any(counts) else sum(count > 0 for count in counts)

    def first(self, name: str) -> tuple[float, int] | None:
        """The first figure of this name, and its epoch."""
        return _figure(self.metrics, name)

    def last(self, name: str) -> tuple[float, int] | None:
        """The last figure of this name, and its epoch."""
        return _figure(self.metrics[::-1], name)

    def late(self, name: str, share: float = 0.25) -> float | None:
        """The median over the last ``share`` of the lines that have the figure: single steps are noisy."""
        values = self.all(name)
        return median(values[-max(1, round(len(values) * share)) :]) if values else None

    def typical(self, name: str) -> float | None:
        """The median over all lines that have the figure."""
        values = self.all(name)
        return median(values) if values else None

    def all(self, name: str) -> list[float]:
        """Every figure of this name, in order."""
        return [float(line[name]) for line in self.metrics if isinstance(line.get(name), int | float)]

    def evaluated(self, contestant: str, name: str) -> float | None:
        """A figure of ``evaluation.json``: of ``trained``, ``random_init`` or ``raw_pixels``."""
        value = ((self.evaluation or {}).get(contestant) or {}).get(name)
        return float(value) if isinstance(value, int | float) else None


def _figure(lines: Sequence[Line], name: str) -> tuple[float, int] | None:
    for line in lines:
        if isinstance(line.get(name), int | float):
            return float(line[name]), int(line.get("epoch", 0))
    return None
