"""Vectors: rows of an array or a memory map, such as features that were computed once."""

from coulomb.kinds.vector.vector import StoredRows, StoredViews, Vector, Vectors

__all__ = ["StoredRows", "StoredViews", "Vector", "Vectors"]
