"""Texts: strings to token ids, padded stacks, and the same tokens for every view."""

from coulomb.kinds.text.column import TokenColumn, tokenize
from coulomb.kinds.text.text import SameTokens, Text
from coulomb.kinds.text.tokens import Tokens

__all__ = ["SameTokens", "Text", "TokenColumn", "Tokens", "tokenize"]
