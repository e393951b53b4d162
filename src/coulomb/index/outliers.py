"""Images that do not belong: far from all others, or much less dense than their surroundings."""

from dataclasses import dataclass

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.metrics.nearest import neighbors
from coulomb.metrics.rows import check_rows

NEIGHBORS = 10
LEAST_LOCAL = 1.5  # a usual limit of the local outlier factor; images of a group vary around 1


@dataclass(frozen=True)
class Outliers:
    """Scores of every image; see `find_outliers`.

    Attributes:
        similarity: mean cosine with the k nearest other images, float64 [N].
        local: mean distance to the k nearest divided by the same mean for these neighbors, float64 [N]; 1 is usual.
        score: the larger of the two deviations from the median, in robust standard deviations, float64 [N].
        by_density: True where it is the deviation of ``local``, bool [N].
        order: positions by descending score, int64 [N].
        neighbor: position of the most similar other image, int64 [N].
    """

    similarity: np.ndarray
    local: np.ndarray
    score: np.ndarray
    by_density: np.ndarray
    order: np.ndarray
    neighbor: np.ndarray
    k: int

    def reason(self, row: int, what: str = "image") -> str:
        """Returns one sentence on why an image, or ``what`` else, is where it is in the order."""
        nearest = f"nearest {what}" if self.k == 1 else f"{self.k} nearest {what}s"
        if self.by_density[row]:
            return f"{self.local[row]:.1f} times as far from its {nearest} as these are from theirs"
        usual = float(np.median(self.similarity))
        return f"mean similarity {self.similarity[row]:.2f} to its {nearest}; the median is {usual:.2f}"


def find_outliers(x: np.ndarray, k: int | None = None) -> Outliers:
    """Ranks images by how little they belong to the others.

        d_i = mean over the k nearest of √(2 − 2·cos)          s_i = mean cosine with them
        local_i = d_i / mean over these k neighbors of d_j

    The mean distance d finds images far from all others. ``local``, a simplified local outlier factor (Breunig et al.,
    2000), finds those far from a dense group; it counts from 1.5. Each is expressed as 1.349·(value − median)/(interquartile
    range), which is also wide enough for data with dense and loose parts; the larger one is the score. With k = 10 an
    image that has fewer than ten copies or relatives still counts as an outlier. Neighbors are exact: O(N²·D) time,
    memory linear in N.

    Args:
        x: features [N,D], N ≥ 3; a memory-mapped array is read in blocks.
        k: number of neighbors; default 10, or N − 1 if that is less.

    Raises:
        InputError: fewer than 3 rows, ``k`` out of range, NaN or infinite values.
    """
    check_rows(x)
    if len(x) < 3:
        raise InputError(f"outliers of {len(x)} images: at least 3 are needed to compare.")
    k = min(NEIGHBORS, len(x) - 1) if k is None else k
    cosines, columns = neighbors(x, k)
    values = cosines.astype(np.float64).clip(-1, 1)
    far = np.sqrt(2 - 2 * values).mean(1)
    around = far[columns].mean(1)
    # Among copies only, 0/0: nothing stands out there. 1e-3 is the distance that rounding to fp16 causes.
    local = (far + 1e-3) / (around + 1e-3)
    by_distance, by_density = _deviation(far), np.where(local >= LEAST_LOCAL, _deviation(local), 0.0)
    score = np.maximum(by_distance, by_density)
    return Outliers(
        similarity=values.mean(1), local=local, score=score, by_density=by_density > by_distance,
        order=np.argsort(-score, kind="stable"), neighbor=columns[:, 0], k=k,
    )  # fmt: skip


def _deviation(values: np.ndarray) -> np.ndarray:
    """1.349·(value − median)/(interquartile range): standard deviations, if most values are normally distributed."""
    lower, median, upper = np.quantile(values, [0.25, 0.5, 0.75])
    return 1.349 * (values - median) / max(upper - lower, 1e-3)
