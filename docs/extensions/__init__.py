"""Sphinx extensions of the documentation."""
