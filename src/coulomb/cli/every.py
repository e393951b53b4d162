"""All commands, registered: `app` as Typer needs it for whatever lists options."""

from coulomb.cli import train, runs, index, curate, browse, export, lab  # noqa: F401, I001 — the order in which help lists them
from coulomb.cli.app import app

__all__ = ["app"]
