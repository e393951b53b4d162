"""Texts as token ids: stacks of padded texts, and the texts of a column, tokenized once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError, counted
from coulomb.kinds.stack import Stack

CHUNK = 8192  # texts that are tokenized at a time, in parallel


@dataclass
class Tokens(Stack):
    """Texts as token ids.

    Attributes:
        ids: int64 [B, L], padded on the right to the longest text of the stack.
        mask: bool [B, L], True for tokens, False for padding.

    >>> tokens = Tokens(torch.tensor([[5, 7], [9, 0]]), torch.tensor([[True, True], [True, False]]))
    >>> len(tokens)
    2
    """

    ids: Tensor
    mask: Tensor

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.ids.device

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each text, int64 [B]."""
        return self.mask.sum(dim=1)

    @classmethod
    def join(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Returns the texts of several stacks as one, padded to the longest of all; at least one stack is needed."""
        longest = max(part.ids.shape[1] for part in parts)
        return cls(
            torch.cat([functional.pad(part.ids, (0, longest - part.ids.shape[1])) for part in parts]),
            torch.cat([functional.pad(part.mask, (0, longest - part.mask.shape[1])) for part in parts]),
        )

    def take(self, rows: np.ndarray) -> Self:
        """Returns copies of these rows, padded to the longest of them."""
        taken = super().take(rows)
        return taken.trimmed()

    def rows(self, rows: Tensor) -> Self:
        """Returns these rows, int64 on the same device, padded to the longest of them."""
        return type(self)(self.ids[rows], self.mask[rows]).trimmed()

    def trimmed(self) -> Self:
        """Returns the stack without columns that are padding in all rows."""
        longest = int(self.lengths.max()) if len(self) else 0
        return type(self)(self.ids[:, :longest], self.mask[:, :longest])

    @classmethod
    def ragged(cls, ids: np.ndarray, lengths: np.ndarray, padding: int = 0) -> "Tokens":
        """Returns texts whose ids follow each other in ``ids``, of the given ``lengths`` [B]."""
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        padded = np.full(mask.shape, padding, dtype=np.int64)
        padded[mask] = ids
        return cls(torch.from_numpy(padded), torch.from_numpy(mask))


@dataclass(frozen=True)
class TokenColumn:
    """Cells of a column of texts as token ids, one after the other; made by `tokenize`.

    Attributes:
        ids: int32 [T], the tokens of all texts.
        offsets: int64 [N + 1]; text i has the tokens ``ids[offsets[i]:offsets[i + 1]]``.
        texts: the texts, for previews and messages.
        cut: bool [N], True for texts that had more than ``longest`` tokens.
        longest: tokens of a text that are used.
        padding: the id that fills shorter texts of a stack; the mask excludes it.
        reasons: why texts without tokens have none, by row.

    >>> from coulomb.models import build_text_encoder
    >>> network = build_text_encoder("static-random", texts=["a red flower", "two cats"] * 10, width=8)
    >>> network.tokenize(["a cat", None]).reasons
    {1: 'no text'}
    """

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    texts: Sequence[Any]
    cut: npt.NDArray[np.bool_]
    longest: int
    padding: int = 0
    reasons: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each text, int64 [N]."""
        return np.diff(self.offsets)

    @property
    def notes(self) -> list[str]:
        """What a user should know: how many texts were cut."""
        cut = int(self.cut.sum())
        if not cut:
            return []
        were = "was" if cut == 1 else "were"
        return [f"{counted(cut, 'text')} of {len(self):,} had more than {self.longest} tokens and {were} cut there"]

    def stack(self, rows: Sequence[int] | np.ndarray) -> Tokens:
        """Returns the tokens of these rows, padded to the longest of them; texts without tokens are rows of padding."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        ends = lengths.cumsum()
        # Token t of the stack is token t − (tokens of the rows before) of its row.
        place = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[rows] - (ends - lengths), lengths)
        return Tokens.ragged(self.ids[place], lengths, self.padding)


def reason_against(text: Any) -> str | None:
    """Returns why a cell has no text; None if it has one."""
    if text is None:
        return "no text"
    if isinstance(text, bytes):
        return "bytes instead of a text: decode them, for example by text.decode('utf-8')"
    if not isinstance(text, str):
        return f"a {type(text).__name__} instead of a text"
    if not text.strip():
        return "the text is empty"
    return None


def tokenize(
    texts: Sequence[Any],
    tokenizer: Any,
    *,
    longest: int,
    padding: int = 0,
    advance: Callable[[int], object] = lambda texts: None,
) -> TokenColumn:
    """Returns the texts as token ids; whitespace around a text is ignored.

    Cells that are no texts (None, numbers, blank) and texts of which the tokenizer makes no token get no tokens and an entry
    in ``reasons``.

    Args:
        texts: the cells of a column.
        tokenizer: a `tokenizers.Tokenizer`; it is not changed. It tokenizes in parallel.
        longest: tokens of a text that are used, with those that the tokenizer adds, such as [CLS] and [SEP].
        padding: the id that fills shorter texts of a stack.
        advance: called with the number of texts after each part.

    Raises:
        InputError: ``longest`` leaves no room for a token of the text.

    >>> from coulomb.models import build_text_encoder
    >>> network = build_text_encoder("static-random", texts=["a red flower", "two cats"] * 10, width=8)
    >>> column = tokenize(["a red flower", "two cats"], network.tokenizer, longest=16)
    >>> len(column)
    2
    """
    least = tokenizer.num_special_tokens_to_add(False) + 1
    if longest < least:
        raise InputError(f"longest={longest}: must be at least {least}; the tokenizer adds {least - 1} to each text")
    lengths, cut = np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=bool)
    parts: list[npt.NDArray[np.int32]] = []
    reasons: dict[int, str] = {}
    with truncating(tokenizer, longest):
        for first in range(0, len(texts), CHUNK):
            part: dict[int, str] = {}
            for row, text in enumerate(texts[first : first + CHUNK], first):
                if (reason := reason_against(text)) is None:
                    part[row] = text.strip()
                else:
                    reasons[row] = reason
            chosen, encodings = _encode(tokenizer, part, reasons)
            ids = [encoding.ids for encoding in encodings]
            lengths[chosen] = [len(each) for each in ids]
            cut[chosen] = [bool(encoding.overflowing) for encoding in encodings]
            parts.append(np.fromiter(chain.from_iterable(ids), dtype=np.int32))
            reasons |= {row: "the tokenizer returns no tokens for this text" for row in chosen if not lengths[row]}
            advance(min(CHUNK, len(texts) - first))
    return TokenColumn(
        np.concatenate([np.empty(0, np.int32), *parts]),
        np.concatenate([np.zeros(1, np.int64), lengths.cumsum()]),
        texts, cut, longest, padding, reasons,
    )  # fmt: skip


@contextmanager
def truncating(tokenizer: Any, longest: int) -> Iterator[None]:
    """Context in which a `tokenizers.Tokenizer` cuts texts at ``longest`` tokens and does not pad."""
    truncation, padding = tokenizer.truncation, tokenizer.padding
    tokenizer.enable_truncation(longest)
    tokenizer.no_padding()
    try:
        yield
    finally:
        tokenizer.no_truncation() if truncation is None else tokenizer.enable_truncation(**truncation)
        if padding is not None:
            tokenizer.enable_padding(**padding)


def _encode(tokenizer: Any, texts: dict[int, str], reasons: dict[int, str]) -> tuple[list[int], list[Any]]:
    """Returns the rows whose text can be encoded, and their encodings; adds the ``reasons`` of the others."""
    try:
        return list(texts), tokenizer.encode_batch_fast(list(texts.values()))
    except (UnicodeEncodeError, TypeError):  # a text with half of a surrogate pair, which no UTF-8 has
        good = dict(texts)
        for row, text in texts.items():
            try:
                text.encode()
            except UnicodeEncodeError:
                reasons[row] = "the text has characters that are no Unicode: it was decoded with another encoding"
                del good[row]
        if len(good) == len(texts):
            raise
        return _encode(tokenizer, good, reasons)
