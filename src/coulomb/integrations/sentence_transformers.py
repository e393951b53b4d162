"""Losses of sentence-transformers with the same constructors, values and gradients, computed by `coulomb.losses`.

    from coulomb.integrations.sentence_transformers import CachedMultipleNegativesRankingLoss

instead of ``from sentence_transformers.losses import …`` is all that changes: `SentenceTransformerTrainer`, its model cards
and `MatryoshkaLoss` around these losses work as before. The scores are never stored, so the memory of the loss is linear in
the batch whatever ``mini_batch_size`` is, which only bounds the memory of the encoder. Embedding, mini-batches by tokens,
replay of dropout and one exchange of gradients per step are inherited from sentence-transformers 6.2 or newer.

What differs: scores and loss are in fp32 even if the embeddings are in half precision, as under autocast; processes may
have batches of different sizes; NaN or infinite embeddings raise ValueError; ``similarity_fct`` is the cosine or the dot
product.
"""

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb import losses
from coulomb.losses.inputs import paired_products, paired_rows, unit_rows
from coulomb.losses.joint_infonce import JointInfoNCELoss, joined
from coulomb.losses.negatives import reduced_over, summed_over
from coulomb.similarity import Guide, Similarity
from coulomb.similarity.collectives import gather_group

try:
    import sentence_transformers
    from packaging.version import Version
    from sentence_transformers import SentenceTransformer, SimilarityFunction, util
    from sentence_transformers.base.losses import CachedLossMixin
    from sentence_transformers.sentence_transformer import losses as peer
except ImportError as error:
    raise ImportError(
        f"coulomb.integrations.sentence_transformers: {error}; pip install 'coulomb[integrations]' for sentence-transformers "
        "6.2 or newer"
    ) from error
if Version(sentence_transformers.__version__) < Version("6.2"):
    raise ImportError(
        f"coulomb.integrations.sentence_transformers: sentence-transformers {sentence_transformers.__version__} exchanges "
        "gradients in every mini-batch; pip install 'sentence-transformers>=6.2'"
    )

__all__ = [
    "CachedGISTEmbedLoss",
    "CachedMultipleNegativesRankingLoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "SupConLoss",
]

Features = Iterable[dict[str, Tensor]]
COSINE, DOT = (util.cos_sim, util.pytorch_cos_sim), (util.dot_score,)


class _Whole:
    """A loss of all embeddings by a loss of `coulomb.losses`, which `MatryoshkaLoss` may give several prefixes of them."""

    prefixes: tuple[Sequence[int], Sequence[float]] | None = (
        None  # lengths and weights, while `MatryoshkaLoss` calls it
    )

    def value(self, formula: losses.options.Loss, *arguments: Tensor | None) -> Tensor:
        """Returns the loss, of each prefix if there are several, summed with their weights."""
        formula = formula if self.prefixes is None else losses.MatryoshkaLoss(formula, *self.prefixes)
        loss: Tensor = formula(*arguments)
        return loss


class MultipleNegativesRankingLoss(_Whole, peer.MultipleNegativesRankingLoss):
    """InfoNCE of anchors, positives and any number of hard negatives, as of sentence-transformers, by `JointInfoNCELoss`.

    Columns: anchor, positive, then hard negatives. No labels.

    Args:
        model, scale, similarity_fct, directions, partition_mode, hardness_mode, hardness_strength: as in
            sentence-transformers; ``similarity_fct`` is ``util.cos_sim``, ``util.dot_score``, or ``model.similarity`` of one.
        gather_across_devices: compare with the batches of all processes; on one process it changes nothing.

    Raises:
        ValueError: an argument is invalid, or ``similarity_fct`` is another function.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        is_cosine(self.similarity_fct)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Returns the loss of the embeddings of each column, [N, D] each."""
        return self.value(ranking_loss(self), *ranked(embeddings))


class _Cached(_Whole, CachedLossMixin):
    """A loss of all embeddings, whose gradient for them is cached."""

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Returns the loss of the embeddings of each column, in mini-batches; ``with_backward`` adds their gradients."""
        loss = self.loss_of([torch.cat(each) for each in reps], labels)
        if with_backward:
            loss.backward()
        return loss.detach() if with_backward else loss

    def loss_of(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Returns the loss of the embeddings of each column, [N, D] each."""
        raise NotImplementedError


class CachedMultipleNegativesRankingLoss(_Cached, peer.CachedMultipleNegativesRankingLoss):
    """`MultipleNegativesRankingLoss` with gradient caching: the encoder needs the memory of one mini-batch.

    Columns: anchor, positive, then hard negatives. No labels.

    Args:
        model, scale, similarity_fct, directions, partition_mode, hardness_mode, hardness_strength, gather_across_devices: as
            in `MultipleNegativesRankingLoss`.
        mini_batch_size: rows that the encoder takes at a time.
        mini_batch_num_tokens: tokens that it takes at a time, instead.
        show_progress_bar: over the mini-batches.

    Raises:
        ValueError: an argument is invalid, ``similarity_fct`` is another function, or the model is a StaticEmbedding.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        is_cosine(self.similarity_fct)

    def loss_of(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Returns the loss of the embeddings of each column, [N, D] each."""
        return self.value(ranking_loss(self), *ranked(embeddings))


