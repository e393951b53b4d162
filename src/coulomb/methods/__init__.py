"""Ways of training, each one readable class: a module whose forward takes the views and returns the loss."""

from coulomb.methods.simclr import SimCLR
from coulomb.methods.supcon import SupCon

METHODS = {"simclr": SimCLR, "supcon": SupCon}

__all__ = ["METHODS", "SimCLR", "SupCon"]
