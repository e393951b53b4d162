"""`Guide`: a second similarity, computed in step with the first, that decides which pairs count, or how much."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from coulomb.similarity.products import matmul


@dataclass(frozen=True, eq=False)
class Guide:
    """Embeddings by another model, whose similarities decide which pairs are negatives (Solatorio, 2024).

    The pair (i, j) stays a negative if g_ij = a_i·b_j is below the limit of row i. In GIST this is the guide's similarity of
    the query and its positive, less a margin: a key that the guide finds more similar to the query than the positive is
    probably one more positive. A pair at the limit is left out, up to rounding. There is no gradient, and G is computed tile
    by tile, again in the backward pass: one more product per tile, and no more memory.

    Args:
        queries_NE: a_i, [N, E].
        keys_ME: b_j, [M, E]; None if the keys are the queries.
        limit_N: the limit of each row, [N].
        weighs: weight the pair (i, j) by exp(g_ij − limit_i), at most 1, instead: with the log-sum-exp of each row as its
            limit, by the softmax of G (see `Similarity.expected`).

    Reference: Solatorio, GISTEmbed: Guided In-sample Selection of Training Negatives for Text Embedding Fine-tuning, 2024,
    arXiv:2402.16829.

    >>> import torch
    >>> from coulomb.similarity import Similarity
    >>> x = torch.eye(2)
    >>> guide = Guide(torch.eye(2), torch.tensor([[0.1, 0.6], [0.1, 0.2]]), limit_N=torch.tensor([0.5, 0.5]))
    >>> Similarity(x, x, guide=guide).count("negatives")  # g = [[0.1, 0.1], [0.6, 0.2]]
    tensor([2, 1])

    Shape:
        queries_NE: [N, E].
        keys_ME: [M, E].
        limit_N: [N].
    """

    queries_NE: Tensor
    keys_ME: Tensor | None
    limit_N: Tensor
    weighs: bool = False

    @property
    def keys(self) -> Tensor:
        """The keys [M, E]."""
        return self.queries_NE if self.keys_ME is None else self.keys_ME

    def tile(self, rows: slice, cols: slice) -> Tensor:
        """g on one tile."""
        return matmul(self.queries_NE[rows], self.keys[cols].T)

    def limit(self, rows: slice) -> Tensor:
        """The limits of some rows, as a column."""
        return self.limit_N[rows, None]

    def sides(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """1 where g is below the limit of its row, and where it is below the limit of its column, on one tile; else 0.

        The limits are those of pairs: of row i and of column i. Columns without a row have no pair that counts.
        """
        g = self.tile(rows, cols)
        here = torch.lt(g, self.limit(rows), out=torch.empty_like(g))
        return here, torch.lt(g, self.column_limits[cols], out=g)

    @cached_property
    def column_limits(self) -> Tensor:
        """The limits of the columns if they are those of pairs, [M]."""
        return pad(self.limit_N, (0, len(self.keys) - len(self.limit_N)), value=-torch.inf)

    def weights(self, rows: slice, cols: slice) -> Tensor:
        """exp(g − limit) on one tile."""
        return self.tile(rows, cols).sub_(self.limit(rows)).clamp_max_(0).exp_()
