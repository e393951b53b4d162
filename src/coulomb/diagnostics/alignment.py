"""Are two views of an image close?"""

from torch import Tensor
from torch.nn import functional

from coulomb.diagnostics.vectors import matrix


def alignment(x: Tensor, y: Tensor, alpha: float = 2.0) -> float:
    """mean_i ‖x_i − y_i‖^α of unit vectors; 0 is perfect, 2 is chance at α = 2 (Wang and Isola, 2020).

    ``x`` and ``y`` [n,D] are the embeddings of two views of the same n images; normalised here. Raises `InputError` for
    other shapes or values that are not finite.
    """
    first, second = matrix(x, "x"), matrix(y, "y", like=x)
    distances = (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).norm(dim=1)
    return float(distances.double().pow(alpha).mean())
