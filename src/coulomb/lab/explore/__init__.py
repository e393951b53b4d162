"""The temperature explorer: page, style and scripts → one HTML file that asks nothing of any network."""

import base64
import hashlib
from importlib import resources
from pathlib import Path

from coulomb.errors import InputError
from coulomb.models.saving import write_atomically

# In this order: the mathematics first, then what draws it, then what listens.
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
    """Write the explorer to ``path`` (an ``.html`` file; its folder is made) and return the path.

    The page is one file that works offline: its own security policy forbids requests, and allows this style and these
    scripts alone, by their hashes. Its formulas are those of `coulomb.losses` (held by a test in a browser).

    Raises:
        InputError: ``path`` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"out {str(path)!r} is a folder: name the file to write, such as {str(path / 'index.html')!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_explorer().encode("utf-8"))
    return path


def render_explorer() -> str:
    """The page as text."""
    style, script = _part("page.css"), "\n".join(_part(name).replace('"use strict";\n', "", 1) for name in SCRIPTS)
    parts = {"STYLE": style, "SCRIPT": '"use strict";\n' + script}
    page = _part("page.html")
    for name, content in parts.items():
        page = page.replace(f"@{name}_HASH@", _hash(f"\n{content}\n")).replace(f"@{name}@", content)
    return page


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _part(name: str) -> str:
    return resources.files("coulomb.lab.explore").joinpath(name).read_text(encoding="utf-8")
