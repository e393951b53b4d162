"""`Similarity`: the matrix S = scale·Q·Kᵀ + bias as an object that is folded by rows and never stored."""

from functools import cached_property

import torch
from torch import Tensor

from coulomb.similarity import dense, streaming
from coulomb.similarity.pairs import NAMES, UNKNOWN, UNKNOWN_KEY, Pairs
from coulomb.similarity.sums import summed

# "auto" stores S when it has at most this many elements (1 MiB in fp32; autograd keeps about three copies): faster there.
DENSE_ELEMENTS = 2**18

Over = str | Tensor


class Similarity:
    """S = scale · Q·Kᵀ + bias, folded row by row with gradients for Q, K, scale and bias.

    Args:
        queries_ND: [N, D], floating. Half precision is computed in fp32 (products, sums, gradients); fp64 in fp64.
        keys_MD: [M, D]; None means that the keys are the queries (S = Sᵀ, half the work).
        scale: 1/τ, a number or a 0-dim tensor, which then gets a gradient.
        column_bias: [M], added to every row (for example the log of a class frequency).
        query_ids, key_ids: integers [N], [M] for ``"negatives"`` and ``"positives"``; −1 is unknown and equals nobody.
            With ``keys_MD=None`` give ``query_ids`` alone.
        queries_lead_keys: the first N keys are the queries themselves (anchors that are part of the keys), so "self" is
            the pair (i, i). Always so when ``keys_MD`` is None.
        backend: ``"dense"`` stores S (differentiable any number of times), ``"streaming"`` never does, ``"auto"`` chooses.
        tile: rows and columns of a tile when streaming; None for the default.

    ``over`` says which pairs a fold counts: ``"all"``, ``"others"`` (not self), ``"negatives"`` (not self, different or
    unknown id), ``"positives"`` (not self, same id), or a mask [N, M], boolean or non-negative weights.

    Raises:
        ValueError, TypeError: naming the argument that has the wrong shape, dtype, device or value.

    >>> S = Similarity(torch.eye(3), scale=2.0)
    >>> S.lse("others")  # log(e⁰ + e⁰)
    tensor([0.6931, 0.6931, 0.6931])
    >>> S.max("all")
    tensor([2., 2., 2.])
    """

    def __init__(
        self,
        queries_ND: Tensor,
        keys_MD: Tensor | None = None,
        *,
        scale: float | Tensor = 1.0,
        column_bias: Tensor | None = None,
        query_ids: Tensor | None = None,
        key_ids: Tensor | None = None,
        queries_lead_keys: bool = False,
        backend: str = "auto",
        tile: int | None = None,
    ) -> None:
        _require_matrix("queries_ND", queries_ND)
        if keys_MD is None:
            if key_ids is not None:
                raise ValueError("key_ids was given without keys_MD: the keys are the queries, give query_ids alone")
            key_ids, queries_lead_keys = query_ids, True
        else:
            _require_matrix("keys_MD", keys_MD)
            if keys_MD.shape[1] != queries_ND.shape[1]:
                raise ValueError(f"keys_MD has {keys_MD.shape[1]} dimensions, queries_ND has {queries_ND.shape[1]}")
            _require_device("keys_MD", keys_MD, queries_ND)
        self.self_similar = keys_MD is None
        keys = queries_ND if keys_MD is None else keys_MD
        self.shape = (len(queries_ND), len(keys))
        if queries_lead_keys and self.shape[0] > self.shape[1]:
            raise ValueError(f"queries_lead_keys needs at least as many keys as queries, got {self.shape}")
        if backend not in ("auto", "dense", "streaming"):
            raise ValueError(f"backend must be 'auto', 'dense' or 'streaming', got {backend!r}")
        if tile is not None and tile < 1:
            raise ValueError(f"tile must be at least 1, got {tile}")

        dtype = torch.promote_types(torch.promote_types(queries_ND.dtype, keys.dtype), torch.float32)
        self.queries_ND = queries_ND.to(dtype)
        self.keys_MD = self.queries_ND if self.self_similar else keys.to(dtype)
        self.scale = torch.as_tensor(scale, dtype=dtype, device=queries_ND.device)
        if self.scale.ndim != 0:
            raise ValueError(f"scale must be a number or a 0-dim tensor, got shape {tuple(self.scale.shape)}")
        if column_bias is not None and column_bias.shape != self.shape[1:]:
            raise ValueError(f"column_bias must have shape [{self.shape[1]}], got {tuple(column_bias.shape)}")
        self.column_bias = None if column_bias is None else column_bias.to(dtype)
        self.query_ids = _checked_ids("query_ids", query_ids, self.shape[0], queries_ND)
        self.key_ids = _checked_ids("key_ids", key_ids, self.shape[1], queries_ND)
        self.queries_lead_keys = queries_lead_keys
        self.backend = backend
        self.tile = tile or streaming.TILE

    @property
    def T(self) -> "Similarity":
        """The transpose: keys ask, queries answer."""
        if self.column_bias is not None:
            raise ValueError("column_bias has no meaning for the transpose, where it would be a bias per row")
        if self.self_similar:
            return self
        if self.queries_lead_keys:
            raise ValueError("the transpose is not defined with queries_lead_keys")
        return Similarity(
            self.keys_MD,
            self.queries_ND,
            scale=self.scale,
            query_ids=self.key_ids,
            key_ids=self.query_ids,
            backend=self.backend,
            tile=self.tile,
        )

    def lse(self, over: Over = "all") -> Tensor:
        """log Σ_j w_ij exp s_ij, [N]; −inf with zero gradient where no pair counts."""
        pairs = self.pairs(over)
        if self._is_dense:
            return dense.lse(self._matrix, pairs)
        keys = None if self.self_similar else self.keys_MD
        return streaming.lse(self.queries_ND, keys, self.scale, self.column_bias, pairs, self.tile)

    def sum(self, over: Over = "all") -> Tensor:
        """Σ_j w_ij s_ij, [N]; 0 where no pair counts. O((N+M)·D) for the named sets: no matrix is formed."""
        if self.backend == "dense":
            return dense.sum(self._matrix, self.pairs(over))
        return summed(self.queries_ND, self.keys_MD, self.scale, self.column_bias, self.pairs(over))

    def count(self, over: Over = "all") -> Tensor:
        """Pairs that count in each row, [N] integers; for a weighting mask the sum of weights."""
        return self.pairs(over).count()

    def mean(self, over: Over = "all") -> Tensor:
        """sum / count, [N]; 0 where no pair counts (see `count`)."""
        count = self.count(over)
        return self.sum(over) / count.masked_fill(count == 0, 1)

    def max(self, over: Over = "all") -> Tensor:
        """The largest s_ij, [N]; −inf with zero gradient where no pair counts. Of equal ones, one gets the gradient."""
        return self.topk(1, over)[0].squeeze(1)

    def topk(self, k: int, over: Over = "all") -> tuple[Tensor, Tensor]:
        """The k largest s_ij, descending: values [N, k] with gradient and columns [N, k]; −inf and −1 where fewer count."""
        if not 1 <= k <= self.shape[1]:
            raise ValueError(f"k must be between 1 and the number of keys {self.shape[1]}, got {k}")
        pairs = self.pairs(over)
        if self._is_dense:
            return dense.topk(self._matrix, pairs, k)
        columns = streaming.topk(self.queries_ND, self.keys_MD, self.scale, self.column_bias, pairs, k, self.tile)
        values = self.positives(columns.clamp_min(0))
        return values.masked_fill(columns < 0, -torch.inf), columns

    def positives(self, columns: Tensor | None = None) -> Tensor:
        """s_ij at the given columns, [N] or [N, P] as ``columns`` is; None means column i for row i.

        Computed directly from the vectors, O(N·P·D), and so free of the rounding of a matrix product's tiles.
        """
        if columns is None:
            columns = torch.arange(self.shape[0], device=self.queries_ND.device)
            if self.shape[0] > self.shape[1]:
                raise ValueError(f"positives() without columns needs a key for every query, got shape {self.shape}")
        queries = self.queries_ND if columns.ndim == 1 else self.queries_ND[:, None]
        # index_select: its derivative is several times faster than that of keys[columns].
        keys = self.keys_MD.index_select(0, columns.flatten()).view(*columns.shape, -1)
        scores = self.scale * (queries * keys).sum(-1)
        return scores if self.column_bias is None else scores + self.column_bias[columns]

    def pairs(self, over: Over) -> Pairs:
        """The set of pairs that ``over`` names."""
        device, lead = self.queries_ND.device, self.queries_lead_keys
        if isinstance(over, Tensor):
            return Pairs(self.shape, device, mask=_checked_mask(over, self.shape, self.queries_ND))
        if over not in NAMES:
            raise ValueError(f"over must be one of {', '.join(NAMES)} or a mask [N, M], got {over!r}")
        if over == "all":
            return Pairs(self.shape, device)
        if over == "others":
            if not lead:
                raise ValueError(
                    "over='others' needs keys that are the queries (keys_MD=None or queries_lead_keys=True)"
                )
            return Pairs(self.shape, device, drop_self=True)
        if self.query_ids is None or self.key_ids is None:
            raise ValueError(f"over={over!r} needs query_ids (and key_ids when keys_MD is given)")
        key_ids = self.key_ids.masked_fill(self.key_ids == UNKNOWN, UNKNOWN_KEY)
        return Pairs(self.shape, device, lead, over == "positives", self.query_ids, key_ids)

    @property
    def _is_dense(self) -> bool:
        small = self.shape[0] * self.shape[1] <= DENSE_ELEMENTS
        return self.backend == "dense" or (self.backend == "auto" and small)

    @cached_property
    def _matrix(self) -> Tensor:
        with streaming.full_precision(self.queries_ND):
            return dense.matrix(self.queries_ND, self.keys_MD, self.scale, self.column_bias)


