"""The command line: parse, call, print."""

from coulomb.cli import train, runs, index, curate, export, lab  # noqa: F401, I001 — in the order in which help lists the commands
from coulomb.cli.app import app, main

__all__ = ["app", "main"]
