"""What a person may choose about an experiment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coulomb.errors import InputError

TAIL = "exponential:100"


@dataclass(frozen=True)
class Settings:
    """The same for all runs of an experiment.

    Args:
        data, test: images with labels, as for training.
        out: folder; each experiment has one of its own in it.
        quick: a few epochs each, about three minutes in all on two cores for digits; to see it work, not to judge by.
        epochs: of every run; None: each method's own recipe.
        budget: minutes of training for every run, instead of epochs; a short measurement says how many epochs that is.
        seed: of all; the first of several.
        seeds: how many, one after the other; figures are then mean ± deviation. None: 1 for a quick look, else 3.
        long_tail: split of the experiment ``longtail``.
        only: names of runs; None: all.
        options: any further options of training, for all runs.
    """

    data: str = "digits"
    test: str | None = None
    out: Path = Path("runs/lab")
    quick: bool = False
    epochs: int | None = None
    budget: float | None = None
    seed: int = 0
    seeds: int | None = None
    long_tail: str = TAIL
    only: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chosen = [name for name in ("quick", "epochs", "budget") if getattr(self, name)]
        if len(chosen) > 1:
            raise InputError(f"{' and '.join(chosen)}: each says how long to train; give one of them")
        if self.budget is not None and not 0 < self.budget < float("inf"):
            raise InputError(f"budget={self.budget!r}: minutes, more than 0")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs={self.epochs!r}: must be at least 1")
        if self.seeds is not None and self.seeds < 1:
            raise InputError(f"seeds={self.seeds!r}: must be at least 1")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Every run is done with each of these."""
        return tuple(range(self.seed, self.seed + (self.seeds or (1 if self.quick else 3))))

    @property
    def digits(self) -> bool:
        """Whether the data are the built-in digits, whose kNN is near its ceiling before any training."""
        return self.data == "digits"

    @property
    def headline(self) -> str:
        """The figure that claims are judged by: five labels a class on digits, kNN elsewhere."""
        return "few_5" if self.digits else "knn"

    @property
    def draws(self) -> int:
        """Draws of the few-shot evaluation."""
        return 5 if self.quick else 20
