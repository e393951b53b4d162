"""The interface of a kind of column: `coulomb.kinds.image`, `coulomb.kinds.text` and `coulomb.kinds.vector` implement it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible


class UnreadableCell(InputError):
    """A cell that cannot be read, with the ``item_id`` of its row and the ``reason``; its row is skipped and counted."""

    def __init__(self, item_id: str, reason: str) -> None:
        super().__init__(f"{visible(item_id)}: {visible(reason)}")
        self.item_id = item_id
        self.reason = visible(reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.item_id, self.reason)  # worker processes pickle it


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that was read.

    Attributes:
        value: what the kind stacks and previews.
        rounded: True if the value has lost something: bits of an image's pixels, or the end of a long text.

    >>> Cell("a cat").rounded
    False
    """

    value: Any
    rounded: bool = False


@dataclass(frozen=True)
class Share:
    """The part of a larger batch that a process has, for random draws that do not depend on the number of processes.

    Attributes:
        rows: positions of its samples in the whole batch, int64 [b], ascending.
        total: samples in the whole batch.

    >>> Share(torch.tensor([0, 1]), total=4).total
    4
    """

    rows: Tensor
    total: int


class ViewsOf(Protocol):
    """Views of the stacks of a kind.

    Views with a true attribute ``by_row`` take one more argument, ``share``, a `Share`: they draw the
    parameters of a sample by its place in the batch of all processes, so that the draws do not depend on their number.
    """

    def __call__(self, stack: Any, generator: torch.Generator, /, n: int = 2) -> list[Any]:
        """Returns ``n`` random views of all cells of a stack; ``generator`` is the only source of randomness."""
        ...

    def plain(self, stack: Any, /) -> Any:
        """Returns the view that is used for evaluation, without randomness."""
        ...


class Kind(Protocol):
    """What the cells of a column are."""

    @property
    def views(self) -> Any:
        """The views of a stack, `ViewsOf`; None where they are not needed."""
        ...

    @property
    def nbytes(self) -> int | None:
        """Bytes of a stacked cell; None if cells differ in size, or need no cache."""
        ...

    def read(self, cells: Any, row: int) -> Cell:
        """Returns one of the ``cells`` of a column; raises `UnreadableCell`."""
        ...

    def stack(self, values: Sequence[Any]) -> Any:
        """Returns the values of cells as one `Stack`; of no cells, an empty one."""
        ...

    def blank(self, count: int) -> Any:
        """Returns a stack with room for ``count`` cells; called only if ``nbytes`` is known."""
        ...

    def preview(self, value: Any) -> str:
        """Returns the value of a cell as HTML, for a page."""
        ...
