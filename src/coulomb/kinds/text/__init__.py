"""Texts: strings to token ids, padded stacks, and views: the same tokens, or some left out."""

from coulomb.kinds.text.text import LeftOutTokens, SameTokens, Text
from coulomb.kinds.text.tokens import TokenColumn, Tokens, tokenize

__all__ = ["LeftOutTokens", "SameTokens", "Text", "TokenColumn", "Tokens", "tokenize"]
