"""The result of an experiment → one HTML page that asks nothing of any network, in the report's style."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.lab.curves import chart_of
from coulomb.lab.text import BASELINES, cell, mark
from coulomb.models.saving import write_atomically
from coulomb.report.wording import count, shorten


def save_page(result: dict[str, Any], folder: Path) -> Path:
    """Write ``NAME.html`` into the folder; returns its path. The figures are in ``result.json`` beside it."""
    path = folder / f"{result['experiment']}.html"
    write_atomically(path, render_page(result).encode("utf-8"))
    return path


def render_page(result: dict[str, Any]) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader({"page.html": _part("coulomb.lab", "page.html")}),
    )
    environment.filters |= {"cell": cell, "mark": mark, "shorten": shorten, "count": count}
    return environment.get_template("page.html").render(
        result=result,
        style=Markup(_part("coulomb.report", "page.css") + _part("coulomb.lab", "page.css")),  # our own files
        rows=[(name, BASELINES.get(name, name), name in BASELINES, found) for name, found in result["rows"].items()],
        best=best(result),
        charts=[chart for found in result["charts"] if (chart := chart_of(found)) is not None],
        verdict=verdict(result["claims"]),
        facts=facts(result),
    )


def best(result: dict[str, Any]) -> dict[str, float]:
    """The best figure of every column of accuracies."""
    found: dict[str, float] = {}
    for key, _, kind in result["columns"]:
        figures = [row[key] for row in result["rows"].values() if row.get(key) is not None]
        if kind == "percent" and figures:
            found[key] = max(figures)
    return found


def verdict(claims: list[dict[str, Any]]) -> str:
    """How many of the claims hold, in a sentence."""
    judged = [claim for claim in claims if claim["holds"] is not None]
    if not judged:
        return "None of the claims could be judged by these runs."
    held = sum(claim["holds"] for claim in judged)
    told = f"{held} of {len(judged)} claims hold here" if held < len(judged) else f"All {held} claims hold here"
    doubtful = sum(bool(claim.get("chance")) for claim in judged)
    return told + (f"; {doubtful} of the verdicts may be chance." if doubtful else ".")


def facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What was run, in words."""
    settings, protocol = result["settings"], result["protocol"]
    runs = [found for name, found in result["rows"].items() if name not in BASELINES]
    told = [("data", settings["data"]), ("runs", str(len(runs))), ("encoder", protocol.get("encoder"))] if runs else []
    told.append(("seeds each", str(len(result["seeds"])) if runs and len(result.get("seeds", [])) > 1 else None))
    told.append(("image size", protocol.get("image size")))
    if settings["budget"]:
        told.append(("training each", f"{settings['budget']:g} min"))
    if result.get("counts"):
        told.append(
            ("training images a class", f"{max(result['counts']):,} … {min(c for c in result['counts'] if c):,}")
        )
    told.append(("quick look", "yes" if settings["quick"] else None))
    return [(name, str(value)) for name, value in told if value is not None]


def _part(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