def _require_matrix(name: str, value: Tensor) -> None:
    if value.ndim != 2:
        raise ValueError(f"{name} must be a matrix (2 dimensions), got shape {tuple(value.shape)}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating, got {value.dtype}")


def _require_device(name: str, value: Tensor, like: Tensor) -> None:
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, queries_ND on {like.device}")


def _checked_ids(name: str, ids: Tensor | None, length: int, like: Tensor) -> Tensor | None:
    if ids is None:
        return None
    if ids.shape != (length,):
        raise ValueError(f"{name} must have shape [{length}], got {tuple(ids.shape)}")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {ids.dtype}")
    _require_device(name, ids, like)
    if length and int(ids.min()) < UNKNOWN:
        raise ValueError(f"{name} must be ids from 0, or −1 for unknown; got {int(ids.min())}")
    return ids.long()


def _checked_mask(mask: Tensor, shape: tuple[int, int], like: Tensor) -> Tensor:
    if mask.shape != shape:
        raise ValueError(f"the mask must have shape {list(shape)}, got {tuple(mask.shape)}")
    _require_device("the mask", mask, like)
    if mask.dtype == torch.bool:
        return mask
    if mask.numel() and not (mask.min() >= 0 and mask.max() < torch.inf):
        raise ValueError("the mask's weights must be finite and not negative")
    return mask.detach()
