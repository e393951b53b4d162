"""What the lab can do, by name."""

from coulomb.errors import InputError
from coulomb.lab.collapse import COLLAPSE
from coulomb.lab.experiment import Experiment
from coulomb.lab.longtail import LONGTAIL
from coulomb.lab.methods import METHODS_TABLE
from coulomb.lab.queue import QUEUE

EXPERIMENTS: dict[str, Experiment] = {made.name: made for made in (METHODS_TABLE, LONGTAIL, COLLAPSE, QUEUE)}


def experiment_of(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        InputError: there is none.
    """
    if name not in EXPERIMENTS:
        raise InputError(f"experiment {name!r}: there is none; the lab has {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def listing() -> str:
    """Names and questions, a line each."""
    width = max(map(len, EXPERIMENTS))
    return "\n".join(f"{made.name:<{width}}  {made.question}" for made in EXPERIMENTS.values())
