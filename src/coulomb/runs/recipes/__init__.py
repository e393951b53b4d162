"""Recipes: functions that return the complete configuration of a run, for a method and a preset."""

from collections.abc import Callable

from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.runs.config import Config
from coulomb.runs.prepare import Facts
from coulomb.runs.recipes import classes, contrast, self_supervised
from coulomb.runs.recipes.settings import small

Recipe = Callable[[Facts], Config]

RECIPES: dict[tuple[str, str], Recipe] = {
    ("simclr", "small"): contrast.simclr_small,
    ("simclr", "paper"): contrast.simclr_paper,
    ("moco", "small"): self_supervised.moco_small,
    ("moco", "paper"): self_supervised.moco_paper,
    ("instdisc", "small"): self_supervised.instdisc_small,
    ("instdisc", "paper"): self_supervised.instdisc_paper,
    ("byol", "small"): self_supervised.byol_small,
    ("byol", "paper"): self_supervised.byol_paper,
    ("simsiam", "small"): self_supervised.simsiam_small,
    ("simsiam", "paper"): self_supervised.simsiam_paper,
    ("debiased", "small"): self_supervised.debiased_small,
    ("debiased", "paper"): self_supervised.debiased_paper,
    ("hard", "small"): self_supervised.hard_small,
    ("hard", "paper"): self_supervised.hard_paper,
    ("supcon", "small"): contrast.supcon_small,
    ("supcon", "paper"): contrast.supcon_paper,
    ("triplet", "small"): contrast.triplet_small,
    ("triplet", "paper"): contrast.triplet_paper,
    ("arcface", "small"): classes.arcface_small,
    ("arcface", "paper"): classes.arcface_paper,
    ("paco", "small"): classes.paco_small,
    ("paco", "paper"): classes.paco_paper,
    ("softmax", "small"): classes.softmax_small,
    ("softmax", "paper"): classes.softmax_paper,
    ("balanced_softmax", "small"): classes.balanced_softmax_small,
    ("balanced_softmax", "paper"): classes.balanced_softmax_paper,
}


def recipe_of(method: str, preset: str) -> Recipe:
    """The recipe of a method; a class of the user's own has the small settings, and no paper.

    Raises:
        InputError: ``preset="paper"`` for a class of the user's own.
    """
    if method in METHODS:
        return RECIPES[method, preset]
    if preset != "small":
        raise InputError(f"preset={preset!r}: a method of your own ({method!r}) has none; use preset='small'")
    return lambda facts: small(method, facts)
