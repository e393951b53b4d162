"""Metrics of embeddings: classification, retrieval, clustering, geometry, hardness of negatives; one concept per file."""
