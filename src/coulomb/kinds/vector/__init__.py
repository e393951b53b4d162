"""Vectors: rows of an array or a memory map, such as measurements, or features that were computed once."""

from coulomb.kinds.vector.marginals import MarginalViews
from coulomb.kinds.vector.vector import StoredRows, StoredViews, Vector, Vectors

__all__ = ["MarginalViews", "StoredRows", "StoredViews", "Vector", "Vectors"]
