"""The experiments of the lab by name."""

from coulomb.ground.errors import InputError, did_you_mean
from coulomb_lab.alignment_uniformity import ALIGNMENT_UNIFORMITY
from coulomb_lab.augmentations import AUGMENTATIONS
from coulomb_lab.experiment import Experiment
from coulomb_lab.imbalance import IMBALANCE, LONGTAIL
from coulomb_lab.infonce import NCE, TWO_INFONCE
from coulomb_lab.methods import COLLAPSE, METHODS_TABLE
from coulomb_lab.negatives import BATCH_SIZE, HARD_NEGATIVES, QUEUE
from coulomb_lab.temperature import TEMPERATURE

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
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in ALL}

# Further commands, by name and question.
FURTHER = {
    "doctor": "Does the doctor find every known problem, and none in healthy runs?",
    "explore": "What does the temperature do? An interactive page: drag points, change τ, see every gradient.",
}


def find_experiment(name: str) -> Experiment:
    """Returns the experiment with this name.

    Raises:
        InputError: it does not exist.
    """
    if name not in EXPERIMENTS:
        names = [*EXPERIMENTS, *FURTHER]
        hint = did_you_mean(name, names)
        raise InputError(f"experiment={name!r}: does not exist; there are {', '.join(names)}{hint}")
    return EXPERIMENTS[name]


def listing() -> str:
    """Returns names and questions, one per line."""
    entries = [*((one.name, one.question) for one in EXPERIMENTS.values()), *FURTHER.items()]
    width = max(len(name) for name, _ in entries)
    return "\n".join(f"{name:<{width}}  {question}" for name, question in entries)
