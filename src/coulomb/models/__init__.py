"""Encoders (built in, of other libraries, or around a user's module), heads, and their files."""

from coulomb.ground.randomness import seeded_initialization
from coulomb.models.build import build_encoder, has_weights
from coulomb.models.build_pair import build_pair
from coulomb.models.build_text import build_text_encoder
from coulomb.models.encoder import Encoder
from coulomb.models.features import extract_features, frozen, pixel_features
from coulomb.models.heads import predictor, projection_head
from coulomb.models.image_network import ImageNetwork, wrap_encoder
from coulomb.models.preprocessing import Preprocessing
from coulomb.models.saving import load_encoder, save_encoder
from coulomb.models.text_network import TextNetwork
from coulomb.models.towers import Tower, Towers, ViewRows
from coulomb.models.vector_network import VectorNetwork, build_vector_encoder

__all__ = [
    "Encoder",
    "ImageNetwork",
    "Preprocessing",
    "TextNetwork",
    "Tower",
    "Towers",
    "VectorNetwork",
    "ViewRows",
    "build_encoder",
    "build_pair",
    "build_text_encoder",
    "build_vector_encoder",
    "extract_features",
    "frozen",
    "has_weights",
    "load_encoder",
    "pixel_features",
    "predictor",
    "projection_head",
    "save_encoder",
    "seeded_initialization",
    "wrap_encoder",
]
