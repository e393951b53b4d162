"""What the lab can do, by name."""

from coulomb.errors import InputError, did_you_mean
from coulomb.lab.alignment_uniformity import ALIGNMENT_UNIFORMITY
from coulomb.lab.augmentations import AUGMENTATIONS
from coulomb.lab.experiment import Experiment
from coulomb.lab.imbalance import IMBALANCE, LONGTAIL
from coulomb.lab.infonce import NCE, TWO_INFONCE
from coulomb.lab.methods import COLLAPSE, METHODS_TABLE
from coulomb.lab.negatives import BATCH_SIZE, HARD_NEGATIVES, QUEUE
from coulomb.lab.temperature import TEMPERATURE

ALL = (
    METHODS_TABLE,
    TEMPERATURE,
    TWO_INFONCE,
    HARD_NEGATIVES,
    BATCH_SIZE,
    QUEUE,
    NCE,
    COLLAPSE,
    ALIGNMENT_UNIFORMITY,
    AUGMENTATIONS,
    LONGTAIL,
    IMBALANCE,
)
EXPERIMENTS: dict[str, Experiment] = {made.name: made for made in ALL}


# What is no experiment with runs to judge: commands of their own, by name and question.
FURTHER = {
    "doctor": "Does the doctor find every sickness, and none where there is none?",
    "explore": "What does the temperature do? A page: drag points, move τ, see every push.",
}


def experiment_of(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        InputError: there is none.
    """
    if name not in EXPERIMENTS:
        names = [*EXPERIMENTS, *FURTHER]
        hint = did_you_mean(name, names)
        raise InputError(f"experiment {name!r}: there is none; the lab has {', '.join(names)}{hint}")
    return EXPERIMENTS[name]


def listing() -> str:
    """Names and questions, a line each."""
    entries = [*((made.name, made.question) for made in EXPERIMENTS.values()), *FURTHER.items()]
    width = max(len(name) for name, _ in entries)
    return "\n".join(f"{name:<{width}}  {question}" for name, question in entries)
