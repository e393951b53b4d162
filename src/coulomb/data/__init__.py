"""Data: whatever a user has becomes a :class:`Source` of pictures, and a :class:`Images` of canvases to train on."""

from coulomb.data.arrays import ArraySource
from coulomb.data.check import check
from coulomb.data.check_text import render_check
from coulomb.data.images import Batch, Images
from coulomb.data.labels import match_classes
from coulomb.data.names import visible
from coulomb.data.opening import open_source
from coulomb.data.positives import p_no_positive
from coulomb.data.source import CorruptImage, Source
from coulomb.data.splits import split_sentence, stratified_split
from coulomb.data.survey import Survey, suggest_image_size, survey
from coulomb.data.torch_dataset import DatasetSource

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
