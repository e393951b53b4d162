"""Data sets of images: every input becomes a :class:`Source`, and its images square canvases in :class:`Images`."""

from coulomb.data.check import check, render_check
from coulomb.data.images import Batch, Images
from coulomb.data.labels import match_classes
from coulomb.data.source import CorruptImage, Source, visible
from coulomb.data.sources import open_source
from coulomb.data.sources.arrays import ArraySource
from coulomb.data.sources.objects import DatasetSource
from coulomb.data.split import p_no_positive, split_sentence, stratified_split
from coulomb.data.survey import Survey, suggest_image_size, survey

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
    "visible",
]
