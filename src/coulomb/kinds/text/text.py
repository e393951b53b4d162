"""Texts as a kind of column: strings become token ids by a given tokenizer, and stacks are padded to the longest text."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.kind import Cell, UnreadableCell
from coulomb.kinds.stack import Stack


@dataclass
class Tokens(Stack):
    """Texts as token ids.

    Attributes:
        ids: int64 [B, L], padded on the right to the longest text of the stack.
        mask: bool [B, L], True for tokens, False for padding.
    """

    ids: Tensor
    mask: Tensor


class TextCell(NamedTuple):
    """A string and its token ids."""

    text: str
    ids: list[int]


class SameTokens:
    """Views of texts: the same tokens each time, where the dropout of the encoder makes the difference (SimCSE)."""

    by_row = True

    def __call__(self, stack: Tokens, generator: torch.Generator, n: int = 2, share: Any = None) -> list[Tokens]:
        """Returns the stack ``n`` times; nothing is drawn."""
        del generator, share
        return [stack] * n

    def plain(self, stack: Tokens) -> Tokens:
        """Returns the stack."""
        return stack


@dataclass(frozen=True)
class Text:
    """Strings as token ids.

    Args:
        tokenizer: a function from a string to its token ids, or an object whose ``encode`` is one: a tokenizer of
            transformers, or of tokenizers, whose ``encode`` returns an object with ``ids``.
        longest: tokens of a text that are used. Texts that are cut are counted as rounded.
        padding: the id that fills shorter texts; the mask excludes it.
    """

    tokenizer: Any
    longest: int = 128
    padding: int = 0
    views: SameTokens = field(default_factory=SameTokens)
    nbytes: None = None  # texts differ in length

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise InputError(f"longest={self.longest}: must be at least 1 token")
        if not callable(getattr(self.tokenizer, "encode", self.tokenizer)):
            raise InputError(f"tokenizer={self.tokenizer!r}: must be a function from a string to token ids")

    def read(self, cells: Sequence[str | None], row: int) -> Cell:
        """Returns the text of a row with its token ids; raises `UnreadableCell` if it is missing or blank."""
        text = cells[row]
        if not isinstance(text, str):
            raise UnreadableCell(str(row), "no text" if text is None else f"a {type(text).__name__} instead of a text")
        if not text.strip():
            raise UnreadableCell(str(row), "the text is empty")
        encode: Callable[[str], Any] = getattr(self.tokenizer, "encode", self.tokenizer)
        encoded = encode(text)
        ids = [int(each) for each in getattr(encoded, "ids", encoded)]
        if not ids:
            raise UnreadableCell(str(row), "the tokenizer returns no tokens for this text")
        return Cell(TextCell(text, ids[: self.longest]), rounded=len(ids) > self.longest)

    def stack(self, values: Sequence[TextCell]) -> Tokens:
        """Returns padded token ids and their mask."""
        length = max((len(value.ids) for value in values), default=0)
        ids = torch.full((len(values), length), self.padding)
        mask = torch.zeros(len(values), length, dtype=torch.bool)
        for row, value in enumerate(values):
            ids[row, : len(value.ids)] = torch.tensor(value.ids)
            mask[row, : len(value.ids)] = True
        return Tokens(ids, mask)

    def blank(self, count: int) -> Tokens:
        """Texts are not cached."""
        raise NotImplementedError

    def preview(self, value: TextCell) -> str:
        """Returns the escaped text."""
        return html.escape(value.text)
