"""The engine: row reductions of the similarity matrix of queries and keys, which is never stored."""

from coulomb.similarity.guide import Guide
from coulomb.similarity.matrix import Similarity
from coulomb.similarity.order import RowStatistics
from coulomb.similarity.policy import use_backend

__all__ = ["Guide", "RowStatistics", "Similarity", "use_backend"]
