"""The interface of a method, and what most methods share: one tower, embeddings of all views, labeled rows."""

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from coulomb.ground.checked import warn
from coulomb.ground.errors import InputError
from coulomb.models import Encoder, Tower, ViewRows
from coulomb.models.classifier import Classifier


@dataclass(frozen=True)
class Traits:
    """The properties of a method that decide which figures of a run are normal; the doctor's rules use them.

    Args:
        negatives: repels negatives, weighted by a temperature.
        momentum: has a momentum encoder.
        queue: may keep keys of past batches.
        classifier: its head is a classifier, whose output length is its confidence.
        floor: how far below ``no_signal`` the loss can fall: ``"instances"``, ``"classes"`` (samples of the class stay in
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

    Only ``forward`` and ``tower`` (encoder and head of the column that is learned) are required. A class of your own may
    derive from `torch.nn.Module` directly: the defaults below are added to it.

    ``__init__(self, tower, *, …)`` receives a `coulomb.models.Tower` and, by name, the keyword arguments that it declares:
    options of every run (``temperature``, ``seed``), facts about the training samples (``num_images``, ``class_counts`` [C],
    ``num_classes``), and its own options, from ``--option NAME=VALUE`` or the default. The options ``embedding_dim``,
    ``head_layers`` and ``head_hidden_dim`` are in the tower's head.

    ``forward(self, views, labels, train_row)`` receives the views as rows by column (`coulomb.models.ViewRows`), the labels
    [N] (−1: unknown) or None, and the places [N] of the samples among the training samples.

    State such as a queue, an average or a counter belongs in buffers, or in parameters without gradient: they are saved in
    the checkpoint. The outputs of the tower's head are monitored during training.

    Attributes:
        tower: encoder and head. The encoder is evaluated and exported.
        default_head: options of the head where they differ from the defaults of `coulomb.models.Tower`; those of the run
            come first. None for no head: embeddings are then the features.
        needs_labels: True if training requires labels; data without any label are then refused.
        labeled_only: True if samples without a label are left out of training.
        two_stages: True if a linear classifier on the frozen encoder is trained afterwards.
        local_mean: with several processes: True if ``forward`` returns a plain mean over the samples of this process, False
            if it weights this mean by the share of the process in all samples, as the losses with ``gather`` do; None if that
            is not known, and batches that do not divide evenly among processes are then refused.
        constant_lr: names of submodules whose learning rate does not follow the schedule.
        traits: properties of coulomb's methods that the doctor uses; traits of a user's method are not read.
    """

    default_head: ClassVar[dict[str, Any] | None] = {}
    needs_labels: ClassVar[bool] = False
    labeled_only: ClassVar[bool] = False
    two_stages: ClassVar[bool] = False
    local_mean: ClassVar[bool | None] = None
    constant_lr: ClassVar[tuple[str, ...]] = ()
    traits: ClassVar[Traits] = Traits()
    tower: Tower

    @classmethod
    def tower_for(cls, encoder: Encoder, **options: Any) -> Tower:
        """Returns a tower with the method's head; ``options``: those of `coulomb.models.Tower`, over ``default_head``."""
        if cls.default_head is None:
            return Tower(encoder, head_layers=0)
        return Tower(encoder, **cls.default_head | options)

    def after_batch(self) -> None:
        """Called after the backward pass of every batch, for example to fill a queue."""

    def after_update(self, progress: float) -> None:
        """Called after every optimizer step; ``progress`` is the completed fraction of the run."""

    def no_signal(self, batch: int, views: int) -> float | None:
        """Returns the loss when embeddings carry no information, for ``batch`` samples in all processes; None if unknown."""
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


class OneColumn(Method):
    """A method of one tower: by default the loss is ``criterion(embeddings of view 0, embeddings of view 1, …)``.

    A subclass sets ``criterion``, and where it differs ``default_head``, the range of views and ``no_signal``.

    Args:
        tower: encoder and head of the column.
    """

    least_views: int = 2
    most_views: int | None = None
    criterion: Any

    def __init__(self, tower: Tower):
        super().__init__()
        self.tower = tower

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar."""
        loss: Tensor = self.criterion(*views.split(self.embed(views)))
        return loss

    def embed(self, views: ViewRows) -> Tensor:
        """Returns the embeddings of all views, [V·N, D], from one forward pass, so that they share the batch statistics."""
        embeddings: Tensor = self.tower(self.rows(views))
        return embeddings

    def rows(self, views: ViewRows) -> Any:
        """Returns the views of the tower's column, [V·N, …]; raises `InputError` if V is outside the method's range."""
        rows = views[self.tower.column]
        count, most = len(rows) // max(views.instances, 1), math.inf if self.most_views is None else self.most_views
        if views.instances and not self.least_views <= count <= most:
            wanted = f"exactly {self.least_views}" if most == self.least_views else f"at least {self.least_views}"
            raise InputError(f"n_views={count}: {type(self).__name__} needs {wanted}")
        return rows


def equal_embeddings_loss(batch: int, views: int) -> float:
    """Returns ln(V·N − 1), the loss of a softmax over all other views of the batch when all embeddings are equal."""
    return math.log(max(batch * views - 1, 1))


def pair_views(first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Concatenates ``first[i]`` and ``second[j]`` [N, D] over all ordered pairs of different views: [P·N, D] each."""
    pairs = [(x, y) for i, x in enumerate(first) for j, y in enumerate(second) if i != j]
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def labeled_rows(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Selects the rows [V·N, …] of all views whose label [N] is known (not −1); returns them with their labels."""
    repeated = for_rows(labels, rows)
    return rows[repeated >= 0], repeated[repeated >= 0]


def for_rows(values: Tensor, rows: Sized) -> Tensor:
    """Repeats labels or train rows [N] for the rows [V·N, …] of all views."""
    return values.repeat(len(rows) // max(len(values), 1))


def positive_counts(class_counts: Tensor) -> Tensor:
    """Returns ``class_counts`` [C] with 1 for classes without training images, which a `CoulombWarning` counts."""
    missing = int((class_counts <= 0).sum())
    if missing:
        warn(f"{missing} of {len(class_counts)} classes have no training image: each is counted as one image")
    return class_counts.clamp_min(1)
