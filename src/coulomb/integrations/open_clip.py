"""Losses with the constructors and calls of open_clip 3.3 and 4, for its training loops and tasks.

They need no more than torch: open_clip is not imported. Memory is linear in the batch, logits are computed in fp32 also
under autocast, and what other processes contribute to a gradient is computed without storing their logits.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import softplus

from coulomb.ground.checked import check_shape, checked_flag, checked_number, checked_whole, choice
from coulomb.losses.inputs import paired_products, paired_rows, unit_rows, warn_counted
from coulomb.losses.negatives import NO_NEGATIVE, reduced_over
from coulomb.losses.temperature import checked_parameter
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import all_reduce_sum, gather_rows

NAMES = ("image_features", "text_features")


class ClipLoss(nn.Module):
    """L = mean_i ½ (LSE_j s_ij + LSE_j s_ji) − s_ii,  s_ij = scale·x_i·y_j + bias   (CLIP, Radford et al., 2021)

    x are ``image_features``, y ``text_features``, of unit length as the models of open_clip return them (they are not
    normalized here). Equal to ``open_clip.ClipLoss`` in value and gradients.

    Gradients across processes: let G be the gradient of the mean of L over all W processes for the features of a process,
    which, if each process contributes its own through DistributedDataParallel (an average), needs W·G in each process.

    =============  ==================  ==========================  ====================================
    `local_loss`   `gather_with_grad`  value                       gradient of the features
    =============  ==================  ==========================  ====================================
    True           True                mean over own rows          W·G: exact after averaging
    False          True                mean over all processes     W·G: exact after averaging
    False          False               mean over all processes     G: 1/W of the exact one
    True           False               mean over own rows          W·G without the terms of keys: wrong
    =============  ==================  ==========================  ====================================

    Each row gives what open_clip gives, so that learning rates found there keep their meaning. The gradient of
    ``logit_scale`` is exact after averaging in every row; in the third, the default, it is therefore W times as large as in
    one process, relative to the gradients of the features (open_clip #616). Adam hides a factor common to all weights; weight
    decay and clipping do not: for new training choose ``local_loss=True, gather_with_grad=True``. The first three rows need
    the same time here; batches may differ in size.

    Args:
        local_loss: each process returns the mean over its own images and texts.
        gather_with_grad: gradients of other processes' losses reach the features of this one.
        cache_labels: without effect; there are no labels to cache.
        rank, world_size: as in torch.distributed; ``world_size=1`` restricts the loss to this process.
        use_horovod: only False: horovod is not supported.

    Shape:
        image_features, text_features: [N, D].
        logit_scale, logit_bias: a number, or a tensor with one element, which gets its gradient.
        output: scalar, or ``{"contrastive_loss": scalar}`` with ``output_dict``.

    Deviation: features with NaN or infinite values raise ValueError where open_clip returns NaN, and a single pair, which has
    no negatives, gives a `CoulombWarning`. Under autocast logits are in fp32 rather than in half precision. The gradient of
    ``logit_scale`` in one process is its share of the sum; the mean over processes is the same.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it.
        RuntimeError: ``world_size`` above 1 without a process group.

    >>> ClipLoss()(torch.eye(4), torch.eye(4), logit_scale=1.0)  # log(e + 3) − 1
    tensor(0.7437)
    """

    def __init__(
        self,
        local_loss: bool = False,
        gather_with_grad: bool = False,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        use_horovod: bool = False,
    ) -> None:
        super().__init__()
        self.local_loss = checked_flag("local_loss", local_loss)
        self.gather_with_grad = checked_flag("gather_with_grad", gather_with_grad)
        self.cache_labels = checked_flag("cache_labels", cache_labels)
        self.rank, self.world_size = checked_place(rank, world_size)
        if checked_flag("use_horovod", use_horovod):
            raise ValueError("use_horovod=True: horovod is not supported; use torch.distributed and use_horovod=False")
        self.use_horovod = False

    def get_ground_truth(self, device: torch.device, num_logits: int) -> Tensor:
        """Returns the column of each row's positive in `get_logits`, [num_logits]."""
        first = num_logits * self.rank if self.world_size > 1 and self.local_loss else 0
        return torch.arange(num_logits, device=device) + first

    def get_logits(
        self, image_features: Tensor, text_features: Tensor, logit_scale: Any, logit_bias: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the stored logits (per image, per text), for losses of your own on top of them, such as distillation.

        [N, N], with ``local_loss`` [N, W·N], else [W·N, W·N]. Memory is quadratic; `forward` does not call this.
        """
        group = group_of(self.rank, self.world_size)
        images, texts = image_features, text_features
        if group is not None:
            images, texts = (self._gathered(group, each) for each in (images, texts))
        rows = (image_features, text_features) if self.local_loss else (images, texts)
        per_image = logit_scale * rows[0] @ texts.T
        per_text = logit_scale * rows[1] @ images.T if self.local_loss or group is None else per_image.T
        return (per_image, per_text) if logit_bias is None else (per_image + logit_bias, per_text + logit_bias)

    def _gathered(self, group: dist.ProcessGroup, rows: Tensor) -> Tensor:
        """The rows of all processes, with the gradients that the flags say."""
        if self.gather_with_grad:
            return gather_rows(group, rows)
        gathered = gather_rows(group, rows.detach())
        if self.local_loss:
            return gathered
        first = self.rank * len(rows)
        return torch.cat([gathered[:first], rows, gathered[first + len(rows) :]])

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: float | Tensor,
        logit_bias: float | Tensor | None = None,
        output_dict: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        """Returns the loss.

        Args:
            image_features, text_features: embeddings of unit length; row i of both is a pair.
            logit_scale: 1/τ, such as ``model.logit_scale.exp()``.
            logit_bias: added to all logits, without effect on the value, and with a gradient of 0.
            output_dict: return ``{"contrastive_loss": loss}``.
        """
        scale = one_element("logit_scale", logit_scale)
        loss = self._over_processes(both_directions, one_direction, image_features, text_features, scale)
        if logit_bias is not None:
            loss = loss + 0 * one_element("logit_bias", logit_bias)  # so that DistributedDataParallel sees it used
        return {"contrastive_loss": loss} if output_dict else loss

    def _over_processes(
        self,
        both: Callable[..., Tensor],
        one: Callable[..., Tensor],
        images: Tensor,
        texts: Tensor,
        scale: float | Tensor,
    ) -> Tensor:
        """A loss of images and texts with the value and the gradients that the flags say.

        Args:
            both: (images, texts, scale, group) → the mean over the pairs of this process, both directions averaged.
            one: (names, queries, keys, scale, group) → likewise of one direction.
            images, texts, scale: of this process.
        """
        group = group_of(self.rank, self.world_size)
        if group is None or self.gather_with_grad:
            loss = both(images, texts, scale, group)
        elif not self.local_loss:
            check_shape(NAMES[0], images)
            check_shape(NAMES[1], texts, like=images)
            loss = both(weakened(images, self.world_size), weakened(texts, self.world_size), scale, group)
        else:
            forth = one(NAMES, images, texts.detach(), scale, group)
            back = one(NAMES[::-1], texts, images.detach(), scale, group)
            loss = (forth + back) / 2
        if group is not None and not self.local_loss:
            mean = all_reduce_sum(group, loss.detach()) / self.world_size
            loss = loss + (mean - loss).detach()
        return loss


class CoCaLoss(ClipLoss):
    """`ClipLoss` and the cross-entropy of captions (CoCa, Yu et al., 2022), each with its weight, as in open_clip.

    Args:
        caption_loss_weight, clip_loss_weight: weights of both; at ``clip_loss_weight=0``, the contrastive one is not computed.
        pad_id: the token that does not count in captions.
        local_loss, gather_with_grad, cache_labels, rank, world_size, use_horovod: as in `ClipLoss`.

    Shape:
        image_features, text_features, logit_scale: as in `ClipLoss`.
        logits: [N, L, V], of each token of a caption.
        labels: [N, L], the tokens.
        output: (contrastive loss, caption loss), or a dict of both with ``output_dict``.
    """

    def __init__(
        self,
        caption_loss_weight: float,
        clip_loss_weight: float,
        pad_id: int = 0,
        local_loss: bool = False,
        gather_with_grad: bool = False,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        use_horovod: bool = False,
    ) -> None:
        super().__init__(local_loss, gather_with_grad, cache_labels, rank, world_size, use_horovod)
        self.caption_loss_weight = checked_number("caption_loss_weight", caption_loss_weight, at_least=0)
        self.clip_loss_weight = checked_number("clip_loss_weight", clip_loss_weight, at_least=0)
        self.caption_loss = nn.CrossEntropyLoss(ignore_index=pad_id)

    def forward(  # type: ignore[override]  # as in open_clip
        self,
        image_features: Tensor,
        text_features: Tensor,
        logits: Tensor,
        labels: Tensor,
        logit_scale: float | Tensor,
        output_dict: bool = False,
    ) -> tuple[Tensor, Tensor] | dict[str, Tensor]:
        """Returns both losses, times their weights."""
        clip_loss = torch.tensor(0, device=logits.device)
        if self.clip_loss_weight:
            contrastive = super().forward(image_features, text_features, logit_scale)
            assert isinstance(contrastive, Tensor)
            clip_loss = self.clip_loss_weight * contrastive
        caption_loss = self.caption_loss_weight * self.caption_loss(logits.permute(0, 2, 1), labels)
        return (
            {"contrastive_loss": clip_loss, "caption_loss": caption_loss} if output_dict else (clip_loss, caption_loss)
        )


class DistillClipLoss(ClipLoss):
    """`ClipLoss`, and the cross-entropy between the softmaxes of a teacher and of the student in both directions.

    D = mean_i ½ (H(p_i, q_i) + H(p'_i, q'_i)),  q_i = softmax_j s_ij of a student's image and all texts, p_i likewise of the
    teacher, p' and q' of a text and all images. Equal to ``open_clip.DistillClipLoss`` in value and gradients; the flags have
    the meaning that they have in `ClipLoss`, for both losses. Memory is linear in the batch.

    Args:
        local_loss, gather_with_grad, cache_labels, rank, world_size, use_horovod: as in `ClipLoss`.

    Shape:
        image_features, text_features, logit_scale: of the student, as in `ClipLoss`.
        dist_image_features, dist_text_features: of the teacher, [N, E].
        dist_logit_scale: of the teacher.
        output: (contrastive loss, distillation loss), or a dict of both with ``output_dict``.

    Deviation: the teacher gets no gradient; as for `ClipLoss`.
    """

    def forward(  # type: ignore[override]  # as in open_clip
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: float | Tensor,
        dist_image_features: Tensor,
        dist_text_features: Tensor,
        dist_logit_scale: float | Tensor,
        output_dict: bool = False,
    ) -> tuple[Tensor, Tensor] | dict[str, Tensor]:
        """Returns both losses."""
        taught = (
            unit_rows(f"dist_{name}", each.detach(), normalize=False)
            for name, each in zip(NAMES, (dist_image_features, dist_text_features), strict=True)
        )
        rows = dict(zip(NAMES, taught, strict=True))
        teacher_scale = one_element("dist_logit_scale", dist_logit_scale)
        teacher_scale = teacher_scale.detach() if isinstance(teacher_scale, Tensor) else teacher_scale

        def one(
            names: tuple[str, str],
            queries: Tensor,
            keys: Tensor,
            scale: float | Tensor,
            group: dist.ProcessGroup | None,
        ) -> Tensor:
            query = unit_rows(names[0], queries, normalize=False)
            key = unit_rows(names[1], keys, normalize=False, like=queries)
            student = Similarity(query, key, scale=scale, half=queries.dtype, group=group)
            teacher = Similarity(rows[names[0]], rows[names[1]], scale=teacher_scale, group=group)
            return reduced_over(group, student.cross_entropy(teacher), "mean", student.number_of_keys)

        def both(images: Tensor, texts: Tensor, scale: float | Tensor, group: dist.ProcessGroup | None) -> Tensor:
            return (one(NAMES, images, texts, scale, group) + one(NAMES[::-1], texts, images, scale, group)) / 2

        contrastive = super().forward(image_features, text_features, logit_scale)
        assert isinstance(contrastive, Tensor)
        scale = one_element("logit_scale", logit_scale)
        distilled = self._over_processes(both, one, image_features, text_features, scale)
        return {"contrastive_loss": contrastive, "distill_loss": distilled} if output_dict else (contrastive, distilled)


class SigLipLoss(nn.Module):
    """L = mean_i Σ_j softplus(−z_ij s_ij),  s_ij = scale·x_i·y_j + bias,  z_ij = 2 [i = j] − 1   (SigLIP, Zhai et al., 2023)

    x are ``image_features``, y ``text_features``, of unit length as the models of open_clip return them (they are not
    normalized here). Equal to ``open_clip.SigLipLoss`` in value and gradients: each
    process returns the mean over its images against the texts of all processes, and the gradients that other processes have
    for its texts are added to its own, so that averaging over processes, as DistributedDataParallel does, gives the exact
    gradient.

    Args:
        cache_labels: without effect; there are no labels to cache.
        rank, world_size: as in torch.distributed; ``world_size=1`` restricts the loss to this process.
        dist_impl: ``"bidir"``, ``"shift"``, ``"reduce"`` or ``"gather"``; None is ``"bidir"``. Without effect: all four give
            the same result in open_clip, and here the number of texts decides how they are exchanged (one message up to
            2²⁰ elements, else around a ring).
        chunk_size: without effect; memory is linear in the batch in any case. At least 0.

    Shape:
        image_features, text_features: [N, D].
        logit_scale, logit_bias: a number, or a tensor with one element, which gets its gradient.
        output: scalar, or ``{"contrastive_loss": scalar}`` with ``output_dict``.

    Deviation: as for `ClipLoss`.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it.
        RuntimeError: ``world_size`` above 1 without a process group.

    >>> SigLipLoss()(torch.eye(2), torch.eye(2), 2.0, -1.0)  # 2 log(1 + 1/e)
    tensor(0.6265)
    """

    def __init__(
        self,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        dist_impl: str | None = None,
        chunk_size: int = 0,
    ) -> None:
        super().__init__()
        self.cache_labels = checked_flag("cache_labels", cache_labels)
        self.rank, self.world_size = checked_place(rank, world_size)
        self.dist_impl = choice("bidir", "shift", "reduce", "gather")("dist_impl", dist_impl or "bidir")
        self.chunk_size = checked_whole("chunk_size", chunk_size, at_least=0)

    def get_ground_truth(
        self, device: torch.device, dtype: torch.dtype, num_logits: int, negative_only: bool = False
    ) -> Tensor:
        """Returns z, [num_logits, num_logits]: 1 on the diagonal unless ``negative_only``, −1 elsewhere."""
        labels = -torch.ones(num_logits, num_logits, device=device, dtype=dtype)
        return labels if negative_only else labels.fill_diagonal_(1)

    def get_logits(
        self, image_features: Tensor, text_features: Tensor, logit_scale: Any, logit_bias: Any = None
    ) -> Tensor:
        """Returns the stored logits of this process's images and the given texts, [N, M]; `forward` does not call this."""
        logits: Tensor = logit_scale * image_features @ text_features.T
        return logits if logit_bias is None else logits + logit_bias

    def _loss(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: float | Tensor,
        logit_bias: float | Tensor | None = None,
        negative_only: bool = False,
    ) -> Tensor:
        """The loss of this process's images and the given texts; with ``negative_only`` no text belongs to an image."""
        scale, bias = scale_and_bias(logit_scale, logit_bias)
        if not negative_only:
            return each_pair(image_features, text_features, scale, bias, None)
        images = unit_rows(NAMES[0], image_features, normalize=False)
        texts = unit_rows(NAMES[1], text_features, normalize=False, like=image_features)
        bias = bias.to(images.dtype) if isinstance(bias, Tensor) else bias
        similarity = Similarity(images, texts, scale=scale, half=image_features.dtype)
        return similarity.softplus("all", bias=bias).mean()

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: float | Tensor,
        logit_bias: float | Tensor | None,
        output_dict: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        """Returns the loss.

        Args:
            image_features, text_features: embeddings of unit length; row i of both is a pair.
            logit_scale: such as ``model.logit_scale.exp()``.
            logit_bias: None for 0.
            output_dict: return ``{"contrastive_loss": loss}``.
        """
        scale, bias = scale_and_bias(logit_scale, logit_bias)
        loss = each_pair(image_features, text_features, scale, bias, group_of(self.rank, self.world_size))
        return {"contrastive_loss": loss} if output_dict else loss


def both_directions(images: Tensor, texts: Tensor, scale: float | Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """InfoNCE from images to texts and back, the mean over the pairs of this process."""
    n = len(images)
    rows = paired_rows(NAMES, images, texts, normalize=False).view(2, n, -1)
    similarity = Similarity(*rows.unbind(), scale=scale, instances=n, half=images.dtype, group=group)
    warn_single(similarity)
    positives = similarity.scale * paired_products(rows)
    return reduced_over(group, similarity.contrast(positives, both=True), "mean", similarity.number_of_keys)


def one_direction(
    names: tuple[str, str], queries: Tensor, keys: Tensor, scale: float | Tensor, group: dist.ProcessGroup | None
) -> Tensor:
    """InfoNCE from queries to keys, the mean over the queries of this process."""
    n = len(queries)
    query = unit_rows(names[0], queries, normalize=False)
    key = unit_rows(names[1], keys, normalize=False, like=queries)
    similarity = Similarity(query, key, scale=scale, instances=n, half=queries.dtype, group=group)
    warn_single(similarity)
    return reduced_over(group, similarity.contrast(similarity.positives()), "mean", similarity.number_of_keys)


def each_pair(
    images: Tensor, texts: Tensor, scale: float | Tensor, bias: float | Tensor, group: dist.ProcessGroup | None
) -> Tensor:
    """The sigmoid loss, the mean over the images of this process."""
    n = len(images)
    rows = paired_rows(NAMES, images, texts, normalize=False).view(2, n, -1)
    similarity = Similarity(*rows.unbind(), scale=scale, instances=n, half=images.dtype, group=group)
    warn_single(similarity)
    bias = bias.to(rows.dtype) if isinstance(bias, Tensor) else bias  # once, so that its gradient is rounded once
    attraction = softplus(-(similarity.scale * paired_products(rows) + bias), threshold=50)
    losses = similarity.softplus("negatives", bias=bias) + attraction
    return reduced_over(group, losses, "mean", similarity.number_of_keys)


def warn_single(similarity: Similarity) -> None:
    """Issues a `CoulombWarning` for a single pair in all processes, which has no negatives."""
    if similarity.number_of_keys == 1:
        warn_counted(1, 1, NO_NEGATIVE)


def weakened(rows: Tensor, factor: int) -> Tensor:
    """Returns ``rows``, whose gradient is divided by ``factor``."""
    kept = rows.detach()
    return kept + (rows - kept) / factor


def one_element(name: str, value: float | Tensor) -> float | Tensor:
    """Returns a number, or a tensor with one element as a 0-dim tensor with its gradient."""
    if isinstance(value, Tensor) and value.ndim and value.numel() == 1:
        value = value.reshape(())
    return checked_parameter(name, value)


def scale_and_bias(
    logit_scale: float | Tensor, logit_bias: float | Tensor | None
) -> tuple[float | Tensor, float | Tensor]:
    """Returns both, checked; the bias is 0 if it is None."""
    return one_element("logit_scale", logit_scale), 0.0 if logit_bias is None else one_element("logit_bias", logit_bias)


def checked_place(rank: int, world_size: int) -> tuple[int, int]:
    """Returns (rank, world_size) with 0 ≤ rank < world_size; else raises an error that names them."""
    rank, world_size = checked_whole("rank", rank, at_least=0), checked_whole("world_size", world_size)
    if rank >= world_size:
        raise ValueError(f"rank={rank}: must be below world_size={world_size}")
    return rank, world_size


def group_of(rank: int, world_size: int) -> dist.ProcessGroup | None:
    """Returns the group of all processes, None for one process.

    Raises:
        RuntimeError: there is no process group.
        ValueError: torch.distributed has another rank or number of processes.
    """
    if world_size == 1:
        return None
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"world_size={world_size}, but torch.distributed is not initialized: call init_process_group first, or use "
            "world_size=1"
        )
    if (rank, world_size) != (found := (dist.get_rank(), dist.get_world_size())):
        raise ValueError(
            f"rank={rank}, world_size={world_size}, but torch.distributed has rank {found[0]} of {found[1]}; pass "
            "torch.distributed.get_rank() and get_world_size()"
        )
    return dist.group.WORLD