class CachedGISTEmbedLoss(peer.CachedGISTEmbedLoss):
    """InfoNCE without negatives that a guide finds more similar than the positive (Solatorio, 2024), with gradient caching.

    Columns: anchor, positive, then hard negatives. No labels. A pair is left out if the guide's similarity is at or above that
    of the anchor and its positive, less the margin.

    Args:
        model, guide, temperature, mini_batch_size, mini_batch_num_tokens, show_progress_bar, margin_strategy, margin,
            contrast_anchors, contrast_positives: as in sentence-transformers.
        gather_across_devices: compare with the batches of all processes, anchors with anchors as well; on one process it
            changes nothing.

    Deviation: a pair exactly at the limit, such as the same text twice, is left out, and so is every row with itself;
    sentence-transformers leaves them to rounding. There, anchors are not gathered across processes; here they are.

    Raises:
        ValueError: an argument is invalid, or the model is a StaticEmbedding.
    """

    def calculate_loss(
        self, reps: list[list[Tensor]], reps_guided: list[list[Tensor]], *, with_backward: bool = False
    ) -> Tensor:
        """Returns the loss of the embeddings of each column by the model and by the guide, in mini-batches."""
        if len(reps) != len(reps_guided):
            raise ValueError(
                f"reps and reps_guided must have equally many columns, got {len(reps)} and {len(reps_guided)}"
            )
        loss = self.loss_of([torch.cat(each) for each in reps], [torch.cat(each) for each in reps_guided])
        if with_backward:
            loss.backward()
        return loss.detach() if with_backward else loss

    def loss_of(self, embeddings: list[Tensor], guides: list[Tensor]) -> Tensor:
        """Returns the loss of the embeddings of each column by the model, [N, D] each, and by the guide, [N, E] each."""
        n, group = len(embeddings[0]), gather_group(across(self.gather_across_devices))
        rows = paired_rows(("anchor", "positive"), *embeddings[:2], normalize=True).view(2, n, -1)
        products, (anchor, positive) = paired_products(rows), rows.unbind()
        hard = [unit_rows("negative", each, normalize=True, like=anchor) for each in embeddings[2:]]
        guides = [unit_rows("guide", each.detach(), normalize=True) for each in guides]
        least = (guides[0] * guides[1]).sum(1)
        least = least - self.margin * (1 if self.margin_strategy == "absolute" else least.abs())
        documents, seen = torch.cat([positive, *hard]), torch.cat(guides[1:])
        options: dict[str, Any] = {
            "scale": 1 / self.temperature,
            "unit": True,
            "half": embeddings[0].dtype,
            "group": group,
        }

        within = []
        if self.contrast_anchors:
            within.append(Similarity(anchor, instances=n, guide=Guide(guides[0], None, least), **options))
        if self.contrast_positives:
            within.append(Similarity(positive, instances=n, guide=Guide(guides[1], None, least), **options))
        main = Similarity(anchor, documents, instances=len(documents), guide=Guide(guides[0], seen, least), **options)
        loss = joined(products / self.temperature, [one.lse("negatives") for one in within], main)
        anchors = n if group is None else int(summed_over(group, torch.tensor(n, device=loss.device)))
        return reduced_over(group, loss, "mean", anchors)


class SupConLoss(_Cached, nn.Module):
    """SupCon for sentence-transformers (Khosla et al., 2020), by `coulomb.losses.SupConLoss`: texts of a label are positives.

    Columns: one text or several of each sample, which are positives of each other; ``label``, a whole number, −1 for unknown.
    Use ``BatchSamplers.GROUP_BY_LABEL``, so that each batch has several samples of a label.

    Args:
        model: a SentenceTransformer.
        temperature: τ; 0.07 as in the authors' code.
        mini_batch_size: None, or rows that the encoder takes at a time, with gradient caching.
        mini_batch_num_tokens: tokens that it takes at a time, instead.
        show_progress_bar: over the mini-batches.
        gather_across_devices: compare with the batches of all processes; on one process it changes nothing.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.07,
        mini_batch_size: int | None = None,
        mini_batch_num_tokens: int | None = None,
        show_progress_bar: bool = False,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("mini_batch_size", mini_batch_size), ("mini_batch_num_tokens", mini_batch_num_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or None, got {value}")
        self.model = model
        self.formula = losses.SupConLoss(temperature, gather=across(gather_across_devices))
        self.uses_gradient_cache = mini_batch_size is not None or mini_batch_num_tokens is not None
        self.mini_batch_size, self.mini_batch_num_tokens = mini_batch_size or 1, mini_batch_num_tokens
        self.show_progress_bar, self.gather_across_devices = show_progress_bar, gather_across_devices

    def forward(self, sentence_features: Features, labels: Tensor) -> Tensor:
        """Returns the loss of a batch of columns with labels [N]."""
        if self.uses_gradient_cache:
            loss: Tensor = self.forward_cached(sentence_features, labels)
            return loss
        return self.loss_of([self.model(features)["sentence_embedding"] for features in sentence_features], labels)

    def loss_of(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Returns the loss of the embeddings of each column, [N, D] each."""
        return self.value(self.formula, torch.stack(embeddings, 1), labels)

    @property
    def temperature(self) -> float:
        """τ."""
        return float(self.formula.temperature)  # type: ignore[arg-type]  # a number, by the constructor

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the options for a model card."""
        cached = self.uses_gradient_cache and self.mini_batch_num_tokens is None
        return {
            "temperature": self.temperature,
            "mini_batch_size": self.mini_batch_size if cached else None,
            "mini_batch_num_tokens": self.mini_batch_num_tokens,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX for a model card."""
        return """
@inproceedings{khosla2020supervised,
    title={Supervised Contrastive Learning},
    author={Prannay Khosla and Piotr Teterwak and Chen Wang and Aaron Sarna and Yonglong Tian and Phillip Isola and Aaron Maschinot and Ce Liu and Dilip Krishnan},
    booktitle={Advances in Neural Information Processing Systems},
    year={2020},
    eprint={2004.11362},
    archivePrefix={arXiv},
    primaryClass={cs.LG}
}
"""  # noqa: E501


