"""The index of a data set: features, table and thumbnails of its images in one folder, built, updated and searched."""

from coulomb.index.index import Index

__all__ = ["Index"]
