"""Page."""

import base64
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.errors import InputError
from coulomb.models.saving import write_atomically
from coulomb.pages import numbers as wording

STYLES = ("page.css", "parts/doctor.css", "parts/figures.css", "parts/map.css", "parts/compare.css")
SCRIPTS = ("charts.js", "theme.js", "similarity.js", "atlas.js", "lasso.js", "colouring.js", "start.js")
FILTERS = ("percent", "count", "plural", "duration", "figure", "shorten")


def render_page(template: str, content: dict[str, Any]) -> str:
    """The page ``template`` of ``parts/`` as text.

    All names in ``content`` are escaped; style and script are our own files, and the page's security policy lets no other
    script run than this one, known by its hash.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: _part(f"parts/{name}")),
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {name: getattr(wording, name) for name in FILTERS}
    parts = "\n".join(_part(f"parts/{name}").replace('"use strict";\n', "") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        **content,
        style=Markup("".join(map(_part, STYLES))),
        script=Markup(script),
        script_hash=hashed,
    )


def target_of(out: Path | str) -> Path:
    """``out`` as a path; raises :class:`coulomb.errors.InputError` unless a file can be there."""
    target = Path(out)
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"out={str(out)!r}: not a file in a folder that exists; give one such as page.html")
    return target


def write_page(target: Path, text: str) -> Path:
    """Write ``text`` to ``target`` in one step: a reader never sees half of a page."""
    write_atomically(target, text.encode("utf-8"))
    return target


def _part(name: str) -> str:
    return resources.files("coulomb.report").joinpath(name).read_text(encoding="utf-8")
