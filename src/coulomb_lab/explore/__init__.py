"""The temperature explorer: page, style and scripts become one HTML file that needs no network."""

import base64
import hashlib
from importlib import resources
from pathlib import Path

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically

# In order: mathematics, drawing, interaction.
SCRIPTS = (
    "losses.js",
    "measures.js",
    "sphere.js",
    "presets.js",
    "descent.js",
    "words.js",
    "draw.js",
    "field.js",
    "stage.js",
    "charts.js",
    "panel.js",
    "pointing.js",
    "main.js",
)


def build_explorer(path: Path | str) -> Path:
    """Writes the explorer to ``path``, an ``.html`` file whose folder is created, and returns the path.

    The page is one file that works offline: its own security policy forbids requests, and allows only this style and
    these scripts, by their hashes. A browser test compares its formulas with `coulomb.losses`.

    Raises:
        InputError: ``path`` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"out={str(path)!r}: is a folder; give a file such as {str(path / 'index.html')!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_explorer().encode("utf-8"))
    return path


def render_explorer() -> str:
    """Returns the page as text."""
    style, script = _part("page.css"), "\n".join(_part(name).replace('"use strict";\n', "", 1) for name in SCRIPTS)
    parts = {"STYLE": style, "SCRIPT": '"use strict";\n' + script}
    page = _part("page.html")
    for name, content in parts.items():
        page = page.replace(f"@{name}_HASH@", _hash(f"\n{content}\n")).replace(f"@{name}@", content)
    return page


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _part(name: str) -> str:
    return resources.files("coulomb_lab.explore").joinpath(name).read_text(encoding="utf-8")
