"""Towers of vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from coulomb.ground.randomness import generator, numpy_generator
from coulomb.kinds import Kind
from coulomb.kinds.vector import MarginalViews, Vector
from coulomb.models import Encoder
from coulomb.models.vector_network import NAMES, build_vector_encoder
from coulomb.training.plan.config import Config
from coulomb.training.plan.towers.tower import TowerKind, TowerPlan, training_cosines

MEASURED = 100_000  # vectors whose mean and deviation are taken
SHOWN = 12  # values of a vector of which views are shown


class VectorTowers(TowerKind):
    """Encoders of vectors: a perceptron or the identity."""

    encoder = "mlp"
    temperature = 1.0  # SCARF

    def fits(self, encoder: str) -> bool:
        """Returns True for names of encoders of vectors."""
        return encoder in NAMES

    def build(self, tower: TowerPlan, columns: Sequence[Any], rows: np.ndarray, config: Config, seed: int) -> Encoder:
        """Builds the network, with the mean and the deviation of the first training rows of its first column."""
        vectors = columns[0]
        some = torch.from_numpy(np.asarray(vectors[rows[:MEASURED]], dtype=np.float64))
        mean, std = some.mean(0), some.std(0, unbiased=False)
        std = torch.where(std > 0, std, torch.ones_like(std))
        return build_vector_encoder(
            tower.encoder, dim=vectors.shape[1], mean=mean.tolist(), std=std.tolist(), seed=seed
        )

    def reader(self, tower: TowerPlan, encoder: Encoder, config: Config) -> Kind:
        """Returns the kind of vectors."""
        return Vector()

    def contrasted(self, kind: Kind, encoder: Encoder, cells: Any, rows: np.ndarray, seed: int) -> Kind:
        """Views of a vector have values of other training rows (SCARF)."""
        if len(rows) > MEASURED:
            rows = np.sort(numpy_generator(seed, "marginals").choice(rows, MEASURED, replace=False))
        return Vector(MarginalViews(np.asarray(cells[rows], dtype=np.float32)))

    def shown_views(
        self, kind: Kind, encoder: Encoder, column: str, cells: Any, rows: np.ndarray, seed: int
    ) -> dict[str, Any]:
        """Returns the first values of vectors and of a view of each, and which are replaced.

        ``{"way": "replaced", "count", "of", "names", "samples": [{"values", "view", "replaced", "cosine"}]}``; ``count`` of
        the ``of`` values of a vector are replaced; ``cosine``: of the features of both by the encoder as it is.
        """
        assert isinstance(kind, Vector) and isinstance(kind.views, MarginalViews)
        values = torch.from_numpy(np.asarray(cells[rows], dtype=np.float32))
        replaced, drawn = kind.views.replacement(len(rows), generator(seed, "shown views"))
        view = torch.where(replaced, drawn, values)
        names = column.split("+")
        if len(names) != values.shape[1]:
            names = [f"value {place}" for place in range(1, values.shape[1] + 1)]
        samples = [
            {"values": plain, "view": corrupted, "replaced": mask, "cosine": cosine}
            for plain, corrupted, mask, cosine in zip(
                *(each[:, :SHOWN].tolist() for each in (values, view, replaced)),
                training_cosines(encoder, [values, view], seed),
                strict=True,
            )
        ]
        return {
            "kind": "vector", "way": "replaced", "count": kind.views.count, "of": values.shape[1], "names": names[:SHOWN],
            "samples": samples,
        }  # fmt: skip
