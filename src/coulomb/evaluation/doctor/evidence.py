"""The evidence that rules use: the figures of a run and the traits of its method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from coulomb.methods import METHODS, PAIR_METHODS
from coulomb.methods.interface import Traits
from coulomb.models import has_weights
from coulomb.training.plan.column_towers import by_column
from coulomb.training.plan.towers import KINDS

Line = Mapping[str, Any]
LEAST_UPDATES = 20  # with fewer updates collapse and stalled weights look like the initial state


TRAITS = {name: method.traits for name, method in (PAIR_METHODS | METHODS).items()}
ALL_TRAITS = Traits(negatives=True, momentum=True, queue=True)  # assumed of a user's method


@dataclass(frozen=True)
class Evidence:
    """The figures of a run. All but ``config`` may be empty: a rule without its figures returns "unknown".

    Args:
        config: the options of the run, as in ``config.yaml``.
        metrics: the lines of ``metrics.jsonl``, in order.
        evaluation: the content of ``evaluation.json``, if it exists.
        data: facts about the images: ``train``, ``test`` (their numbers), ``class_counts``, and ``copies`` and ``leaks``
            as `coulomb.evaluation.examine` counts them.
        network: measurements on the trained network, as in `coulomb.evaluation.examine_network`.
        failed: the error message, if the training ended with NaN or infinite values.
        needs_labels: whether a user's method learns from labels.
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
        """The name of the method."""
        return str(self.config.get("method"))

    @property
    def traits(self) -> Traits:
        """The traits of the method; a user's method is assumed to have all parts."""
        assumed = replace(ALL_TRAITS, floor="zero") if self.learns_from_labels else ALL_TRAITS
        return TRAITS.get(self.method, assumed)

    @property
    def learns_from_labels(self) -> bool:
        """True if the method needs labels. Classes then collapse by design: the effective rank of the embeddings tends to
        classes − 1 (neural collapse; Papyan et al., 2020)."""
        return METHODS[self.method].needs_labels if self.method in METHODS else bool(self.needs_labels)

    def option(self, name: str) -> Any:
        """Returns an option of the method, None if it has none of this name."""
        return (self.config.get("method_options") or {}).get(name)

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        return max((int(line["step"]) for line in self.metrics if "loss" in line), default=0)

    @property
    def planned(self) -> int:
        """Number of updates at the end of the run, as far as its options determine it."""
        epochs, batch, images = self.config.get("epochs"), self.config.get("batch_size"), self.data.get("train")
        if not epochs or not batch or not images:
            return self.updates
        return max(self.updates, epochs * (images // batch) // (self.config.get("accumulate") or 1))

    @property
    def classes(self) -> int | None:
        """Number of classes among the training images; None without labels."""
        counts = self.data.get("class_counts")
        return None if not counts or not any(counts) else sum(count > 0 for count in counts)

    @property
    def verdict(self) -> Line:
        """The verdict in ``evaluation.json``; empty if there is none."""
        verdict = (self.evaluation or {}).get("verdict")
        return verdict if isinstance(verdict, dict) else {}

    @property
    def drift(self) -> Line:
        """The distance of the features from the starting weights' features, as in ``evaluation.json``; empty if unknown."""
        figures = (self.evaluation or {}).get("drift")
        return figures if isinstance(figures, dict) else {}

    @property
    def from_weights(self) -> bool:
        """True if the encoder, or any of several, started from weights rather than from random values."""
        encoder, columns = self.config.get("encoder"), self.data.get("columns")
        if not isinstance(columns, Mapping):
            return has_weights(encoder)
        names = by_column("encoder", encoder, tuple(columns))
        kinds = {column: KINDS.get(str(columns[column])) for column in names}
        return any(kind.begins_from_weights(names[column]) for column, kind in kinds.items() if kind is not None)

    def first(self, name: str) -> tuple[float, int] | None:
        """Returns the first value of a metric and its epoch."""
        return _first_value(self.metrics, name)

    def last(self, name: str) -> tuple[float, int] | None:
        """Returns the last value of a metric and its epoch."""
        return _first_value(self.metrics[::-1], name)

    def late(self, name: str, share: float = 0.25) -> float | None:
        """Returns the median over the last ``share`` of the values of a metric, since single steps are noisy."""
        values = self.all(name)
        return median(values[-max(1, round(len(values) * share)) :]) if values else None

    def typical(self, name: str) -> float | None:
        """Returns the median over all values of a metric."""
        return self.late(name, share=1)

    def all(self, name: str) -> list[float]:
        """Returns all values of a metric, in order."""
        return [float(line[name]) for line in self.metrics if isinstance(line.get(name), int | float)]

    def evaluated(self, contestant: str, name: str) -> float | None:
        """Returns a figure of a contestant in ``evaluation.json``: ``trained``, ``random_init``, ``raw_pixels``, …"""
        value = ((self.evaluation or {}).get(contestant) or {}).get(name)
        return float(value) if isinstance(value, int | float) else None


def _first_value(lines: Sequence[Line], name: str) -> tuple[float, int] | None:
    for line in lines:
        if isinstance(line.get(name), int | float):
            return float(line[name]), int(line.get("epoch", 0))
    return None
