"""Cells of a column for the encoder of its tower, and the embeddings of rows."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from coulomb.kinds import Kind
from coulomb.kinds.image import Image
from coulomb.kinds.vector import Vector
from coulomb.models import Encoder, extract_features
from coulomb.models.text_network import TextNetwork
from coulomb.tables import Columns, Samples
from coulomb.training.plan.columns import ColumnsPlan

log = logging.getLogger("coulomb")


def column_cells(plan: ColumnsPlan, table: Columns, column: str, encoder: Encoder) -> tuple[Any, Kind]:
    """Returns the cells of a column, as the kind of its encoder reads them, and that kind."""
    tower, cells = plan.tower_of(column), table.columns[column]
    if tower.kind == "image":
        assert tower.canvas is not None
        return cells, Image(tower.canvas, 3, views=plan.views(tower))
    if tower.kind == "text":
        assert isinstance(encoder, TextNetwork)
        tokens = encoder.tokenize(cells)
        for note in tokens.notes:
            log.info("%s: %s", column, note)
        return tokens, encoder.kind
    return cells, Vector()


def encode_rows(
    plan: ColumnsPlan,
    table: Columns,
    column: str,
    encoder: Encoder,
    rows: np.ndarray,
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] | None = None,
) -> tuple[torch.Tensor, np.ndarray]:
    """Returns the features [n, F] of the plain view of a column's cells in these rows, and whether each was read, [n].

    Equal cells are encoded once. Rows that cannot be read are zeros.
    """
    cells, kind = column_cells(plan, table, column, encoder)
    samples = Samples(table.with_cells({column: cells}), {column: kind}, workers=plan.workers(column))
    distinct, place = first_places(table.cell_ids(column)[rows])
    features, read = extract_features(
        encoder, samples, rows[distinct], kind.views.plain, device=device, workers=samples.readers, progress=progress
    )
    at = np.full(len(table), -1)
    at[read] = np.arange(len(read))
    found = at[rows[distinct]][place]
    padded = torch.cat([features, torch.zeros(1, features.shape[1])])  # −1 is the row of zeros
    return padded[found], found >= 0


def first_places(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first place of each distinct id, and the number of each id [n] among them."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    return first, inverse
