"""Converts the docstrings of the library for autodoc.

They are plain text with `code`, formulas and indented drawings, without reStructuredText directives.
"""

import re
from typing import Any

import build_losses
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

SHARED = ("Args:", "Returns:", "Raises:", "Attributes:", "Yields:", "Shape:")


def _loss(name: str) -> list[str]:
    """Returns the formula and the description of a loss; its page, made from the same docstring, has the rest."""
    everything = build_losses.LOSSES | build_losses.PARTS
    found = build_losses.sections(everything[name].__doc__ or "")
    text = re.sub(r"(?<!`)`([\w.]+)`(?!`)", r"``\1``", found["Text"])
    page = f"/losses/{name}" if name in build_losses.LOSSES else "/losses/parts"
    return [
        *(["::", "", *[f"    {line}" for line in re.split(r",?  (?=\S)", found["Formula"])]]),
        "",
        *text.splitlines(),
        "",
        f":doc:`Its page: when to use it, arguments, example, cost <{page}>`.",
        "",
    ]


def _escaped(line: str) -> str:
    """Escapes characters outside ``code`` that reStructuredText would read as markup."""
    parts = re.split(r"(``.+?``|`[^`]+`)", line)
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(r"(?<![\w*])(\*\*?)(?=\w)", lambda m: "\\" + "\\".join(m[1]), parts[place])
        parts[place] = parts[place].replace("|", "\\|")
        parts[place] = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", parts[place])
    return "".join(parts)


def prepare(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Changes ``lines`` in place, before napoleon reads the sections."""
    short = name.rpartition(".")[2]
    if what == "class" and name.startswith("coulomb.losses.") and short in build_losses.LOSSES | build_losses.PARTS:
        lines[:] = _loss(short)
        return
    out: list[str] = []
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        drawn = re.match(r" {4,}\S", line) and not before.strip() and not _in_section(lines[:number])
        if drawn:
            out += ["::", ""]
        code = bool(out) and _in_drawing(out, line)
        out.append(line if code or line.startswith((">>>", "...")) else _escaped(line))
    lines[:] = out


def _in_section(before: list[str]) -> bool:
    """Returns True if the last line without indentation starts a section such as Args."""
    margin = [line for line in before if line.strip() and not line.startswith(" ")]
    return bool(margin) and margin[-1].strip() in SHARED


def _in_drawing(out: list[str], line: str) -> bool:
    """Returns True if ``line`` belongs to the literal block above it."""
    if line.strip() and not line.startswith("    "):
        return False
    return any(
        row == "::" and all(later.startswith("    ") or not later.strip() for later in out[place + 1 :])
        for place, row in enumerate(out)
    )


def by_last_name(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Resolves `InputError` to coulomb.ground.errors.InputError if no other object has that name."""
    short = node.get("reftarget", "").rpartition(".")[2]
    objects = env.domains["py"].objects
    matches = {entry.node_id: (name, entry) for name, entry in objects.items() if name.rpartition(".")[2] == short}
    if node.get("refdomain") != "py" or len(matches) != 1:
        return None
    name, entry = next(iter(matches.values()))
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers `prepare` before napoleon, and `by_last_name`."""
    app.connect("missing-reference", by_last_name)
    app.connect("autodoc-process-docstring", prepare, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
