"""Texts as a kind of column: strings become token ids by a given tokenizer, and stacks are padded to the longest text."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.kind import Cell, Share, UnreadableCell
from coulomb.kinds.text.tokens import TokenColumn, Tokens, reason_against

LEFT_OUT = 0.5  # of the tokens; see docs/experiments/pairs.md


class TextCell(NamedTuple):
    """A string and its token ids."""

    text: str
    ids: npt.NDArray[np.int32]


class SameTokens:
    """Views of texts: the same tokens each time, where the dropout of the encoder makes the difference (SimCSE).

    >>> Text(str.split, views=SameTokens()).longest
    128
    """

    by_row = True

    def __call__(self, stack: Tokens, generator: torch.Generator, n: int = 2, share: Any = None) -> list[Tokens]:
        """Returns the stack ``n`` times; nothing is drawn."""
        del generator, share
        return [stack] * n

    def plain(self, stack: Tokens) -> Tokens:
        """Returns the stack."""
        return stack


@dataclass(frozen=True)
class LeftOutTokens:
    """Views of texts in which random tokens are left out, for encoders without dropout (token cutoff; Yan et al., 2021).

    Every token is left out with the same probability, drawn anew for each view; at least one token of a text stays.

    Args:
        left_out: the probability.
        special: ids of tokens that always stay, such as those that a tokenizer adds.
        padding: the id that fills shorter texts.

    Raises:
        InputError: ``left_out`` is not between 0 and 1.

    >>> LeftOutTokens(left_out=0.2).left_out
    0.2
    """

    left_out: float = LEFT_OUT
    special: frozenset[int] = frozenset()
    padding: int = 0

    by_row = True

    def __post_init__(self) -> None:
        if not 0 < self.left_out < 1:
            raise InputError(f"left_out={self.left_out}: must be between 0 and 1")

    def __call__(
        self, stack: Tokens, generator: torch.Generator, n: int = 2, share: Share | None = None
    ) -> list[Tokens]:
        """Returns ``n`` views of the texts."""
        ids = stack.ids.cpu().numpy()
        return [
            Tokens.ragged(ids[kept], kept.sum(axis=1), self.padding).to(stack.device)
            for kept in self.kept(stack, generator, n, share)
        ]

    def kept(
        self, stack: Tokens, generator: torch.Generator, n: int = 2, share: Share | None = None
    ) -> list[npt.NDArray[np.bool_]]:
        """Returns which tokens stay in each of ``n`` views, bool [B, L]."""
        total, mine = (len(stack), slice(None)) if share is None else (share.total, share.rows)
        ids, mask = stack.ids.cpu().numpy(), stack.mask.cpu().numpy()
        candidates = mask & ~np.isin(ids, list(self.special))
        found = []
        for _ in range(n):
            # One number per text, from which those of its tokens follow: they do not depend on the length of the stack.
            keys = torch.randint(2**62, (total,), generator=generator)[mine].numpy()
            drawn = np.where(candidates, uniform(keys, ids.shape[1]), -1.0)
            kept = drawn >= self.left_out
            last = np.flatnonzero(~kept.any(axis=1) & candidates.any(axis=1))
            kept[last, drawn[last].argmax(axis=1)] = True
            found.append(kept | (mask & ~candidates))
        return found

    def plain(self, stack: Tokens) -> Tokens:
        """Returns the stack."""
        return stack


def uniform(keys: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float64]:
    """Returns ``count`` numbers in [0, 1) for each key, [B, count], by SplitMix64 (Steele et al., 2014)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴
        mixed = keys.astype(np.uint64)[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@dataclass(frozen=True)
class Text:
    """Strings as token ids.

    Cells are strings, or a `TokenColumn`, whose texts are tokenized already.

    Args:
        tokenizer: a function from a string to its token ids, or an object whose ``encode`` is one: a tokenizer of
            transformers, or of tokenizers, whose ``encode`` returns an object with ``ids``.
        longest: tokens of a text that are used. Texts that are cut are counted as rounded.
        padding: the id that fills shorter texts; the mask excludes it.
        views: `SameTokens`, or `LeftOutTokens`.
    """

    tokenizer: Any
    longest: int = 128
    padding: int = 0
    views: SameTokens | LeftOutTokens = field(default_factory=SameTokens)
    nbytes: None = None  # texts differ in length

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise InputError(f"longest={self.longest}: must be at least 1 token")
        if not callable(getattr(self.tokenizer, "encode", self.tokenizer)):
            raise InputError(f"tokenizer={self.tokenizer!r}: must be a function from a string to token ids")

    def read(self, cells: Sequence[Any] | TokenColumn, row: int) -> Cell:
        """Returns the text of a row with its token ids; raises `UnreadableCell` if it is missing or blank."""
        if isinstance(cells, TokenColumn):
            if (reason := cells.reasons.get(row)) is not None:
                raise UnreadableCell(str(row), reason)
            ids = cells.ids[cells.offsets[row] : cells.offsets[row + 1]]
            return Cell(TextCell(cells.texts[row], ids), rounded=bool(cells.cut[row]))
        text = cells[row]
        if (reason := reason_against(text)) is not None:
            raise UnreadableCell(str(row), reason)
        encode: Callable[[str], Any] = getattr(self.tokenizer, "encode", self.tokenizer)
        encoded = encode(text)
        ids = np.asarray(getattr(encoded, "ids", encoded), dtype=np.int32)
        if not len(ids):
            raise UnreadableCell(str(row), "the tokenizer returns no tokens for this text")
        cut = len(ids) > self.longest or bool(getattr(encoded, "overflowing", ()))
        return Cell(TextCell(text, ids[: self.longest]), rounded=cut)

    def stack(self, values: Sequence[TextCell]) -> Tokens:
        """Returns padded token ids and their mask."""
        lengths = np.fromiter((len(value.ids) for value in values), np.int64, len(values))
        ids = np.concatenate([np.empty(0, np.int32), *(value.ids for value in values)])
        return Tokens.ragged(ids, lengths, self.padding)

    def blank(self, count: int) -> Tokens:
        """Texts are not cached."""
        raise NotImplementedError

    def preview(self, value: TextCell) -> str:
        """Returns the escaped text."""
        return html.escape(value.text)
