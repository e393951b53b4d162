"""The engine: row folds of the similarity matrix of queries and keys, which is never stored."""

from coulomb.similarity.matrix import Similarity

__all__ = ["Similarity"]
