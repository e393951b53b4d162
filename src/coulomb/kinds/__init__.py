"""Kinds of columns: how to read a cell, stack cells into tensors, make views of a stack and preview a cell."""

from coulomb.kinds.kind import Cell, Kind, Share, UnreadableCell, ViewsOf
from coulomb.kinds.stack import Stack

__all__ = ["Cell", "Kind", "Share", "Stack", "UnreadableCell", "ViewsOf"]
