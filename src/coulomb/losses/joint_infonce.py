"""Joint InfoNCE: one softmax over several directions, between queries and documents and within each of them."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.checked import choice, optional
from coulomb.losses.diagnosis import Result
from coulomb.losses.inputs import paired_rows, unit_rows, warn_counted
from coulomb.losses.negatives import NO_NEGATIVE, NONE, Contrast, ContrastiveLoss, summed_over, with_factors
from coulomb.losses.options import NonNegative, Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group

DIRECTIONS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
HARDNESS = ("in_batch_negatives", "hard_negatives")
WITH_POSITIVE = ("query_to_doc", "doc_to_query")  # directions whose softmax contains the positive


def checked_directions(name: str, value: Any) -> tuple[str, ...]:
    """Returns the directions in the order of `DIRECTIONS`, each once; raises an error for others or without the first."""
    if isinstance(value, str | Tensor) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of {', '.join(map(repr, DIRECTIONS))}, got {value!r}")
    given = tuple(value)
    if unknown := [one for one in given if one not in DIRECTIONS]:
        raise ValueError(f"{name} must be among {', '.join(map(repr, DIRECTIONS))}, got {unknown[0]!r}")
    if DIRECTIONS[0] not in given:
        raise ValueError(f"{name} must contain {DIRECTIONS[0]!r}, which holds the positives, got {given!r}")
    return tuple(one for one in DIRECTIONS if one in given)


Directions = Annotated[tuple[str, ...], checked_directions]
PartitionMode = Annotated[str, choice("joint", "per_direction")]
HardnessMode = Annotated[str | None, optional(choice(*HARDNESS, "all_negatives"))]


class JointInfoNCELoss(ContrastiveLoss):
    """L_i = log Σ_d Σ_k e^{s_dik} − s_i⁺,  s = cos/τ, over the directions d   (Li et al., 2023)

    s_i⁺ = cos(q_i, p_i)/τ of a query and its positive. Documents are the positives and, if given, K hard negatives of each
    query. Directions: ``query_to_doc``, cos(q_i, ·) to all documents, the positive among them; ``query_to_query``,
    cos(q_i, q_j) for j ≠ i; ``doc_to_query``, cos(p_i, ·) to all queries, its own among them; ``doc_to_doc``, cos(p_i, ·) to
    the documents of other queries. With ``query_to_doc`` alone this is `InfoNCELoss` with its ``in_batch`` negatives.

    ``partition_mode="per_direction"`` is the mean over directions of log Σ_k e^{s_dik} − s_i⁺. A hardness mode adds
    α·cos(q_i, ·), without gradient, to the scores of negatives in ``query_to_doc``, so that similar ones weigh more.

    When to use: texts for retrieval, with or without hard negatives. All four directions use each batch four times, which
    helps most where batches are small.
    Needs: one positive per query; equally many hard negatives for each query, if any. No labels. Queries and documents that
    repeat within a batch are false negatives of each other: leave them out of it.
    Temperature: as in `InfoNCELoss`; the negatives of all directions share one softmax.
    Cost: 16u with u = N²·D for all four directions: 8u for both directions between queries and positives, 4u within queries
    and 4u within positives. 6u for ``query_to_doc`` alone; hard negatives add 6u each, and 8u to ``doc_to_doc``. Memory is
    linear in N and K.
    Reference: Li et al., Towards General Text Embeddings with Multi-stage Contrastive Learning, 2023, arXiv:2308.03281.
    Hardness: Lan et al., 2025, arXiv:2503.04812 (in-batch, α = 9); Schechter Vera et al., 2025, arXiv:2509.20354 (hard
    negatives, α = 5).

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.05 is the scale of 20 that sentence-transformers uses.
        directions: which of the four; ``query_to_doc`` is required.
        partition_mode: ``"joint"``, one softmax over all directions, or ``"per_direction"``, for ``query_to_doc`` and
            ``doc_to_query`` only.
        hardness_mode: negatives whose scores are raised: ``"in_batch_negatives"``, the documents of other queries;
            ``"hard_negatives"``, the query's own hard negatives; ``"all_negatives"``, both; None: none.
        hardness_strength: α ≥ 0; not divided by τ.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over queries, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`); the diagnosis is of ``query_to_doc``, without hardness.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention.

    Shape:
        query, positive: [N, D].
        negatives: [N, K, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value from sentence-transformers 6.2. Its code, and that of the papers, store the scores.
    Degenerate input: N = 1 without hard negatives has no negatives: the loss is 0 (ln 2 with ``doc_to_query`` in one
    softmax, where the positive counts twice), and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> query = positive = torch.eye(2)
    >>> JointInfoNCELoss(temperature=1.0)(query, positive)  # twice the positive, four other pairs: log(2e + 4) − 1
    tensor(1.2446)
    """

    temperature: Tau = 0.05
    _: KW_ONLY
    directions: Directions = DIRECTIONS
    partition_mode: PartitionMode = "joint"
    hardness_mode: HardnessMode = None
    hardness_strength: NonNegative = 0.0

    def forward(self, query: Tensor, positive: Tensor, negatives: Tensor | None = None) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the queries.
            positive: positive[i] is the document that query[i] should find.
            negatives: negatives[i] are the hard negatives of query[i], which are documents of the other queries as well.
        """
        if self.partition_mode == "per_direction" and (ill := set(self.directions) - set(WITH_POSITIVE)):
            raise ValueError(
                f"directions with partition_mode='per_direction': {min(ill)!r} has a softmax without the positive, whose loss "
                "has no minimum; leave it out, or use partition_mode='joint'"
            )
        rows = paired_rows(("query", "positive"), query, positive, normalize=self.normalize)
        n, scale, group = len(query), scale_of(self.temperature), gather_group(self.gather)
        hard = self._hard_negatives(negatives, query)
        options: dict[str, Any] = {"scale": scale, "half": query.dtype, "group": group}
        products, both = self._paired_products(("query", "positive"), rows.view(2, n, -1))
        s = scale * products
        query, positive = rows.view(2, n, -1).unbind()
        # 1/‖prefix‖ of the rows, for prefixes of the dimensions; else None
        of_query, of_positive = (None, None) if both is None else both.unbind(1)
        of_hard = None if hard is None else self._factors("negatives", hard)
        documents = positive if hard is None else torch.cat([positive, hard])
        factors = of_query, with_factors(of_positive, of_hard)
        everything = self._similarity(query, documents, factors, instances=len(documents), **options)

        # query_to_doc without the positive: pairs with one scale are in ``main``, others in ``to_docs``.
        alpha = {mode: self.hardness_strength * (self.hardness_mode in (mode, "all_negatives")) for mode in HARDNESS}
        in_batch, own = alpha["in_batch_negatives"], alpha["hard_negatives"]
        main, to_docs = everything, []
        if hard is not None and in_batch != own:
            cosines = (query * hard.view(-1, n, hard.shape[1])).sum(2)
            to_docs.append((scale * cosines + own * cosines.detach()).logsumexp(0))
            main = self._similarity(query, documents, NONE, instances=n, **options)
        main = _raised(main, in_batch) if in_batch else main

        last: Similarity | None = main
        to_queries: list[Tensor] = []
        if "doc_to_query" in self.directions:
            if hard is None and not in_batch:
                rows_lse, columns_lse = everything.lse_both("negatives")
                to_docs.append(rows_lse)
                to_queries.append(columns_lse)
                last = None
            else:
                back = self._similarity(positive, query, (of_positive, of_query), instances=n, **options)
                to_queries.append(back.lse("negatives"))
        within: list[Tensor] = []
        if "query_to_query" in self.directions:
            within.append(self._similarity(query, None, (of_query, None), **options).lse("others"))
        if "doc_to_doc" in self.directions:
            within.append(self._similarity(positive, None, (of_positive, None), **options).lse("others"))
            if hard is not None:
                others = self._similarity(positive, hard, (of_positive, of_hard), instances=n, **options)
                within.append(others.lse("negatives"))

        if to_queries and self.partition_mode == "per_direction":
            loss = (joined(s, to_docs, last) + joined(s, to_queries)) / 2
        else:
            twice = [s] if to_queries else []  # the positive is a pair of each direction
            loss = joined(s, [*twice, *to_queries, *within, *to_docs], last)
        anchors = n if group is None else int(summed_over(group, torch.tensor(n, device=rows.device)))
        if anchors == 1 and hard is None:
            warn_counted(1, 1, NO_NEGATIVE)
        contrast = Contrast(everything, "negatives", s, len(documents) - 1, anchors, group)
        return self._result(contrast, loss)

    def _hard_negatives(self, negatives: Tensor | None, query: Tensor) -> Tensor | None:
        """Returns the hard negatives as rows, [K·N, D]: first those of all queries, then the second ones, ….

        The instance of a row, by its place modulo N, is then its query.
        """
        if negatives is None:
            return None
        rows = unit_rows("negatives", negatives, normalize=self.normalize, like=query, ndim=(3,))
        if len(rows) != len(query):
            raise ValueError(f"negatives must have shape [{len(query)}, K, D], got {tuple(negatives.shape)}")
        return rows.transpose(0, 1).reshape(-1, rows.shape[2]) if rows.shape[1] else None


def joined(positives_N: Tensor, lses: Sequence[Tensor], last: Similarity | None = None) -> Tensor:
    """log(1 + Σ_b e^{lse_b − s⁺}), [N]: the positive of each row against several sets of pairs in one softmax.

    Terms are added one at a time, log(1 + a + b) = log(1 + a) + softplus(log b − log(1 + a)), so that small losses keep their
    digits. The last set may be given by its matrix, whose ``"negatives"`` count: its gradient is then fused.
    """
    total = torch.zeros_like(positives_N)
    for lse in lses:
        total = total + softplus(lse - (positives_N + total), threshold=50)
    return total if last is None else total + last.contrast(positives_N + total)


def _raised(similarity: Similarity, alpha: float) -> Similarity:
    """The matrix with the scores s + α·sg(s)/scale: values by the scale + α, gradients of the vectors by the scale alone."""
    scale = similarity.scale
    share = scale / (scale + alpha)
    share = share.detach() if isinstance(share, Tensor) else share
    vectors = similarity.queries_ND, similarity.keys_MD
    queries_ND, keys_MD = (share * each + (1 - share) * each.detach() for each in vectors)
    names = "instances", "unit", "half", "group"
    alike = {name: getattr(similarity, name) for name in names}
    return Similarity(queries_ND, keys_MD, scale=scale + alpha, **alike)
