"""Encoders of texts: a tokenizer, a backbone and perhaps an adapter; tokens in, features out."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.kinds.text import Text, TokenColumn, Tokens, tokenize
from coulomb.models.backbones import LARGEST, LARGEST_NETWORK, LARGEST_SIZE
from coulomb.models.encoder import Encoder
from coulomb.models.micro_batches import encode_in_micro_batches
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.tokenizing import TOKENIZER

TRIAL_TOKENS = 8


class TextNetwork(Encoder):
    """Maps texts as `coulomb.kinds.text.Tokens` to features [B, F] by a backbone and perhaps an adapter.

    Text networks are made by `build_text_encoder`.

    Attributes:
        tokenizer: a `tokenizers.Tokenizer`, strings to ids, with the special tokens that the backbone expects; it neither cuts
            nor pads.
        longest: tokens of a text that are used, special tokens included.
        padding: the id that fills shorter texts of a batch.

    Shape:
        tokens: ids and mask [B, L].
        output: [B, F].

    >>> network = build_text_encoder("static-random", texts=["a red flower", "two cats"] * 10, width=8)
    >>> tokens = network.tokenize(["a cat", "a flower"])
    >>> type(tokens).__name__, network.feature_dim
    ('TokenColumn', 8)
    """

    cells = "texts"

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Any,
        *,
        longest: int,
        feature_dim: int,
        config: Mapping[str, Any],
        padding: int = 0,
    ) -> None:
        super().__init__(backbone, feature_dim=feature_dim, config=config, column="text")
        self.tokenizer = tokenizer
        self.longest = longest
        self.padding = padding

    @property
    def vocabulary(self) -> int:
        """Number of ids of the tokenizer."""
        size: int = self.tokenizer.get_vocab_size()
        return size

    @property
    def kind(self) -> Text:
        """The kind of a column of texts for this network."""
        return Text(self.tokenizer, longest=self.longest, padding=self.padding)

    def tokenize(self, texts: Sequence[Any], advance: Callable[[int], object] = lambda texts: None) -> TokenColumn:
        """Returns texts as cells for this network; see `coulomb.kinds.text.tokenize`."""
        return tokenize(texts, self.tokenizer, longest=self.longest, padding=self.padding, advance=advance)

    def files(self) -> dict[str, bytes]:
        """Returns the tokenizer, in the format of the library tokenizers."""
        return {TOKENIZER: self.tokenizer.to_str(pretty=False).encode()}

    def description(self) -> dict[str, Any]:
        """Returns the SHA-256 of the tokenizer."""
        return {"tokenizer": hashlib.sha256(self.files()[TOKENIZER]).hexdigest()}

    def backbone_features(self, cells: Tokens) -> Tensor:
        """Returns the features [B, F'] of the backbone; micro-batches have texts of similar lengths."""
        if self.micro_batch is None or len(cells) <= self.micro_batch:
            return self.backbone_pass(cells)
        order = cells.lengths.argsort(stable=True)
        features = encode_in_micro_batches(
            lambda rows: self.backbone_pass(cells.rows(rows)), order, self.micro_batch, self.backbone
        )
        return features[order.argsort()]

    def backbone_pass(self, cells: Tokens) -> Tensor:
        """Returns the features [B, F'] of texts; raises `InputError` for something else than tokens."""
        if not isinstance(cells, Tokens):
            raise InputError(
                f"texts: {self.name} takes coulomb.kinds.text.Tokens, got {type(cells).__name__}; "
                "TextEncoder(network, name).encode(texts) takes strings"
            )
        if cells.ids.shape[1] > self.longest:
            raise InputError(
                f"texts of {cells.ids.shape[1]} tokens: {self.name} takes at most {self.longest}; "
                "network.tokenize(texts) cuts them"
            )
        features: Tensor = self.backbone(cells)
        return features

    def trial_cells(self, count: int, generator: torch.Generator | None = None) -> Tokens:
        """Returns texts of a few tokens, all with id 0 or with random ids."""
        shape = count, min(TRIAL_TOKENS, self.longest)
        ids = torch.zeros(shape, dtype=torch.int64)
        if generator is not None:
            ids = torch.randint(self.vocabulary, shape, generator=generator)
        return Tokens(ids, torch.ones(shape, dtype=torch.bool))


def assemble_text(name: str, tokenizer: Any, *, longest: int, options: Mapping[str, Any]) -> TextNetwork:
    """Builds an architecture with the current generator and device, so that loading need not initialize weights."""
    if not isinstance(longest, int) or isinstance(longest, bool) or not 1 <= longest <= LARGEST_SIZE:
        raise InputError(f"longest={longest!r}: must be a whole number from 1 to {LARGEST_SIZE}")
    for option, value in options.items():
        largest = LARGEST_NETWORK if option == "vocabulary" else LARGEST.get(option, LARGEST_SIZE)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise InputError(f"{option}={value!r} of {name}: must be a whole number from 1 to {largest}")
    if (size := options["vocabulary"] * options.get("width", 256)) > LARGEST_NETWORK:
        raise InputError(
            f"encoder={name!r}: has {size:.2g} parameters, more than {LARGEST_NETWORK:.2g}; make it narrower"
        )
    require_vocabulary(tokenizer, options["vocabulary"], name)
    backbone = TEXT_BACKBONES[name](longest=longest, **options)
    config = {
        "cells": TextNetwork.cells,
        "kind": "built-in",
        "name": name,
        "longest": longest,
        "padding": 0,
        "options": dict(options),
    }
    return TextNetwork(backbone, tokenizer, longest=longest, feature_dim=backbone.feature_dim, config=config)


def require_vocabulary(tokenizer: Any, size: int, name: str) -> None:
    """Raises `InputError` if a tokenizer has ids for which a network with ``size`` token vectors has none."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= size:
        raise InputError(
            f"{name}: its tokenizer has ids up to {largest}, and the network has {size} token vectors; use files of one model"
        )


def require_texts(encoder: Encoder, name: object) -> TextNetwork:
    """Returns the encoder; raises `InputError` if it takes something else than texts. ``name``: where it came from."""
    if not isinstance(encoder, TextNetwork):
        raise InputError(f"encoder={str(name)!r}: takes {encoder.cells}; an encoder of texts is needed here")
    return encoder
