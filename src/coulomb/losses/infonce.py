"""InfoNCE: identify the positive among negatives from the batch, from a queue, or from both."""

from dataclasses import KW_ONLY, replace
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN, check_shape
from coulomb.losses.diagnosis import Result
from coulomb.losses.inputs import pair_ids
from coulomb.losses.negatives import Contrast, ContrastiveLoss, unique_ids, warn_alone
from coulomb.losses.options import Flag, SameId, Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group


class InfoNCELoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_k e^{s_ik}) − s_i⁺ = softplus(LSE_k s_ik − s_i⁺),  s = cos/τ   (van den Oord et al., 2018)

    k runs over the positives of the other samples in the batch, or over ``negatives`` (a queue or memory bank: MoCo, He et
    al., 2020), or with ``in_batch`` over both (hard negatives). This is cross-entropy with the positive as the target class,
    computed without the cancellation in LSE − s⁺, so that a loss near 0 keeps its precision. With ``ids``, keys that are
    known to be equal to the positive are left out: the same caption or picture twice in a batch.

    When to use: pairs from two modalities, such as image and text (``symmetric=True``), or queries against a queue of keys
    from a momentum encoder, which provides many negatives with a small batch.
    Needs: one positive per query. No labels; ids where the same picture or caption may occur twice in a batch. Add the
    positives to the queue after computing the loss; otherwise they are negatives of their own queries.
    Temperature: negative k is pushed in proportion to its softmax e^{s_ik}, and all negatives together are pushed as much
    as the positive is pulled. As τ → 0 only the hardest negative is pushed (τL → max(s_max − s⁺, 0) in cosines), as τ → ∞
    all are pushed equally. CLIP learns τ.
    Cost: 6u with u = N²·D in one direction (8u if τ < 0.018, or with more than 32,768 keys of D < 128), 8u in both; 4u with
    u = N·K·D for a queue without gradient. Memory is linear in N and K.
    Reference: van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding, 2018,
    arXiv:1807.03748; He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020,
    arXiv:1911.05722; Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    arXiv:2103.00020.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.07 as in MoCo (v2: 0.2).
        symmetric: average the losses of both directions, query→positive and positive→query (CLIP; in-batch only). Given
            ``negatives`` are keys of the queries; in the other direction only the queries of the batch are.
        in_batch: use given ``negatives`` in addition to the positives of the other samples, in one softmax, such as hard
            negatives of each sample: every query is compared with all of them. By default they replace these positives.
        same_id: what ``ids`` say about a key with the id of the query: ``"left_out"``, it is no negative; ``"positive"``, it
            is one more positive, L_i = LSE_k s_ik − mean_p s_ip over all keys k and the positives p, as in `SupConLoss`,
            whose minimum is the log of their number. One id per sample; the mean is computed from sums by id, O(N·D).
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. ``negatives`` are gathered only with ``in_batch``. Ids are compared between processes.

    Shape:
        query, positive: [N, D].
        negatives: [K, D].
        ids: [N], or [N, C].
        negative_ids: [K], or [K, C].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value. MoCo's code stores the logits [N, 1+K] and subtracts; this implementation does neither.
    Degenerate input: without negatives (N = 1 in-batch, or K = 0) the loss is 0, and a `CoulombWarning` is issued. In-batch,
    a `CoulombWarning` counts the queries all of whose keys have their id; their loss is 0 if these keys are left out.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> query = positive = torch.eye(4)
    >>> InfoNCELoss(temperature=1.0)(query, positive)  # log(e + 3) − 1
    tensor(0.7437)
    """

    temperature: Tau = 0.07
    symmetric: Flag = False
    _: KW_ONLY
    in_batch: Flag = False
    same_id: SameId = "left_out"

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None = None,
        *,
        ids: Tensor | None = None,
        negative_ids: Tensor | None = None,
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: positive[i] is the key that query[i] should find.
            negatives: keys that are negatives of every query, with or without gradient; None: the positives of the other
                samples are.
            ids: integers that identify each pair, −1 for unknown: one id, or C of them, such as the picture's and the
                caption's. Key j is no negative of query i if any id of pair j equals the same id of pair i.
            negative_ids: likewise of the negatives: for negatives of a queue, such as earlier keys of the same image,
                required with ``ids``; with ``in_batch`` unknown by default.
        """
        queue = negatives is not None and not self.in_batch
        if queue and self.symmetric:
            raise ValueError(
                "negatives with symmetric=True: they apply to the queries only; use symmetric=False, or in_batch=True to "
                "add them to the positives of the batch"
            )
        unpaired = queue and (ids is None) != (negative_ids is None)
        if unpaired or (negative_ids is not None and (ids is None or negatives is None)):
            raise ValueError("ids and negative_ids must be given together with negatives; without negatives, ids alone")
        scale = scale_of(self.temperature)
        both_ids = None if ids is None else self._ids(query, ids, negatives, negative_ids)
        if both_ids is not None and self.same_id == "positive":
            contrast = self._pairs(query, positive, negatives, scale, in_batch=self.in_batch)
            return self._several_positives(contrast, *both_ids, queue)
        contrast = self._pairs(query, positive, negatives, scale, both_ids, in_batch=self.in_batch)
        loss = contrast.similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        return self._result(contrast, loss)

    def _ids(
        self, query: Tensor, ids: Tensor, negatives: Tensor | None, negative_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the ids of queries and keys. A pair in the batch has an id that equals no other unless it was given."""
        check_shape("query", query)
        n, ids = len(query), pair_ids("ids", ids, len(query), query)
        if ids.ndim == 2 and self.same_id == "positive":
            raise ValueError(
                f"ids of shape {list(ids.shape)} with same_id='positive': sums by id need one id per sample, [{n}]; pass one, "
                "or use same_id='left_out'"
            )
        if negatives is not None:
            check_shape("negatives", negatives, like=query, least=0)
            if negative_ids is None:
                others = ids.new_full((len(negatives), *ids.shape[1:]), UNKNOWN)
            else:
                others = pair_ids("negative_ids", negative_ids, len(negatives), query)
            if others.shape[1:] != ids.shape[1:]:
                raise ValueError(
                    f"ids and negative_ids must have equally many ids per row, got {list(ids.shape)}, {list(others.shape)}"
                )
            if not self.in_batch:
                return ids, others
            ids = torch.cat([ids, others])
        ids = unique_ids(gather_group(self.gather), ids)
        return ids[:n], ids

    def _several_positives(self, contrast: Contrast, ids: Tensor, key_ids: Tensor, queue: bool) -> Result:
        """LSE_k − mean_p as softplus(LSE_{k≠i} s_ik − s_i⁺) + s_i⁺ − mean_p s_ip. The positive of the pair always counts."""
        similarity, n = contrast.similarity, len(ids)
        options: dict[str, Any] = {"scale": similarity.scale, "unit": self.normalize, "group": contrast.group}
        loss = similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        queries, keys = similarity.queries_ND, similarity.keys_MD
        related = Similarity(queries, keys, query_ids=ids, key_ids=key_ids, **options)
        warn_alone(related)
        total, count = related.sum("positives"), related.count("positives")
        if queue:
            total, count = total + contrast.positives, count + 1
        mean, single = total / count, count == 1
        shift = (contrast.positives - mean).masked_fill(single, 0)
        if self.symmetric:
            transposed = Similarity(keys[:n], queries, query_ids=ids, key_ids=ids, **options)
            count = transposed.count("positives")
            back = (contrast.positives - transposed.sum("positives") / count).masked_fill(count == 1, 0)
            shift = (shift + back) / 2
        return self._result(replace(contrast, similarity=related, over="negatives", positives=mean), loss + shift)
