"""The version of coulomb."""

__version__ = "0.1.0"
