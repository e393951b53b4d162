"""Texts: strings to token ids, padded stacks, and the same tokens for every view."""

from coulomb.kinds.text.text import SameTokens, Text, Tokens

__all__ = ["SameTokens", "Text", "Tokens"]
