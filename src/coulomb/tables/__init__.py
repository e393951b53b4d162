"""Data sets as tables: every input becomes a :class:`Table`, and its rows batches in :class:`Samples`."""

from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.cell_split import equal_cells_split, split_rows
from coulomb.tables.check import check, render_check
from coulomb.tables.check_columns import check_columns, render_columns
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.images import image_samples
from coulomb.tables.labels import match_classes
from coulomb.tables.samples import Batch, Samples
from coulomb.tables.source import Source
from coulomb.tables.sources import open_source
from coulomb.tables.sources.arrays import ArraySource
from coulomb.tables.sources.objects import DatasetSource
from coulomb.tables.split import p_no_positive, split_sentence, stratified_split
from coulomb.tables.survey import Survey, suggest_image_size, survey
from coulomb.tables.table import Columns, Table

__all__ = [
    "ArraySource",
    "Batch",
    "Column",
    "Columns",
    "CorruptImage",
    "DatasetSource",
    "Samples",
    "Source",
    "Survey",
    "Table",
    "check",
    "check_columns",
    "equal_cells_split",
    "image_samples",
    "match_classes",
    "open_columns",
    "open_source",
    "p_no_positive",
    "parse_columns",
    "render_check",
    "render_columns",
    "split_rows",
    "split_sentence",
    "stratified_split",
    "suggest_image_size",
    "survey",
]
