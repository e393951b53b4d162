"""Adds pages that Sphinx does not build: the benchmark of the losses and the temperature explorer."""

import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from coulomb_lab.explore import build_explorer


def add(app: Sphinx, error: Exception | None) -> None:
    """Writes the pages into the built site."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    (out / "benchmarks").mkdir(exist_ok=True)
    shutil.copyfile(Path(app.srcdir) / "benchmarks" / "losses.html", out / "benchmarks" / "losses.html")
    build_explorer(out / "explore.html")


# Files outside docs/ that pages link to, and the pages that include them.
INCLUDED = {
    "../../CONTRIBUTING.md": "../contributing.md",
    "../../CHANGELOG.md": "../changelog.md",
}


def point_inside(app: Sphinx, name: str, source: list[str]) -> None:
    """Replaces links to included files by links to the pages that include them."""
    for file, page in INCLUDED.items():
        source[0] = source[0].replace(f"]({file}", f"]({page}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers both functions."""
    app.connect("source-read", point_inside)
    app.connect("build-finished", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
