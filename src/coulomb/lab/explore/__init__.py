"""The temperature explorer, an interactive page."""

from coulomb.lab.explore.build import build_explorer

__all__ = ["build_explorer"]
