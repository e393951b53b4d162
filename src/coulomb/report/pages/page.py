"""Templates, styles and scripts become one HTML file that needs no network."""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.report.pages import numbers
from coulomb.report.pages.chart import Chart

SHARED_SCRIPTS = ("charts.js", "theme.js", "page.js")
FORMATS = ("percent", "count", "plural", "duration", "significant", "shorten")


class ChartList:
    """Numbers the charts of a page: its script finds their tooltips by these numbers."""

    def __init__(self) -> None:
        self.readouts: list[list[dict[str, Any]]] = []

    def add(self, chart: Chart | None) -> tuple[Chart, int] | None:
        """Returns (chart, number) for the template; None if there is no chart."""
        if chart is None:
            return None
        self.readouts.append(chart.readout)
        return chart, len(self.readouts) - 1


def _part(room: str, name: str) -> str:
    """Returns the text of a file of ``room``, or of the parts that all rooms share."""
    path = resources.files(room).joinpath("parts", name)
    if not path.is_file():
        path = resources.files("coulomb.report.pages").joinpath("parts", name)
    return path.read_text(encoding="utf-8")


@functools.cache
def _environment(room: str, filters: tuple[tuple[str, Any], ...]) -> jinja2.Environment:
    """Returns the templates of ``room``, which are compiled once per process."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(functools.partial(_part, room)),
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {name: getattr(numbers, name) for name in FORMATS} | dict(filters)
    return environment


def render_page(
    room: str,
    template: str,
    content: Mapping[str, Any],
    *,
    charts: ChartList,
    data: Mapping[str, Any] | None = None,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    filters: Mapping[str, Any] | None = None,
) -> str:
    """Renders a template that extends ``frame.html`` and returns the page.

    All values in ``content`` are escaped. Style and scripts are files of this package; the page's security policy names the
    hash of the script and so lets no other run.

    Args:
        room: the package whose folder ``parts`` has the template, styles and scripts, such as ``"coulomb_lab"``.
        template: file name of the template.
        content: variables of the template.
        charts: the page's charts.
        data: further data for the page's script.
        styles, scripts: file names, added to the shared ones.
        filters: Jinja filters besides the formats of `coulomb.report.pages.numbers`.
    """
    load = functools.partial(_part, room)
    code = "\n".join(load(name).replace('"use strict";\n', "") for name in (*SHARED_SCRIPTS, *scripts))
    script = f'"use strict";\n(() => {{\n{code}}})();\n'
    page = _environment(room, tuple((filters or {}).items())).get_template(template)
    return page.render(
        **content,
        style=Markup("".join(map(load, ("page.css", *styles)))),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        script_data={"charts": charts.readouts} | dict(data or {}),
    )


def check_target(out: Path | str) -> Path:
    """Returns ``out`` as a path.

    Raises:
        InputError: it is a folder, or its folder does not exist.
    """
    target = Path(out)
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"out={str(out)!r}: not a file in an existing folder; give one such as page.html")
    return target


def write_page(target: Path, text: str) -> Path:
    """Writes ``text`` to ``target`` atomically, so that a reader never sees half of a page."""
    write_atomically(target, text.encode("utf-8"))
    return target
