"""Towers of a run on columns: what each kind of cells needs. A new kind is a file here, and a line in `KINDS`."""

from coulomb.training.plan.towers.image import ImageTowers
from coulomb.training.plan.towers.text import TextTowers
from coulomb.training.plan.towers.tower import TowerKind, TowerPlan
from coulomb.training.plan.towers.vector import VectorTowers

KINDS: dict[str, TowerKind] = {"image": ImageTowers(), "text": TextTowers(), "vector": VectorTowers()}

__all__ = ["KINDS", "TowerKind", "TowerPlan"]
