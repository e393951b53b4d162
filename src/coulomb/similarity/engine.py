"""What an engine is: a module that reduces a `Problem` and computes its gradients, as a `Plan` says."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from coulomb.similarity.tiles import Problem

Needs = Sequence[bool]  # which of the gradients of queries, keys, scale and bias are needed

NO_SECOND_DERIVATIVE = (
    "the streaming backend and attention have no second derivative and no vmap or jvp (create_graph=True, torch.func) for a "
    "problem that is too large to store: use backend='dense', or `with coulomb.similarity.use_backend('dense'):` around a loss"
)


class Plan(NamedTuple):
    """How a problem is reduced, decided by `coulomb.similarity.plan.decide`.

    Attributes:
        engine: ``"dense"`` (plain operators on S), ``"stored"`` (S as a single tile), ``"tiles"``, ``"attention"``, or
            ``"operator"``, which decides again when a compiled graph runs and values can be read.
        why: the reason for this engine.
        triangular: the exponentials are symmetric, so that the tiles on and above the diagonal suffice.
        fused: a contrast with one number per row computes its gradients in the forward pass (`coulomb.similarity.fused`).
        learning: a backward pass will follow that can use what the forward pass keeps.
        attend: the forward pass also computes the mean key under the softmax, from which the backward pass needs no tiles.
        cached: number of exponentials that the forward pass caches for the backward pass.
    """

    engine: str
    why: str = ""
    triangular: bool = False
    fused: bool = False
    learning: bool = False
    attend: bool = False
    cached: int = 0


class Cache(dict[tuple[int, int], Tensor]):
    """Exponentials of tiles by their first row and column, as long as ``room`` elements suffice."""

    def __init__(self, room: int = 0) -> None:
        super().__init__()
        self.room, self.lock = room, threading.Lock()

    def reserve(self, rows: slice, cols: slice) -> bool:
        """True if there is room for one more tile, which is then to be stored."""
        elements = (rows.stop - rows.start) * (cols.stop - cols.start)
        with self.lock:
            fits = elements <= self.room
            self.room -= elements * fits
        return fits

    def of(self, rows: slice, cols: slice) -> Tensor | None:
        """The exponentials of a tile, if they are cached."""
        return self.get((rows.start, cols.start))


@dataclass(eq=False)
class Reduced:
    """Results of a forward pass.

    Attributes:
        rows_PN: the reduction of each row, per power; −inf for the lse of a row without pairs.
        columns_M: the reduction of each column, if ``both``.
        attended_ND: Σ_j softmax(s_i)_j k_j, if requested.
        cached: exponentials of all of S (`coulomb.similarity.stored`),
        cache: or exponentials of some tiles.
    """

    rows_PN: Tensor
    columns_M: Tensor | None = None
    attended_ND: Tensor | None = None
    cached: Sequence[Tensor] = ()
    cache: Cache = field(default_factory=Cache)


class Gradients(NamedTuple):
    """Results of a backward pass; None where not needed."""

    queries_ND: Tensor | None
    keys_MD: Tensor | None
    scale: Tensor | None
    bias_M: Tensor | None


class Engine(Protocol):
    """`coulomb.similarity.stored`, `coulomb.similarity.streaming` and `coulomb.similarity.attention`. No autograd."""

    def forward(self, problem: Problem, plan: Plan) -> Reduced:
        """Reduces every row (and column)."""

    def backward(
        self, problem: Problem, plan: Plan, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, needs: Needs
    ) -> Gradients:
        """The gradients that are needed. The gradient of keys that are the queries is added to the queries' gradient."""
