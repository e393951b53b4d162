"""Towers of texts."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from coulomb.kinds import Kind
from coulomb.kinds.text import LeftOutTokens, Text
from coulomb.kinds.text.text import LEFT_OUT
from coulomb.models import Encoder
from coulomb.models.build_text import build_text_encoder, require_text_encoder
from coulomb.models.names import is_local, is_published, names_weights
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.text_network import TextNetwork
from coulomb.models.text_objects import LIBRARY, build_text_object, is_object
from coulomb.training.plan.config import Config
from coulomb.training.plan.towers.tower import TowerKind, TowerPlan

log = logging.getLogger("coulomb")


class TextTowers(TowerKind):
    """Encoders of texts by name, from a folder or ``hf:``, and objects."""

    encoder = "static"
    temperature = 0.05  # SimCSE

    def fits(self, encoder: str) -> bool:
        """Returns True for names of texts, and for folders and ``hf:``, which are known when they are built."""
        return is_object(encoder) or is_published(encoder) or is_local(encoder) or encoder in TEXT_BACKBONES

    def require(self, encoder: str) -> None:
        """Raises `InputError`; see `coulomb.models.build_text.require_text_encoder`."""
        if not is_object(encoder):
            require_text_encoder(encoder)

    def begins_from_weights(self, encoder: str) -> bool:
        """Returns True for published weights, folders and models of libraries, and for the token vectors of ``static``."""
        return encoder == "static" or encoder.startswith(LIBRARY) or names_weights(encoder)

    def build(self, tower: TowerPlan, columns: Sequence[Any], rows: np.ndarray, config: Config, seed: int) -> Encoder:
        """Builds the network; tokens of one without weights come from the training texts."""
        if tower.given is not None:
            return build_text_object(tower.given, tower.encoder, config.longest)
        texts = (cells[row] for cells in columns for row in rows.tolist())
        return build_text_encoder(tower.encoder, texts=texts, longest=config.longest, seed=seed)

    def cells(self, cells: Any, encoder: Encoder) -> Any:
        """Returns the texts as tokens of the encoder."""
        return network(encoder).tokenize(cells)

    def cells_of(self, rows: np.ndarray, cells: Any, encoder: Encoder) -> tuple[Any, np.ndarray]:
        """Tokenizes the texts of these rows alone."""
        return self.cells([cells[row] for row in rows.tolist()], encoder), np.arange(len(rows))

    def reader(self, tower: TowerPlan, encoder: Encoder, config: Config) -> Kind:
        """Returns the kind of the encoder's tokens."""
        return network(encoder).kind

    def contrasted(self, kind: Kind, encoder: Encoder, cells: Any, rows: np.ndarray, seed: int) -> Kind:
        """Views of a text are the same tokens if the encoder has dropout (SimCSE); else tokens are left out."""
        if has_dropout(encoder):
            return kind
        assert isinstance(kind, Text)
        special = frozenset(network(encoder).tokenizer.encode("").ids)
        log.info("%s has no dropout; views leave out %.0f%% of the tokens", encoder.name, 100 * LEFT_OUT)
        return dataclasses.replace(kind, views=LeftOutTokens(special=special, padding=network(encoder).padding))


def network(encoder: Encoder) -> TextNetwork:
    """Returns the encoder, which reads texts."""
    assert isinstance(encoder, TextNetwork)
    return encoder


def has_dropout(encoder: Encoder) -> bool:
    """Whether two passes of the same cells differ in training."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in encoder.modules())
