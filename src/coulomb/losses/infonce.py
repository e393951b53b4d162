"""InfoNCE: identify the positive among negatives from the batch, from a queue, or from both."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN, check_shape, check_tensor
from coulomb.losses.diagnosis import Result
from coulomb.losses.inputs import pair_ids, unit_rows
from coulomb.losses.negatives import Contrast, ContrastiveLoss, unique_ids, warn_alone, warn_unguided
from coulomb.losses.options import Finite, Flag, MarginKind, SameId, Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity import Guide
from coulomb.similarity.collectives import gather_group


class InfoNCELoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_k e^{s_ik}) − s_i⁺ = softplus(LSE_k s_ik − s_i⁺),  s = cos/τ   (van den Oord et al., 2018)

    k runs over the positives of the other samples in the batch, or over ``negatives`` (a queue or memory bank: MoCo, He et
    al., 2020), or with ``in_batch`` over both (hard negatives). This is cross-entropy with the positive as the target class,
    computed without the cancellation in LSE − s⁺, so that a loss near 0 keeps its precision. With ``ids``, keys that are
    known to be equal to the positive are left out: the same caption or picture twice in a batch. With a ``guide``, keys that
    another model finds about as similar to the query as the positive are left out (GIST: Solatorio, 2024).

    When to use: pairs from two modalities, such as image and text (``symmetric=True``), or queries against a queue of keys
    from a momentum encoder, which provides many negatives with a small batch.
    Needs: one positive per query. No labels; ids where the same picture or caption may occur twice in a batch, or a guide
    where other keys may be positives that nobody marked: a trained model of the same kind of data. Add the positives to the
    queue after computing the loss; otherwise they are negatives of their own queries.
    Temperature: negative k is pushed in proportion to its softmax e^{s_ik}, and all negatives together are pushed as much
    as the positive is pulled. As τ → 0 only the hardest negative is pushed (τL → max(s_max − s⁺, 0) in cosines), as τ → ∞
    all are pushed equally. CLIP learns τ.
    Cost: 6u with u = N²·D in one direction (8u if τ < 0.018, or with more than 32,768 keys of D < 128), 8u in both; 4u with
    u = N·K·D for a queue without gradient. A guide of E dimensions adds E/3D of it in one direction, E/2D in both.
    Memory is linear in N and K.
    Reference: van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding, 2018,
    arXiv:1807.03748; He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020,
    arXiv:1911.05722; Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    arXiv:2103.00020; Solatorio, GISTEmbed: Guided In-sample Selection of Training Negatives for Text Embedding Fine-tuning,
    2024, arXiv:2402.16829.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.07 as in MoCo (v2: 0.2).
        symmetric: average the losses of both directions, query→positive and positive→query (CLIP; in-batch only). Given
            ``negatives`` are keys of the queries; in the other direction only the queries of the batch are.
        in_batch: use given ``negatives`` in addition to the positives of the other samples, in one softmax, such as hard
            negatives of each sample: every query is compared with all of them. By default they replace these positives.
        same_id: what ``ids`` say about a key with the id of the query: ``"left_out"``, it is no negative; ``"positive"``, it
            is one more positive, L_i = LSE_k s_ik − mean_p s_ip over all keys k and the positives p, as in `SupConLoss`,
            whose minimum is the log of their number. One id per sample; the mean is computed from sums by id, O(N·D).
        guide_margin: m: with a guide, whose cosines are g, key k is a negative of query i if g_ik < g_i⁺ − m; 0 as in GIST.
        guide_margin_kind: ``"absolute"``, or ``"relative"``: g_ik < g_i⁺ − m·|g_i⁺|.
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
        guide: [N, E] twice, and [K, E].
        scale: a number or a 0-dim tensor.
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value. MoCo's code stores the logits [N, 1+K] and subtracts; this implementation does neither. GIST
    adds the similarities between queries and between positives to the sum (`coulomb.similarity.Guide` builds such sums), and
    keeps keys whose g_ik equals the limit, which rounding decides; here keys at the limit, such as copies of the positive,
    are left out.
    Degenerate input: without negatives (N = 1 in-batch, or K = 0) the loss is 0, and a `CoulombWarning` is issued. In-batch,
    a `CoulombWarning` counts the queries all of whose keys have their id; their loss is 0 if these keys are left out. With a
    guide the queries without any negative are counted.

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
    guide_margin: Finite = 0.0
    guide_margin_kind: MarginKind = "absolute"

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None = None,
        *,
        ids: Tensor | None = None,
        negative_ids: Tensor | None = None,
        guide: Sequence[Tensor] | None = None,
        scale: float | Tensor | None = None,
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
            guide: embeddings by another model, in the order of the other arguments: of the queries, the positives and, if
                given, the negatives. They get no gradient and are scaled to unit length.
            scale: 1/τ of this call in place of ``temperature``, such as ``model.logit_scale.exp()``; a tensor gets its
                gradient.
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
        if guide is not None and self.same_id == "positive":
            raise ValueError(
                "guide with same_id='positive': keys cannot be both left out and positives; use 'left_out'"
            )
        scale = scale_of(self.temperature, scale)
        both_ids = None if ids is None else self._ids(query, ids, negatives, negative_ids)
        if both_ids is not None and self.same_id == "positive":
            contrast = self._pairs(query, positive, negatives, scale, in_batch=self.in_batch)
            return self._several_positives(contrast, *both_ids, queue)
        guided = None if guide is None else self._guide(guide, query, positive, negatives)
        contrast = self._pairs(query, positive, negatives, scale, both_ids, self.in_batch, guided)
        loss = contrast.similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        if guided is not None and contrast.count:
            warn_unguided(contrast, loss, self.symmetric)
        return self._result(contrast, loss)

    def _guide(self, guide: Sequence[Tensor], query: Tensor, positive: Tensor, negatives: Tensor | None) -> Guide:
        """Returns the guide of queries and keys, whose limits are its cosines of queries and positives less the margin."""
        check_shape("query", query)
        names, lengths = ["query", "positive"], [len(query)] * 2
        if negatives is not None:
            check_shape("negatives", negatives, like=query, least=0)
            names, lengths = [*names, "negatives"], [*lengths, len(negatives)]
        if not isinstance(guide, tuple | list) or len(guide) != len(names):
            found = len(guide) if isinstance(guide, tuple | list) else type(guide).__name__
            raise ValueError(f"guide must be a tuple of {len(names)} tensors, for {', '.join(names)}; got {found}")
        rows: list[Tensor] = []
        for place, (name, length) in enumerate(zip(names, lengths, strict=True)):
            width = tuple(guide[0].shape[1:]) if place else tuple(getattr(guide[0], "shape", (0, 0))[1:2])
            check_tensor(f"guide[{place}]", guide[place], "a floating", (length, *width), query, f" for {name}")
            rows.append(unit_rows(f"guide[{place}]", guide[place].detach(), normalize=True, least=0))
        limit = (rows[0] * rows[1]).sum(1)
        limit = limit - self.guide_margin * (limit.abs() if self.guide_margin_kind == "relative" else 1)
        if negatives is None:
            return Guide(rows[0], rows[1], limit)
        return Guide(rows[0], torch.cat(rows[1:]) if self.in_batch else rows[2], limit)

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
        options: dict[str, Any] = {"scale": similarity.scale, "group": contrast.group}
        loss = similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        queries, keys = similarity.queries_ND, similarity.keys_MD
        related = self._similarity(queries, keys, contrast.factors, query_ids=ids, key_ids=key_ids, **options)
        warn_alone(related)
        total, count = related.sum("positives"), related.count("positives")
        if queue:
            total, count = total + contrast.positives, count + 1
        mean, single = total / count, count == 1
        shift = (contrast.positives - mean).masked_fill(single, 0)
        if self.symmetric:
            of_queries, of_keys = contrast.factors
            factors = None if of_keys is None else of_keys[:, :n], of_queries
            transposed = self._similarity(keys[:n], queries, factors, query_ids=ids, key_ids=ids, **options)
            count = transposed.count("positives")
            back = (contrast.positives - transposed.sum("positives") / count).masked_fill(count == 1, 0)
            shift = (shift + back) / 2
        return self._result(replace(contrast, similarity=related, over="negatives", positives=mean), loss + shift)
