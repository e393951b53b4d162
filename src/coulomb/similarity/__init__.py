"""The engine: row folds of the similarity matrix of queries and keys, which is never stored."""

from coulomb.similarity.matrix import RowStatistics, Similarity, use_backend

__all__ = ["RowStatistics", "Similarity", "use_backend"]
