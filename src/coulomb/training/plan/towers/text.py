"""Towers of texts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from coulomb.ground.randomness import generator
from coulomb.kinds import Kind
from coulomb.kinds.text import LeftOutTokens, Text
from coulomb.kinds.text.tokens import truncating
from coulomb.models import Encoder
from coulomb.models.build_text import build_text_encoder, require_text_encoder
from coulomb.models.names import is_local, is_published, names_weights
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.text_network import TextNetwork
from coulomb.models.text_objects import LIBRARY, build_text_object, is_object
from coulomb.training.plan.config import Config
from coulomb.training.plan.towers.tower import TowerKind, TowerPlan, training_cosines

SHOWN = "shown views"  # purpose of their random draws
LONGEST_SHOWN = 300  # characters of a text of which views are shown


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
        return dataclasses.replace(kind, views=LeftOutTokens(special=special, padding=network(encoder).padding))

    def shown_views(
        self, kind: Kind, encoder: Encoder, column: str, cells: Any, rows: np.ndarray, seed: int
    ) -> dict[str, Any]:
        """Returns pieces of the texts that stay in each of two views or are left out, or the rates of dropout.

        ``{"way": "left_out", "share", "samples": [{"views": [[[piece, kept], …], …], "cosine"}]}``, or
        ``{"way": "dropout", "rates", "samples": [{"text", "cosine"}]}``; ``cosine``: of the features of both views by the
        encoder as it is.
        """
        assert isinstance(kind, Text)
        texts = [str(cells[row]).strip() for row in rows.tolist()]
        stack = network(encoder).tokenize(texts).stack(np.arange(len(texts)))
        cosines = training_cosines(encoder, kind.views(stack, generator(seed, SHOWN)), seed)
        if not isinstance(kind.views, LeftOutTokens):
            rates = sorted({part.p for part in encoder.modules() if isinstance(part, nn.Dropout) and part.p > 0})
            samples = [
                {"text": text[:LONGEST_SHOWN], "cosine": each} for text, each in zip(texts, cosines, strict=True)
            ]
            return {"kind": "text", "way": "dropout", "rates": rates, "samples": samples}
        kept = kind.views.kept(stack, generator(seed, SHOWN))
        with truncating(network(encoder).tokenizer, network(encoder).longest):
            spans = [each.offsets for each in network(encoder).tokenizer.encode_batch(texts)]
        samples = [
            {"views": [pieces(text, spans[row], view[row]) for view in kept], "cosine": cosines[row]}
            for row, text in enumerate(texts)
        ]
        return {"kind": "text", "way": "left_out", "share": kind.views.left_out, "samples": samples}


def pieces(text: str, spans: Sequence[tuple[int, int]], kept: np.ndarray) -> list[list[Any]]:
    """Returns the text as [[piece, whether its tokens stay], …], one after the other; at most its first characters.

    Args:
        text: the text.
        spans: the first and the last character of each token, (0, 0) for tokens that are not in the text.
        kept: whether each token stays, bool, at least as many.

    >>> pieces("a red cat", [(0, 1), (2, 5), (6, 9)], np.array([True, False, False]))
    [['a ', True], ['red cat', False]]
    """
    found: list[list[Any]] = []
    at = 0

    def add(end: int, stays: bool) -> None:
        nonlocal at
        if end > at:
            if found and found[-1][1] == stays:
                found[-1][0] += text[at:end]
            else:
                found.append([text[at:end], stays])
            at = end

    for (first, end), stays in zip(spans, kept.tolist(), strict=False):
        if first < LONGEST_SHOWN and end > at:
            add(first, found[-1][1] if found else stays)  # white space between tokens
            add(min(end, LONGEST_SHOWN), stays)
    if found and at < len(text):
        found.append(["…", True])
    return found


def network(encoder: Encoder) -> TextNetwork:
    """Returns the encoder, which reads texts."""
    assert isinstance(encoder, TextNetwork)
    return encoder


def has_dropout(encoder: Encoder) -> bool:
    """Whether two passes of the same cells differ in training."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in encoder.modules())
