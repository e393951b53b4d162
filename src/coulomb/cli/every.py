"""All commands, registered: `app` as Typer needs it for whatever lists options."""

from coulomb.cli import train, runs, index, curate, export  # noqa: F401, I001 — the order in which help lists them
from coulomb_browse import command as browse  # noqa: F401
from coulomb_lab import command as lab  # noqa: F401
from coulomb.cli.app import app

__all__ = ["app"]
