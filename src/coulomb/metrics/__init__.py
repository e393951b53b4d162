"""Metrics of embeddings: classification, retrieval, clustering, geometry, gradients. Import from the files themselves.

`coulomb.evaluation` and `coulomb.diagnostics` export the public ones.
"""
