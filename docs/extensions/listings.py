"""Directives that list options and experiments of the library: ``{config-table}`` and ``{lab-listing}``."""

import dataclasses
import typing
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from coulomb.training.plan.config import Config
from coulomb_lab.experiments import EXPERIMENTS

FROM_DATA = "chosen from the data"


def rows() -> list[tuple[str, str, str]]:
    """Returns name, default and meaning of every option."""
    options = []
    for option in dataclasses.fields(Config):
        default = option.default if option.default is not dataclasses.MISSING else option.default_factory()
        text = option.metadata["help"]
        if choices := option.metadata.get("choices"):
            text += f" ({', '.join(choices)})"
        options.append((option.name, FROM_DATA if default is None else repr(default), text))
    return options


class ConfigTable(SphinxDirective):
    """A table of `rows`."""

    def run(self) -> list[nodes.Node]:
        """Returns the parsed table."""
        lines = ["| option | default | meaning |", "|---|---|---|"]
        for name, default, text in rows():
            written = default if default == FROM_DATA else f"`{default}`"
            lines.append(f"| `{name}` | {written} | {text.replace('|', chr(92) + '|')} |")
        return typing.cast(list[nodes.Node], self.parse_text_to_nodes("\n".join(lines)))


class LabListing(SphinxDirective):
    """A table of the lab's experiments and their questions."""

    def run(self) -> list[nodes.Node]:
        """Returns the parsed table."""
        lines = [
            "| `coulomb lab …` | question |",
            "|---|---|",
            *[f"| `{experiment.name}` | {experiment.question} |" for experiment in EXPERIMENTS.values()],
        ]
        return typing.cast(list[nodes.Node], self.parse_text_to_nodes("\n".join(lines)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directives."""
    app.add_directive("config-table", ConfigTable)
    app.add_directive("lab-listing", LabListing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
