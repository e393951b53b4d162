"""The command line: parse, call, print."""

from coulomb.cli import train, runs, index, curate, browse, export, lab  # noqa: F401, I001 — the order in which help lists them
from coulomb.cli.app import app, main

__all__ = ["app", "main"]
