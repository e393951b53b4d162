"""The first thing to look at when a run may have collapsed."""

from torch import Tensor
from torch.nn import functional

from coulomb.diagnostics.vectors import matrix


def feature_std(x: Tensor) -> float:
    """√D times the mean over dimensions of the standard deviation of unit vectors ``x`` [n,D]; normalised here.

    About 1 when they point everywhere alike, 0 when they are all the same (Chen and He, 2021). Raises `InputError` for
    other shapes or values that are not finite.
    """
    unit = functional.normalize(matrix(x, "x"), dim=1)
    return float(unit.double().std(dim=0, correction=0).mean()) * x.shape[1] ** 0.5
