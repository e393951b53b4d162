"""Encoders (built in, of other libraries, or around a user's module), heads, and their files."""

from coulomb.models.encoder import Encoder, build_encoder, wrap_encoder
from coulomb.models.heads import predictor, projection_head
from coulomb.models.published import has_weights
from coulomb.models.saving import load_encoder, save_encoder
from coulomb.randomness import seeded_initialisation

__all__ = [
    "Encoder",
    "build_encoder",
    "has_weights",
    "load_encoder",
    "predictor",
    "projection_head",
    "save_encoder",
    "seeded_initialisation",
    "wrap_encoder",
]
