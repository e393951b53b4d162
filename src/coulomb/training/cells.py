"""Cells of a column for the encoder of its tower, and the embeddings of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from coulomb.kinds import Kind
from coulomb.kinds.image import Image
from coulomb.kinds.vector import Vector
from coulomb.metrics.matching import first_places
from coulomb.models import Encoder, extract_features
from coulomb.models.text_network import TextNetwork
from coulomb.tables import Columns, Samples
from coulomb.training.plan.columns import ColumnsPlan


def column_kind(plan: ColumnsPlan, column: str, encoder: Encoder) -> Kind:
    """Returns the kind that reads the cells of a column for its encoder."""
    tower = plan.tower_of(column)
    if tower.kind == "image":
        assert tower.canvas is not None
        return Image(tower.canvas, 3, views=plan.views(tower))
    return encoder.kind if isinstance(encoder, TextNetwork) else Vector()


def column_cells(cells: Any, encoder: Encoder) -> Any:
    """Returns cells as the kind of an encoder reads them: texts as tokens."""
    return encoder.tokenize(cells) if isinstance(encoder, TextNetwork) else cells


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
    cells, chosen = table.columns[column], rows[distinct]
    if isinstance(encoder, TextNetwork):  # so that these texts alone are tokenized
        cells, chosen = [cells[row] for row in chosen.tolist()], np.arange(len(chosen))
    kind = column_kind(plan, column, encoder)
    samples = Samples(Columns({column: column_cells(cells, encoder)}), {column: kind}, workers=plan.workers(column))
    features, read = extract_features(
        encoder, samples, chosen, kind.views.plain, device=device, workers=samples.readers, progress=progress
    )
    at = np.full(int(chosen.max(initial=-1)) + 1, -1)
    at[read] = np.arange(len(read))
    found = at[chosen][place]
    padded = torch.cat([features, torch.zeros(1, features.shape[1])])  # −1 is the row of zeros
    return padded[found], found >= 0
