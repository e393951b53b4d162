"""Towers of pictures."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.kinds import Kind
from coulomb.kinds.image import Image
from coulomb.kinds.image.canvas import canvas_size
from coulomb.kinds.image.views import make_views
from coulomb.models import Encoder, build_encoder, has_weights
from coulomb.models.build import require_encoder
from coulomb.models.build_pair import pair_facts
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.vector_network import NAMES as VECTOR_ENCODERS
from coulomb.training.plan.config import Config
from coulomb.training.plan.start import LEAST_SIDE, photo_size
from coulomb.training.plan.towers.tower import TowerKind, TowerPlan

MEASURED = 200  # pictures whose sides are looked up


class ImageTowers(TowerKind):
    """Encoders of pictures by name, from a folder, ``hf:`` or ``timm:``."""

    encoder = "lite0"
    temperature = 0.05
    decoded = True

    def fits(self, encoder: str) -> bool:
        """Returns False for names of encoders of other kinds."""
        return encoder not in TEXT_BACKBONES and encoder not in VECTOR_ENCODERS

    def require(self, encoder: str) -> None:
        """Raises `InputError`; see `coulomb.models.build.require_encoder`."""
        require_encoder(encoder)

    def begins_from_weights(self, encoder: str) -> bool:
        """Returns True for published weights and folders."""
        return has_weights(encoder)

    def sized(self, tower: TowerPlan, cells: Any, image_size: int | None, rows: int) -> TowerPlan:
        """Returns the tower with the size that was asked for, that of its weights, or one by its pictures."""
        sides = Sides.of(cells)
        if image_size is None:
            image_size = pair_facts(tower.encoder).image_size if tower.pair else sides.image_size(tower.weights, rows)
        return replace(tower, image_size=image_size, canvas=canvas_size(sides.square, image_size))

    def build(self, tower: TowerPlan, columns: Sequence[Any], rows: np.ndarray, config: Config, seed: int) -> Encoder:
        """Builds the network at the size of the tower."""
        size = tower.image_size
        return build_encoder(tower.encoder, channels=3, image_size=size, seed=seed, **config.encoder_options)

    def reader(self, tower: TowerPlan, encoder: Encoder, config: Config) -> Kind:
        """Returns pictures on the canvas of the tower, with the views of the configuration."""
        assert tower.canvas is not None and tower.image_size is not None
        views = make_views(str(config.views), size=tower.image_size, channels=3, **config.view_options)
        return Image(tower.canvas, 3, views=views)


@dataclass(frozen=True)
class Sides:
    """Sides of some pictures in pixels: the median of the shorter, and the side if all are equal squares, else None."""

    short: float
    square: int | None

    @classmethod
    def of(cls, cells: Any) -> "Sides":
        """Measures at most 200 evenly spaced pictures by their headers; those that cannot be read are left out."""
        sizes = []
        for row in np.unique(np.linspace(0, len(cells) - 1, MEASURED).astype(int)).tolist():
            with suppress(InputError):
                header = cells.header(row)
                sizes.append((header.width, header.height))
        if not sizes:
            return cls(224.0, None)
        distinct = {side for size in sizes for side in size}
        return cls(float(np.median([min(size) for size in sizes])), distinct.pop() if len(distinct) == 1 else None)

    def image_size(self, weights: bool, rows: int) -> int:
        """Returns the side of an encoder's input that these pictures allow, with or without ``weights``."""
        if weights:
            return photo_size(max(self.short, LEAST_SIDE), rows)
        return int(min(96, max(16, 8 * round(self.short / 8))))
