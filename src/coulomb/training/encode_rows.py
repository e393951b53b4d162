"""The features of some rows of a column, by the encoder of its tower."""

from collections.abc import Callable

import numpy as np
import torch

from coulomb.metrics.matching import first_places
from coulomb.models import Encoder, extract_features
from coulomb.tables import Columns, Samples
from coulomb.training.plan.columns import ColumnsPlan


def encode_rows(
    plan: ColumnsPlan,
    column: str,
    encoder: Encoder,
    rows: np.ndarray,
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] | None = None,
    *,
    held_out: bool,
) -> tuple[torch.Tensor, np.ndarray]:
    """Returns the features [n, F] of the plain view of a column's cells in these rows, and whether each was read, [n].

    Equal cells are encoded once. Rows that cannot be read are zeros. ``held_out``: rows of the table of held-out data.
    """
    table, ids = (plan.held_out, plan.test_ids) if held_out else (plan.table, plan.cell_ids)
    distinct, place = first_places(ids[rows, plan.place(column)])
    of_kind, tower = plan.kind_of(column), plan.tower_of(column)
    cells, chosen = of_kind.cells_of(rows[distinct], table.columns[column], encoder)
    kind = of_kind.reader(tower, encoder, plan.config)
    samples = Samples(Columns({column: cells}), {column: kind}, workers=plan.workers(column))
    features, read = extract_features(
        encoder, samples, chosen, kind.views.plain, device=device, workers=samples.readers, progress=progress
    )
    at = np.full(int(chosen.max(initial=-1)) + 1, -1)
    at[read] = np.arange(len(read))
    found = at[chosen][place]
    padded = torch.cat([features, torch.zeros(1, features.shape[1])])  # −1 is the row of zeros
    return padded[found], found >= 0
