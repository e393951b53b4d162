"""The tower of a column as it is planned, and what a run on columns asks of a kind of cells."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import derive_seed
from coulomb.kinds import Kind
from coulomb.models import Encoder, load_encoder
from coulomb.models.image_network import OWN_MODULE
from coulomb.models.saving import DESCRIPTION, read_description
from coulomb.models.text_objects import module_of
from coulomb.models.tuning import Tune
from coulomb.training.plan.config import Config


@dataclass(frozen=True)
class TowerPlan:
    """The tower of one column, or of several with the same encoder.

    Attributes:
        columns: that it reads; the first names it.
        kind: of these columns.
        encoder: by name.
        tune: what the training changes.
        weights: whether it begins from weights that exist.
        image_size: side of the input in pixels; None for other kinds.
        canvas: side of the square that pictures are stored as; None for other kinds.
        pair: whether it is one of both towers of CLIP or SigLIP, with the projection into their common space.
        given: the object that ``encoder`` names, if this call gave it; see `coulomb.models.text_objects`.
    """

    columns: tuple[str, ...]
    kind: str
    encoder: str
    tune: Tune
    weights: bool
    image_size: int | None = None
    canvas: int | None = None
    pair: bool = False
    given: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The first column."""
        return self.columns[0]

    @property
    def begins(self) -> str:
        """What it begins from, for people."""
        return "its own weights" if self.weights else "random weights"

    @property
    def cached(self) -> bool:
        """Whether its features are computed once, so that training reads them instead of the cells."""
        return self.tune.kind == "none"

    def load(self, folder: Path) -> Encoder:
        """Opens its encoder that is saved in a folder of the run; a copy of the user's module gets the weights.

        Raises:
            InputError: it is the user's module, and this call does not give it.
        """
        if read_description(folder / DESCRIPTION)["kind"] != OWN_MODULE:
            return load_encoder(folder)
        if self.given is None:
            raise InputError(
                f"encoder={self.encoder!r}: {' and '.join(self.columns)} is read by a module of your own, whose code is not "
                "in the run folder; pass it again as encoder=…"
            )
        return load_encoder(folder, copy.deepcopy(module_of(self.given)))


class TowerKind(ABC):
    """What a run on columns asks of a kind: which encoders read it, and how its cells and views come to them.

    Attributes:
        encoder: the encoder where none is given.
        temperature: of the contrast between views of one column, where none is given.
        decoded: whether cells are read by worker processes, and a frozen encoder sees several views of each.
    """

    encoder: str
    temperature: float
    decoded = False

    @abstractmethod
    def fits(self, encoder: str) -> bool:
        """Returns False for the name of an encoder that reads another kind, as far as the name says it."""

    def require(self, encoder: str) -> None:  # noqa: B027  # most need nothing
        """Raises `InputError` if there is no such encoder, or its package is not installed."""

    def begins_from_weights(self, encoder: str) -> bool:
        """Returns True for an encoder that begins from weights that exist."""
        return False

    def sized(self, tower: TowerPlan, cells: Any, image_size: int | None, rows: int) -> TowerPlan:
        """Returns the tower with the size of its input, if it has one: by the option, its cells and the training rows."""
        return tower

    @abstractmethod
    def build(self, tower: TowerPlan, columns: Sequence[Any], rows: np.ndarray, config: Config, seed: int) -> Encoder:
        """Builds the encoder by its name; what it must know of the data comes from these training rows of its columns."""

    def cells(self, cells: Any, encoder: Encoder) -> Any:
        """Returns the cells as the kind reads them for this encoder."""
        return cells

    def cells_of(self, rows: np.ndarray, cells: Any, encoder: Encoder) -> tuple[Any, np.ndarray]:
        """Returns cells as `cells` does, at least those of these ``rows``, and where they are among them."""
        return cells, rows

    @abstractmethod
    def reader(self, tower: TowerPlan, encoder: Encoder, config: Config) -> Kind:
        """Returns the kind that reads the cells for this encoder."""

    def contrasted(self, kind: Kind, encoder: Encoder, cells: Any, rows: np.ndarray, seed: int) -> Kind:
        """Returns the kind with the views that are contrasted with each other, if the column is the only one."""
        return kind

    def shown_views(
        self, kind: Kind, encoder: Encoder, column: str, cells: Any, rows: np.ndarray, seed: int
    ) -> dict[str, Any] | None:
        """Returns what the `contrasted` views do to the cells of some rows, for JSON; None for pictures: they have a sheet."""
        return None


@torch.no_grad()
def training_cosines(encoder: Encoder, views: Sequence[Any], seed: int) -> list[float]:
    """Returns the cosines of the features of two views, in training mode, where dropout acts; nothing of the encoder changes.

    An encoder with batch statistics is in evaluation mode instead, because a pass in training mode would change them.
    """
    mode = encoder.training
    batch_statistics = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in encoder.modules())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "dropout of shown views"))
        encoder.train(not batch_statistics)
        first, second = (encoder(view).float() for view in views)
        encoder.train(mode)
    cosines: list[float] = functional.cosine_similarity(first, second, dim=1).tolist()
    return [round(each, 4) for each in cosines]
