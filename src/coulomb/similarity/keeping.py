"""Exponentials that wait for the backward pass: those of the first tiles, as long as there is room."""

import torch
from torch import Tensor

from coulomb.similarity.problem import Tiles


class Keeping:
    """Takes note of the tiles of a forward pass; ``room`` (`Problem.room_to_keep`) is how many elements it keeps.

    Attributes:
        tiles: the exponentials kept, in the order of the tiles.
    """

    def __init__(self, tiles: Tiles, room: int) -> None:
        self._of, self._room, self._buffer = tiles, room, tiles.buffer
        self.tiles: list[Tensor] = []

    def prepare(self, rows: slice, cols: slice) -> None:
        """Before a tile is computed: a buffer of its own, if it will be kept."""
        self._room -= (size := (rows.stop - rows.start) * (cols.stop - cols.start))
        self._of.buffer = self._of.queries_ND.new_empty(size) if self._room >= 0 else self._buffer

    def add(self, exponential_RC: Tensor) -> None:
        """After: keep it, if there is room."""
        if self._room >= 0:
            self.tiles.append(exponential_RC)


def weighted(exponential_RC: Tensor, weight_R: Tensor, weight_C: Tensor, scratch: Tensor) -> Tensor:
    """E∘(w_i + w_j) in ``scratch`` (flat): E may be asked for again."""
    room = scratch[: exponential_RC.numel()].view_as(exponential_RC)
    return torch.add(weight_R[:, None], weight_C, out=room).mul_(exponential_RC)
