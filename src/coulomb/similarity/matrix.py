"""`Similarity`: the matrix S = scale·Q·Kᵀ + bias as an object whose rows are reduced and which is never stored."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.checked import abstract, eager
from coulomb.similarity import autograd, cross_entropy, dense, fused, plan, policy, products, sharded
from coulomb.similarity.arguments import checked_guide, checked_ids, checked_mask, require_device, require_matrix
from coulomb.similarity.guide import Guide
from coulomb.similarity.order import RowStatistics
from coulomb.similarity.pairs import NAMES, Pairs
from coulomb.similarity.tiles import Problem, below

Over = str | Tensor


class Similarity:
    """S = scale · Q·Kᵀ + bias, reduced row by row, with gradients of Q, K, scale and bias.

    ``over`` selects the pairs of a reduction: ``"all"``, ``"others"`` (not self), ``"negatives"`` (not self, different or
    unknown id, below the limit of a guide), ``"positives"`` (not self, same id), or a mask [N, M], boolean or non-negative
    weights.

    Args:
        queries_ND: [N, D], floating. Half precision is computed in fp32 (products, sums, gradients), fp64 in fp64.
        keys_MD: [M, D]; None if the keys are the queries (S = Sᵀ, half the work).
        scale: 1/τ, a number or a 0-dim tensor, which then gets a gradient.
        column_bias: [M], added to every row (for example the log of a class frequency).
        query_ids, key_ids: integers [N], [M] for ``"negatives"`` and ``"positives"``; −1 is unknown and equals no other id.
            With C ids per row, [N, C] and [M, C], a pair has the same id if any of its C ids are equal.
            With ``keys_MD=None`` give ``query_ids`` alone.
        instances: n, instead of ids: row i and key j show the same one of n instances if i ≡ j (mod n), as in
            ``cat([view0, view1])``. Costs nothing, whereas ids are compared.
        guide: a `Guide`, a second similarity that leaves pairs out of ``"negatives"``, in addition to ids or instances or
            instead of them. With ``keys_MD=None`` give ``keys_ME=None``.
        queries_lead_keys: the first N keys are the queries, so that "self" is the pair (i, i). Implied by ``keys_MD=None``.
        unit: all rows have at most unit length, so that their norms need not be computed.
        backend: ``"dense"`` is plain PyTorch on the stored S (differentiable any number of times), ``"streaming"`` never
            stores S, nor does ``"attention"`` on a GPU, ``"auto"`` stores it up to 2²⁰ elements and streams larger ones.
            See `use_backend`.
        tile: rows and columns of a tile when streaming; None for the default.
        half: the half precision dtype of the given rows, if any: the products of tiles then have operands of this dtype
            where that is faster. Sums, exponentials and gradients stay in fp32.
        group: a `torch.distributed` group of processes that each have queries and a share of the keys.
            Every reduction is over the keys of all; gradients that other processes give to a key are summed, so that
            averaging parameter gradients over processes, as DistributedDataParallel does, gives the gradient of the mean
            over processes. Ids and guides are compared between processes; ``instances``, "self" and `positives` refer to the
            share of this process. `topk` numbers columns in the order of ranks. All processes must call the same reductions
            in the same order, forward and backward. No masks, no dense backend, no second derivatives.

    Raises:
        ValueError, TypeError: naming the argument with the wrong shape, dtype, device or value.

    >>> S = Similarity(torch.eye(3), scale=2.0)
    >>> S.lse("others")  # log(e⁰ + e⁰)
    tensor([0.6931, 0.6931, 0.6931])
    >>> S.max("all")
    tensor([2., 2., 2.])

    Shape:
        queries_ND: [N, D].
        keys_MD: [M, D].
        column_bias: [M].
        query_ids: [N] or [N, C].
        key_ids: [M] or [M, C].
        output: [N] of a reduction.
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
        instances: int | None = None,
        guide: Guide | None = None,
        queries_lead_keys: bool = False,
        unit: bool = False,
        backend: str = "auto",
        tile: int | None = None,
        half: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        require_matrix("queries_ND", queries_ND)
        if keys_MD is None:
            if key_ids is not None:
                raise ValueError("key_ids was given without keys_MD: the keys are the queries, give query_ids alone")
            key_ids, queries_lead_keys = query_ids, True
        else:
            require_matrix("keys_MD", keys_MD)
            if keys_MD.shape[1] != queries_ND.shape[1]:
                raise ValueError(f"keys_MD has {keys_MD.shape[1]} dimensions, queries_ND has {queries_ND.shape[1]}")
            require_device("keys_MD", keys_MD, queries_ND)
        self.self_similar = keys_MD is None
        keys = queries_ND if keys_MD is None else keys_MD
        self.shape = (len(queries_ND), len(keys))
        if queries_lead_keys and self.shape[0] > self.shape[1]:
            raise ValueError(f"queries_lead_keys needs at least as many keys as queries, got {self.shape}")
        if instances is not None and (instances < 1 or query_ids is not None or key_ids is not None):
            raise ValueError(f"instances must be at least 1 and come without ids, got {instances}")
        if tile is not None and tile < 1:
            raise ValueError(f"tile must be at least 1, got {tile}")

        dtype = torch.promote_types(torch.promote_types(queries_ND.dtype, keys.dtype), torch.float32)
        self.queries_ND = queries_ND.to(dtype)
        self.keys_MD = self.queries_ND if self.self_similar else keys.to(dtype)
        if isinstance(scale, Tensor):
            if scale.ndim != 0:
                raise ValueError(f"scale must be a number or a 0-dim tensor, got shape {tuple(scale.shape)}")
            scale = scale.to(queries_ND.device, dtype)
        self.scale = scale
        if column_bias is not None and column_bias.shape != self.shape[1:]:
            raise ValueError(f"column_bias must have shape [{self.shape[1]}], got {tuple(column_bias.shape)}")
        self.column_bias = None if column_bias is None else column_bias.to(dtype)
        self.query_ids = checked_ids("query_ids", query_ids, self.shape[0], queries_ND)
        alike = key_ids is query_ids and self.self_similar
        self.key_ids = self.query_ids if alike else checked_ids("key_ids", key_ids, self.shape[1], queries_ND)
        if (
            self.query_ids is not None
            and self.key_ids is not None
            and self.query_ids.shape[1:] != self.key_ids.shape[1:]
        ):
            shapes = tuple(self.query_ids.shape), tuple(self.key_ids.shape)
            raise ValueError(f"query_ids and key_ids must have equally many ids per row, got shapes {shapes}")
        self.guide = checked_guide(guide, self.shape, queries_ND, dtype)
        self.queries_lead_keys = queries_lead_keys
        self.instances, self.unit = instances, unit
        self.backend = policy.checked_backend(backend)
        self.tile = tile or policy.current().tile or policy.tile_for(queries_ND.shape[1], queries_ND.device)
        self.half = half if half is not None and products.gains(half, queries_ND.device) else None
        self.group = None if group is None or dist.get_world_size(group) == 1 else group
        self._sets: dict[str, Pairs] = {}

    @property
    def T(self) -> "Similarity":
        """The transpose, with queries and keys swapped."""
        if self.column_bias is not None:
            raise ValueError("column_bias has no meaning for the transpose, where it would be a bias per row")
        if self.guide is not None:
            raise ValueError("guide has no meaning for the transpose, where its limits would be limits per column")
        if self.self_similar:
            return self
        if self.queries_lead_keys:
            raise ValueError("the transpose is not defined with queries_lead_keys")
        return Similarity(
            self.keys_MD, self.queries_ND, query_ids=self.key_ids, key_ids=self.query_ids, **self._options
        )

    @property
    def back(self) -> "Similarity":
        """The first N keys as queries and the queries as keys: S of the other direction, if row i and key i are a pair.

        The limits of a guide, which are then the limits of pairs, hold in both directions.
        """
        (n, m), guide = self.shape, self.guide
        if self.self_similar or self.queries_lead_keys or self.column_bias is not None or n > m:
            raise ValueError(
                "the other direction needs keys_MD with at least as many rows as queries, and no column_bias"
            )
        return Similarity(
            self.keys_MD[:n],
            self.queries_ND,
            query_ids=None if self.key_ids is None else self.key_ids[:n],
            key_ids=self.query_ids,
            guide=None if guide is None else replace(guide, queries_NE=guide.keys[:n], keys_ME=guide.queries_NE),
            **self._options,
        )

    @property
    def _options(self) -> dict[str, Any]:
        names = "scale", "instances", "unit", "half", "backend", "tile", "group"
        return {name: getattr(self, name) for name in names}

    def lse(self, over: Over = "all", *, top_k: int | None = None) -> Tensor:
        """log Σ_j w_ij exp s_ij, [N]; −inf with zero gradient where no pair counts.

        ``top_k``: only the k largest of a row count, and ties with the k-th largest, up to rounding (see `kth_largest`).
        """
        return self._reduce(self._problem(over, top_k=top_k))[0].squeeze(0)

    def lses(self, powers: Sequence[float], over: Over = "all") -> Tensor:
        """log Σ_j w_ij exp(p·s_ij) for one or two positive powers p, ascending: [P, N], from one pass over the tiles."""
        if not 1 <= len(powers) <= 2 or min(powers) <= 0 or powers[0] > powers[-1]:
            raise ValueError(f"powers must be one or two positive numbers, ascending; got {list(powers)}")
        return self._reduce(self._problem(over, powers=tuple(map(float, powers))))[0]

    def lse_both(self, over: Over = "all") -> tuple[Tensor, Tensor]:
        """(lse of each row [N], lse of each column [M]), which is `lse` of S and of Sᵀ, from one pass over the tiles."""
        if self.self_similar or self.queries_lead_keys or self.column_bias is not None:
            raise ValueError("lse_both needs keys_MD (not the queries as keys) and no column_bias")
        if self._guided(over):
            raise ValueError("lse_both has no guide, whose limits are those of rows: use lse of this and of its `back`")
        rows, columns = self._reduce(self._problem(over, both=True))
        assert columns is not None
        return rows[0], columns

    def contrast(
        self, positive: Tensor, over: Over = "negatives", *, both: bool = False, counted: Tensor | None = None
    ) -> Tensor:
        """log(1 + Σ_j exp(s_ij − s_i⁺)) = softplus(lse_i − s_i⁺), [N]: the positive of each row against other pairs.

        Small losses keep their digits, where lse − s⁺ would cancel. In one direction with learning keys this is fused
        (gradients computed in the forward pass, 6u instead of 8u), see `coulomb.similarity.fused`.

        Args:
            positive: s⁺, [N]; may carry a gradient.
            over: the pairs of the sum.
            both: the mean of this over rows and the first N columns (as in `lse_both`); positive i is then at (i, i), and the
                limits of a guide hold in both directions (see `back`).
            counted: [N], boolean: rows whose loss will be used; the others may be 0.
        """
        if both:
            if not self._guided(over):
                rows, columns = self.lse_both(over)
            elif (found := self._lse_both_guided(over)) is not None:
                rows, columns = found
            else:  # rows and columns do not count the same pairs
                return (self.contrast(positive, over) + self.back.contrast(positive, over)) / 2
            columns = columns[: len(rows)]
            return (softplus(rows - positive, threshold=50) + softplus(columns - positive, threshold=50)) / 2
        problem = self._problem(over)
        if self.group is None and eager() and not abstract(positive):
            decided = plan.decide(problem, plan.learning(problem))
            if decided.fused:
                return fused.contrast(problem, self.scale, positive, counted)
            lse = autograd.reduce(problem, decided)[0]
        else:
            lse = self._reduce(problem)[0]
        return softplus(lse.squeeze(0) - positive, threshold=50)

    def _lse_both_guided(self, over: Over) -> tuple[Tensor, Tensor] | None:
        """`lse_both`, with the limits of the guide in both directions; None if it cannot be reduced from the same tiles."""
        if self.group is not None or not eager() or abstract(self.queries_ND):
            return None
        problem = self._problem(over, both=True, guide=self.guide)
        if not plan.shares_tiles(problem):
            return None
        problem = replace(problem, pairs=replace(problem.pairs, guide=None))
        rows, columns = autograd.reduce(problem, plan.decide(problem, plan.learning(problem)))
        assert columns is not None
        return rows[0], columns

    def softplus(self, over: Over = "all", *, sign: int = 1, bias: float | Tensor = 0.0) -> Tensor:
        """Σ_j w_ij log(1 + exp(sign·(s_ij + bias))), [N]; 0 where no pair counts. ``bias`` may be a 0-dim tensor."""
        bias_M = (bias if isinstance(bias, Tensor) else self.queries_ND.new_tensor(bias)).expand(self.shape[1])
        bias_M = sign * (bias_M if self.column_bias is None else bias_M + self.column_bias)
        bias_M = bias_M.to(self.queries_ND.dtype)
        problem = self._problem(over, scale=sign * self.scale, bias_M=bias_M, reduction="softplus")
        return self._reduce(problem)[0].squeeze(0)

    def sum(self, over: Over = "all", *, top_k: int | None = None) -> Tensor:
        """Σ_j w_ij s_ij, [N]; 0 where no pair counts. O((N+M)·D) for the named sets: no matrix is formed.

        With ``top_k`` (as in `lse`) the tiles are needed.
        """
        problem = self._problem(over, top_k=top_k, reduction="sum")
        if top_k is None and problem.pairs.by_class and self.group is None:
            return problem.sums()
        return self._reduce(problem)[0].squeeze(0)

    def expected(self, teacher: "Similarity", over: str = "all", *, lse: Tensor | None = None) -> Tensor:
        """Σ_j p_ij s_ij, [N], with the softmax p_i of the rows of another `Similarity`; 0 where no pair counts.

        The softmax is computed tile by tile and has no gradient. Give ``over`` by name, and ids to both.

        Args:
            teacher: T, for as many queries and keys.
            over: the pairs of the softmax.
            lse: `lse` of ``teacher``, [N], where it is known already or the softmax has more terms; they are left out here.
        """
        self._require_teacher(teacher, over)
        with torch.no_grad():
            lse = teacher.lse(over) if lse is None else lse
            limit = lse.masked_fill(lse == -torch.inf, 0)
            sides = teacher.scale * teacher.queries_ND, teacher.keys_MD, limit
            queries_NE, keys_ME, limit_N = (side.detach().to(self.queries_ND.dtype) for side in sides)
        guide = Guide(queries_NE, keys_ME, limit_N, weighs=True)
        problem = self._problem(over, reduction="sum")
        return self._reduce(replace(problem, pairs=replace(problem.pairs, guide=guide)))[0].squeeze(0)

    def cross_entropy(
        self, teacher: "Similarity", over: str = "all", *, own: tuple[Tensor, Tensor] | None = None, kl: bool = False
    ) -> Tensor:
        """LSE_j s_ij − Σ_j p_ij s_ij, [N]: between the softmax p_i of a teacher's row (see `expected`) and the row's own; ≥ 0.

        Large problems of one process are fused: strips of complete rows, whose gradients are computed in the forward pass.

        Args:
            teacher: T, for as many queries and keys. It gets no gradient.
            over: the pairs of both softmaxes; 0 where none counts.
            own: s and t of one more key of each row, [N] each, of which s may carry a gradient.
            kl: subtract the entropy of p_i, which gives the Kullback–Leibler divergence: 0 if both softmaxes are equal.
        """
        self._require_teacher(teacher, over)
        problem = self._problem(over)
        own = None if own is None else cross_entropy.Own(own[0], own[1].detach())
        if self.group is None and eager() and not abstract(self.queries_ND) and plan.crosses(problem):
            plan.decide(problem)  # counts it
            return cross_entropy.cross_entropy(problem, teacher._problem(over).detached(), own, kl)

        own_s, own_t = (None, None) if own is None else (own.s, own.t)
        with torch.no_grad():
            lse_t = teacher._lse_with(own_t, over)
            share = None if own_t is None else (own_t - lse_t).exp()
            entropy = lse_t - teacher._expected_with(own_t, share, teacher, over, lse_t) if kl else 0
        return self._lse_with(own_s, over) - self._expected_with(own_s, share, teacher, over, lse_t) - entropy

    # Methods, not functions inside: torch 2.6 compiles none whose annotations have a union.

    def _lse_with(self, own: Tensor | None, over: str) -> Tensor:
        """`lse` with one more key of each row, [N]; without one, 0 where none counts."""
        lse = self.lse(over)
        return lse.masked_fill(lse == -torch.inf, 0) if own is None else torch.logaddexp(lse, own)

    def _expected_with(
        self, own: Tensor | None, share: Tensor | None, teacher: "Similarity", over: str, lse: Tensor
    ) -> Tensor:
        """`expected` with one more key of each row, whose probability is ``share``, [N]."""
        total = self.expected(teacher, over, lse=lse)
        return total if own is None or share is None else total + share * own

    def _require_teacher(self, teacher: "Similarity", over: Over) -> None:
        if teacher.shape != self.shape or teacher.column_bias is not None:
            raise ValueError(f"teacher must have the shape {self.shape} and no column_bias, got shape {teacher.shape}")
        if self._guided(over):
            raise ValueError("over='negatives' with a guide: pairs are either left out or weighted by a teacher")

    def count(self, over: Over = "all") -> Tensor:
        """Number of pairs that count in each row, [N] integers; for a weighting mask the sum of weights."""
        pairs = self.pairs(over)
        return pairs.count() if self.group is None else sharded.count(pairs, self.shards)

    def mean(self, over: Over = "all") -> Tensor:
        """sum / count, [N]; 0 where no pair counts (see `count`)."""
        count = self.count(over)
        return self.sum(over) / count.masked_fill(count == 0, 1)

    def max(self, over: Over = "all") -> Tensor:
        """The largest s_ij, [N]; −inf with zero gradient where no pair counts. Of equal ones, one gets the gradient."""
        return self.topk(1, over)[0].squeeze(1)

    def topk(self, k: int, over: Over = "all") -> tuple[Tensor, Tensor]:
        """The k largest s_ij, descending: values [N, k] with gradient and columns [N, k]; −inf and −1 where fewer count."""
        self._require_k(k)
        if self.group is not None:
            return sharded.topk(self._problem(over), self.shards, k)
        if self._resolved == "dense":
            return dense.topk(self.matrix, self.pairs(over), k)
        values, columns = autograd.topk(self._problem(over), k)
        learning = (self.queries_ND, self.keys_MD, self.scale, self.column_bias)
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in learning):
            values = self.positives(columns.clamp_min(0)).masked_fill(columns < 0, -torch.inf)
        return values, columns

    def kth_largest(self, k: int, over: Over = "all") -> Tensor:
        """The k-th largest s_ij of each row less its rounding, [N]; −inf where fewer count. No gradient.

        At or above it lie the k largest and ties with the k-th largest, up to rounding.
        """
        self._require_k(k)
        with torch.no_grad():
            last = self.topk(k, over)[0][:, -1]
            norms: Tensor | float = 1.0  # of a query and the longest key, which bound the rounding of a product
            if not self.unit:
                lengths = [torch.linalg.vector_norm(side, dim=1) for side in (self.queries_ND, self.keys_MD)]
                norms = lengths[0] * lengths[1].amax()
            return below(last, self.scale * norms)

    def statistics(self, over: Over = "all", *, lse: Tensor | None = None) -> RowStatistics:
        """`RowStatistics` by one more pass over the tiles; give ``lse`` (of the same ``over``) where it is known already."""
        with torch.no_grad():
            lse = self.lse(over) if lse is None else lse.detach()
            problem = self._problem(over)
            if self.group is None:
                largest, expected = autograd.largest_and_expected(problem, lse)
            else:
                largest, expected = sharded.largest_and_expected(problem, self.shards, lse)
            return RowStatistics(largest, expected, (lse - expected).exp())

    def positives(self, columns: Tensor | None = None) -> Tensor:
        """s_ij at the given columns, [N] or [N, P] as ``columns`` is; None means column i for row i.

        Computed directly from the vectors, O(N·P·D), and so free of the rounding of a matrix product's tiles.
        """
        if columns is None:
            n = self.shape[0]
            if n > self.shape[1]:
                raise ValueError(f"positives() without columns needs a key for every query, got shape {self.shape}")
            scores = self.scale * (self.queries_ND * self.keys_MD[:n]).sum(1)
            return scores if self.column_bias is None else scores + self.column_bias[:n]
        queries = self.queries_ND if columns.ndim == 1 else self.queries_ND[:, None]
        # index_select: its derivative is several times faster than the derivative of keys[columns].
        keys = self.keys_MD.index_select(0, columns.flatten()).view(*columns.shape, -1)
        scores = self.scale * (queries * keys).sum(-1)
        return scores if self.column_bias is None else scores + self.column_bias[columns]

    def pairs(self, over: Over) -> Pairs:
        """The set of pairs that ``over`` names."""
        if isinstance(over, Tensor):
            if self.group is not None:
                raise ValueError(
                    "over=mask with group: a mask covers the keys of one process only; use ids or instances"
                )
            return Pairs(self.shape, over.device, mask=checked_mask(over, self.shape, self.queries_ND))
        if over not in self._sets:
            self._sets[over] = self._named(over)
        return self._sets[over]

    def _guided(self, over: Over) -> bool:
        return self.guide is not None and isinstance(over, str) and over == "negatives"

    def _named(self, over: str) -> Pairs:
        device, lead = self.queries_ND.device, self.queries_lead_keys
        if over not in NAMES:
            raise ValueError(f"over must be one of {', '.join(NAMES)} or a mask [N, M], got {over!r}")
        if over == "all":
            return Pairs(self.shape, device)
        if over == "others":
            if not lead:
                raise ValueError("over='others' needs keys that are the queries: keys_MD=None or queries_lead_keys")
            return Pairs(self.shape, device, drop_self=True)
        guide = self.guide if self._guided(over) else None
        if guide is not None and self.query_ids is None and self.key_ids is None and self.instances is None:
            return Pairs(self.shape, device, lead, guide=guide)
        if self.instances is not None:
            return Pairs(self.shape, device, lead, over == "positives", instances=self.instances, guide=guide)
        if self.query_ids is None or self.key_ids is None:
            raise ValueError(f"over={over!r} needs instances, or query_ids (and key_ids when keys_MD is given)")
        return Pairs(self.shape, device, lead, over == "positives", self.query_ids, self.key_ids, guide=guide)

    @property
    def number_of_keys(self) -> int:
        """M, over all processes of the group."""
        return self.shape[1] if self.group is None else self.shards.total

    @cached_property
    def shards(self) -> sharded.Shards:
        """How the keys are distributed over the processes of the group; the first use communicates with all of them."""
        assert self.group is not None
        if self._resolved == "dense":
            raise ValueError("the dense backend with group: no process holds all keys; leave out one of them")
        given = self.key_ids if self.query_ids is None else self.query_ids
        ids = 0 if given is None else (*given.shape, 1)[1]
        width = 0 if self.guide is None else self.guide.queries_NE.shape[1]
        return sharded.gather_shards(self._problem("all"), self.group, torch.is_grad_enabled(), ids, width)

    @property
    def _resolved(self) -> str:
        """What ``backend`` means for this matrix."""
        return plan.resolved(self.backend, self.shape[0] * self.shape[1] if self.group is None else math.inf)

    def _problem(self, over: Over, *, top_k: int | None = None, **options: Any) -> Problem:
        at_least = None
        if top_k is not None:
            self._require_k(top_k)
            if torch.compiler.is_compiling() or abstract(self.queries_ND) or not self.is_stored:  # S may not be stored
                at_least, top_k = self.kth_largest(top_k, over), None
        options = {"scale": self.scale, "bias_M": self.column_bias, "at_least_N": at_least, "top_k": top_k, **options}
        options = {"unit": self.unit, "tile": self.tile, "half": self.half, "backend": self._resolved, **options}
        return Problem(self.queries_ND, None if self.self_similar else self.keys_MD, pairs=self.pairs(over), **options)

    def _reduce(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        if self.group is not None:
            return sharded.reduce_keys(problem, self.shards)
        return autograd.reduce(problem, plan.decide(problem, plan.learning(problem)))

    def _require_k(self, k: int) -> None:
        if not 1 <= k <= self.number_of_keys:
            raise ValueError(f"k must be between 1 and the number of keys {self.number_of_keys}, got {k}")

    @property
    def is_stored(self) -> bool:
        """True if S has so few elements that it is stored (see `matrix`)."""
        return self.group is None and self._resolved in ("dense", "stored")

    @property
    def matrix(self) -> Tensor:
        """S itself, [N, M], with gradients."""
        return dense.matrix(self.queries_ND, self.keys_MD, self.scale, self.column_bias)
