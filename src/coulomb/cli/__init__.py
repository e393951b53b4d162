"""The command line: parse, call, print."""

from coulomb.cli.app import main

__all__ = ["main"]
