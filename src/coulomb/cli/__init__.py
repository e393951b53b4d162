"""The command line: parse, call, print. A file for each group of commands."""

from coulomb.cli import train, runs, images, bench, lab  # noqa: F401, I001 — in the order in which help lists them
from coulomb.cli.app import app, main

__all__ = ["app", "main"]
