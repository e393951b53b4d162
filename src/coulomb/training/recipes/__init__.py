"""Recipes: functions that return the complete configuration of a run, for a method and a preset."""

from collections.abc import Callable

from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.training.config import Config
from coulomb.training.prepare import Facts
from coulomb.training.recipes import classes, contrast
from coulomb.training.recipes.settings import small

Recipe = Callable[[Facts], Config]

RECIPES: dict[tuple[str, str], Recipe] = {
    ("simclr", "small"): contrast.simclr_small,
    ("simclr", "paper"): contrast.simclr_paper,
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