class MatryoshkaLoss(peer.MatryoshkaLoss):
    """The weighted sum of a loss over prefixes of the embeddings, as of sentence-transformers (Kusupati et al., 2022).

    `MultipleNegativesRankingLoss`, its cached form and `SupConLoss` of this module take all prefixes in one call of
    `coulomb.losses.MatryoshkaLoss`, which needs one pass over the similarities where it can. All other losses, and classes
    derived from these, are called for one prefix after another by sentence-transformers.

    Args:
        model, matryoshka_dims, matryoshka_weights, n_dims_per_step: as in sentence-transformers; the prefixes of a step are
            drawn by the same random numbers.
        loss: any loss of sentence-transformers or of this module.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(self, model: SentenceTransformer, loss: nn.Module, *arguments: Any, **options: Any) -> None:
        one_call = type(loss) in WHOLE and "calculate_loss" not in vars(loss)
        super().__init__(model, loss, *arguments, **options)
        self.one_call = one_call
        if one_call:  # take off the loop over prefixes that sentence-transformers has put around it
            vars(loss).pop("calculate_loss", None)

    def forward(self, sentence_features: Features, labels: Tensor) -> Tensor:
        """Returns the loss of a batch of columns."""
        if not self.one_call:
            loss: Tensor = super().forward(sentence_features, labels)
            return loss
        chosen: Sequence[int] = range(len(self.matryoshka_dims))
        if 0 < self.n_dims_per_step < len(chosen):
            chosen = random.sample(chosen, self.n_dims_per_step)
        inner: Any = self.loss
        inner.prefixes = [self.matryoshka_dims[k] for k in chosen], [self.matryoshka_weights[k] for k in chosen]
        try:
            loss = inner(sentence_features, labels)
        finally:
            inner.prefixes = None
        return loss


WHOLE = (MultipleNegativesRankingLoss, CachedMultipleNegativesRankingLoss, SupConLoss)


def ranking_loss(options: Any) -> JointInfoNCELoss:
    """Returns the loss of anchors, positives and hard negatives, given an object with the options."""
    cosine = is_cosine(options.similarity_fct) or options.prefixes is not None  # prefixes always have unit length
    return JointInfoNCELoss(
        1 / options.scale,
        directions=options.directions,
        partition_mode=options.partition_mode,
        hardness_mode=options.hardness_mode,
        hardness_strength=options.hardness_strength,
        normalize=cosine,
        gather=across(options.gather_across_devices),
    )


def ranked(embeddings: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns anchors [N, D], positives [N, D] and hard negatives [N, K, D] from the embeddings of each column."""
    if len(embeddings) < 2:
        raise ValueError(f"the columns must be at least 2, anchor and positive, got {len(embeddings)}")
    query, positive, *negatives = embeddings
    return query, positive, torch.stack(negatives, 1) if negatives else None


def across(devices: bool) -> bool | str:
    """Returns ``gather`` of a loss for ``gather_across_devices``."""
    return "auto" if devices else False


def is_cosine(similarity_fct: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Returns True for the cosine and False for the dot product, also as ``model.similarity`` of a model that uses it.

    Raises:
        ValueError: another function.
    """
    function: Any = similarity_fct
    while isinstance(function, functools.partial) and not function.args and not function.keywords:
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and getattr(function, "__name__", "") == "similarity" and hasattr(owner, "similarity_fn_name"):
        function = SimilarityFunction.to_similarity_fn(owner.similarity_fn_name)
    if function in COSINE or function in DOT:
        return function in COSINE
    raise ValueError(
        f"similarity_fct={util.similarity_fct_name(similarity_fct)}: must be util.cos_sim or util.dot_score; for another "
        "function use the loss of sentence_transformers"
    )
