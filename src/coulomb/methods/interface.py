"""The interface of a method, and what most methods share: a projection head, embeddings of all views, labeled rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, nn

from coulomb.ground.checked import warn
from coulomb.ground.errors import InputError
from coulomb.models import Encoder, projection_head
from coulomb.models.classifier import Classifier


@dataclass(frozen=True)
class Traits:
    """The properties of a method that decide which figures of a run are normal; the doctor's rules use them.

    Args:
        negatives: repels negatives, weighted by a temperature.
        momentum: has a momentum encoder.
        queue: may keep keys of past batches.
        classifier: its head is a classifier, whose output length is its confidence.
        floor: how far below ``no_signal`` the loss can fall: ``"instances"``, ``"classes"`` (images of the class stay in
            the denominator), ``"decoupled"`` (1/τ below ``no_signal``), or ``"zero"``.
        ceiling: a loss above ``no_signal`` is worse than the loss for constant embeddings. False with a margin, which raises
            the loss of all but very certain predictions.
        normalized: its loss does not depend on the length of the embeddings.
    """

    negatives: bool = False
    momentum: bool = False
    queue: bool = False
    classifier: bool = False
    floor: str = "instances"
    ceiling: bool = True
    normalized: bool = True


class Method(nn.Module):
    """A way of training: a module whose ``forward`` takes the views of a batch and returns the loss.

    Only ``forward`` and ``encoder`` (the module that is exported) are required. A class of your own may derive from
    `torch.nn.Module` directly: the defaults below are added to it.

    ``__init__(self, encoder, *, …)`` receives, by name, the keyword arguments that it declares: the options of every run
    (``temperature``, ``embedding_dim``, ``head_layers``, ``head_hidden_dim``, ``seed``), facts about the training images
    (``num_images``, ``class_counts`` [C], ``num_classes``), and its own options, from ``--option NAME=VALUE`` or the default.

    State such as a queue, an average or a counter belongs in buffers, or in parameters without gradient: they are saved in
    the checkpoint. A module ``head`` (features → embeddings) is optional; its outputs are monitored during training.

    Attributes:
        needs_labels: True if training requires labels; data without any label are then refused.
        labeled_only: True if images without a label are left out of training.
        two_stages: True if a linear classifier on the frozen encoder is trained afterwards.
        local_mean: with several processes: True if ``forward`` returns a plain mean over the images of this process, False if
            it weights this mean by the share of the process in all images, as the losses with ``gather`` do; None if that is
            not known, and batches that do not divide evenly among processes are then refused.
        constant_lr: names of submodules whose learning rate does not follow the schedule.
        traits: properties of coulomb's methods that the doctor uses; traits of a user's method are not read.
    """

    needs_labels: ClassVar[bool] = False
    labeled_only: ClassVar[bool] = False
    two_stages: ClassVar[bool] = False
    local_mean: ClassVar[bool | None] = None
    constant_lr: ClassVar[tuple[str, ...]] = ()
    traits: ClassVar[Traits] = Traits()

    def after_batch(self) -> None:
        """Called after the backward pass of every batch, for example to fill a queue."""

    def after_update(self, progress: float) -> None:
        """Called after every optimizer step; ``progress`` is the completed fraction of the run."""

    def no_signal(self, batch: int, views: int) -> float | None:
        """Returns the loss when embeddings carry no information, for ``batch`` images in all processes; None if unknown."""
        return None

    def floor(self, batch: int, views: int) -> float | None:
        """Returns the smallest loss that any embeddings can reach, or None if unknown."""
        return None

    def figures(self) -> dict[str, float]:
        """Returns additional numbers for the lines of ``metrics.jsonl``."""
        return {}

    def classifier(self) -> Classifier | None:
        """Returns the classifier to save with the run, if the method trains one."""
        return None


class HeadOptions(TypedDict, total=False):
    """Options of the projection head; defaults are in ``default_head`` of each method."""

    embedding_dim: int
    head_layers: int
    head_hidden_dim: int | None


class ProjectionMethod(Method):
    """A method with a projection head: by default the loss is ``criterion(embeddings of view 0, embeddings of view 1, …)``.

    A subclass sets ``criterion``, and where it differs ``default_head``, the range of views and ``no_signal``.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        seed: seed of the head's initial weights.
        batch_norm, last_batch_norm, last_scale: see `coulomb.models.projection_head`.
        embedding_dim, head_layers, head_hidden_dim: options of the head, over ``default_head``; a hidden width of None is
            the feature width.
    """

    default_head: ClassVar[HeadOptions] = {"embedding_dim": 128, "head_layers": 2, "head_hidden_dim": None}
    least_views: int = 2
    most_views: int | None = None
    criterion: Any

    def __init__(
        self,
        encoder: Encoder,
        *,
        seed: int = 0,
        batch_norm: bool = True,
        last_batch_norm: bool = False,
        last_scale: bool = True,
        **head: Unpack[HeadOptions],
    ):
        super().__init__()
        if unknown := set(head) - HeadOptions.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        options = ProjectionMethod.default_head | self.default_head | head
        self.encoder = encoder
        self.embedding_dim, hidden_dim = options["embedding_dim"], options["head_hidden_dim"]
        self.head_options: dict[str, Any] = {
            "layers": options["head_layers"],
            "hidden_dim": hidden_dim,
            "batch_norm": batch_norm,
        }
        self.head = projection_head(
            encoder.feature_dim,
            out_dim=self.embedding_dim,
            **self.head_options,
            last_batch_norm=last_batch_norm,
            last_scale=last_scale,
            seed=seed,
        )

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar; ``views`` is a list of V tensors [B, C, H, W]."""
        loss: Tensor = self.criterion(*self.embed(views).chunk(len(views)))
        return loss

    def embed(self, views: list[Tensor]) -> Tensor:
        """Returns the embeddings of all views, [V·B, D], from one forward pass, so that they share the batch statistics."""
        self.check_views(views)
        embeddings: Tensor = self.head(self.encoder(torch.cat(views)))
        return embeddings

    def check_views(self, views: Sequence[Tensor]) -> None:
        """Raises `InputError` if the number of views is outside the method's range."""
        most = math.inf if self.most_views is None else self.most_views
        if not self.least_views <= len(views) <= most:
            wanted = f"exactly {self.least_views}" if most == self.least_views else f"at least {self.least_views}"
            raise InputError(f"n_views={len(views)}: {type(self).__name__} needs {wanted}")

    def network(self) -> nn.Sequential:
        """Returns encoder and head as one module, of which a momentum encoder is the average."""
        return nn.Sequential(self.encoder, self.head)


def equal_embeddings_loss(batch: int, views: int) -> float:
    """Returns ln(V·N − 1), the loss of a softmax over all other views of the batch when all embeddings are equal."""
    return math.log(max(batch * views - 1, 1))


def pair_views(first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Concatenates ``first[i]`` and ``second[j]`` [B, D] over all ordered pairs of different views: [P·B, D] each."""
    pairs = [(x, y) for i, x in enumerate(first) for j, y in enumerate(second) if i != j]
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def labeled_rows(rows: Tensor, labels: Tensor, views: int) -> tuple[Tensor, Tensor]:
    """Selects the rows [V·B, …] of all views whose label [B] is known (not −1); returns them with their labels."""
    repeated = labels.repeat(views)
    return rows[repeated >= 0], repeated[repeated >= 0]


def positive_counts(class_counts: Tensor) -> Tensor:
    """Returns ``class_counts`` [C] with 1 for classes without training images, which a `CoulombWarning` counts."""
    missing = int((class_counts <= 0).sum())
    if missing:
        warn(f"{missing} of {len(class_counts)} classes have no training image: each is counted as one image")
    return class_counts.clamp_min(1)
