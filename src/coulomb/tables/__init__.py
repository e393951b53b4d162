"""Data sets of images: every input becomes a :class:`Source`, and its images square canvases in :class:`Images`."""

from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.check import check, render_check
from coulomb.tables.images import Batch, Images
from coulomb.tables.labels import match_classes
from coulomb.tables.source import Source
from coulomb.tables.sources import open_source
from coulomb.tables.sources.arrays import ArraySource
from coulomb.tables.sources.objects import DatasetSource
from coulomb.tables.split import p_no_positive, split_sentence, stratified_split
from coulomb.tables.survey import Survey, suggest_image_size, survey

__all__ = [
    "ArraySource",
    "Batch",
    "CorruptImage",
    "DatasetSource",
    "Images",
    "Source",
    "Survey",
    "check",
    "match_classes",
    "open_source",
    "p_no_positive",
    "render_check",
    "split_sentence",
    "stratified_split",
    "suggest_image_size",
    "survey",
]
