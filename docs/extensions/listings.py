"""What pages take from the library itself: ``{config-table}``, the options of a run; ``{lab-listing}``, the experiments."""

import dataclasses
import typing
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from coulomb.lab.experiments import EXPERIMENTS
from coulomb.runs.config import Config


def rows() -> list[tuple[str, str, str]]:
    """Name, default and meaning of every option."""
    found = []
    for option in dataclasses.fields(Config):
        default = option.default if option.default is not dataclasses.MISSING else option.default_factory()
        text = option.metadata["help"]
        if choices := option.metadata.get("choices"):
            text += f" ({', '.join(choices)})"
        found.append((option.name, "decided from the data" if default is None else repr(default), text))
    return found


class ConfigTable(SphinxDirective):
    """A list table of `rows`."""

    def run(self) -> list[nodes.Node]:
        """Nodes."""
        lines = ["| option | default | what it is |", "|---|---|---|"]
        for name, default, text in rows():
            written = default if default == "decided from the data" else f"`{default}`"
            lines.append(f"| `{name}` | {written} | {text.replace('|', chr(92) + '|')} |")
        return typing.cast(list[nodes.Node], self.parse_text_to_nodes("\n".join(lines)))


class LabListing(SphinxDirective):
    """Names and questions of the lab's experiments."""

    def run(self) -> list[nodes.Node]:
        """Nodes."""
        found = EXPERIMENTS.values()
        lines = [
            "| `coulomb lab …` | question |",
            "|---|---|",
            *[f"| `{made.name}` | {made.question} |" for made in found],
        ]
        return typing.cast(list[nodes.Node], self.parse_text_to_nodes("\n".join(lines)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("config-table", ConfigTable)
    app.add_directive("lab-listing", LabListing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
