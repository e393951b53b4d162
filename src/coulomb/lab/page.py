"""The result of an experiment as text and as an HTML page."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.models.saving import write_atomically
from coulomb.pages.chart import Tick, ticks
from coulomb.pages.numbers import count, duration, figure, percent, shorten

WRITE: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "figure": figure,
    "count": count,
    "duration": duration,
    "text": str,
}
BASELINES = {"untrained": "untrained encoder", "raw_pixels": "raw pixels"}
MARKS = {True: "holds here", False: "does not hold here", None: "not measured"}

CHANCE = ", perhaps by chance"


def mark(claim: dict[str, Any]) -> str:
    """The verdict on a claim."""
    return MARKS[claim["holds"]] + (CHANCE if claim.get("chance") else "")


def cell(value: Any, kind: str, std: float | None = None) -> str:
    """A figure as it is written everywhere, and its deviation over seeds; '–' where there is none."""
    if value is None:
        return "–"
    if std is None or kind in ("text", "count", "duration"):
        return WRITE[kind](value)
    return (
        f"{WRITE[kind](value)} ± {100 * std:.1f}" if kind == "percent" else f"{WRITE[kind](value)} ± {figure(std, 2)}"
    )


def render(result: dict[str, Any]) -> str:
    """Title, table, claims, the optimum where there is one, notes."""
    columns, rows = result["columns"], result["rows"]
    table = [["", *(heading for _, heading, _ in columns)]]
    for name, found in rows.items():
        label = BASELINES.get(name, name)
        if "failed" in found:
            table.append([label, f"failed: {found['failed']}"])
        else:
            table.append([label, *(cell(found.get(key), kind, found.get(f"{key}_std")) for key, _, kind in columns)])
    lines = [result["title"], result["question"], "", *(_aligned(table) if rows else []), ""]
    for claim in result["claims"]:
        lines += [
            f"{mark(claim).upper()}: {claim['claim']}",
            f"    here: {claim['measured']}",
            f"    published: {claim['published']}",
        ]
    if result.get("optimum"):
        lines += ["", "where the losses come to rest, by free-logit optimisation"]
        listed = [["", "formula", "expected", "found", "off by"]]
        listed += [
            [row["what"], row["formula"], f"{row['expected']:.5f}", f"{row['found']:.5f}", f"{row['error']:.3%}"]
            for row in result["optimum"]
        ]
        lines += _aligned(listed)
    for one in result.get("tables", []):
        lines += ["", one["title"], *_aligned([one["head"], *(_flat(row) for row in one["rows"])])]
    return "\n".join([*lines, "", *(f"note: {note}" for note in result["notes"])])


def _flat(row: list[str]) -> list[str]:
    return [text.replace("\n", " · ") for text in row]


def _aligned(table: list[list[str]]) -> list[str]:
    whole = [row for row in table if len(row) == len(table[0])]
    widths = [max(len(row[column]) for row in whole) for column in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    return ["  ".join(_padded(row, widths)) for row in table]


def _padded(row: list[str], widths: list[int]) -> list[str]:
    if len(row) != len(widths):
        return [row[0].ljust(widths[0]), *row[1:]]
    return [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]


MOST_CURVES = 8  # colours that can be told apart; the page lists what is left out


@dataclass(frozen=True)
class Curve:
    """A line with dots: SVG paths in a 1000 × 1000 box, a colour number; ``bars`` reach one deviation up and down."""

    name: str
    colour: int
    line: str
    dots: str
    bars: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """What the template draws."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    curves: list[Curve]
    summary: str
    notes: list[str]


def chart_of(found: dict[str, Any]) -> Chart | None:
    """A chart of the result's ``{"title", "x_label", "y_label", "log_x", "percent", "series": [{"name", "points"}]}``.

    A point is (x, y) or (x, y, deviation). Points that are not finite (and on a logarithmic axis not positive) are left out;
    None where nothing is left. Options: ``path``: the points are joined in their own order and the last is the end, not by
    x; ``note``: a line below. A series may be ``dashed`` (not measured here), ``smooth`` (no
    dots) or ``scattered`` (no line).
    """
    log_x, write = bool(found.get("log_x")), percent if found.get("percent") else figure
    path = bool(found.get("path"))
    dashed, smooth, scattered = (
        {one["name"] for one in found["series"] if one.get(how)} for how in ("dashed", "smooth", "scattered")
    )
    series = [(one["name"], _finite(one["points"], log_x)) for one in found["series"]]
    series = [(name, points if path else sorted(points)) for name, points in series if points]
    if not series:
        return None
    shown = series[:MOST_CURVES]
    xs = [x for _, points in shown for x, _, _ in points]
    ys = [y + side * std for _, points in shown for _, y, std in points for side in (-1, 1)]
    place = math.log10 if log_x else float
    left, right = place(min(xs)), place(max(xs))
    limits = (0.0, 1.0) if found.get("percent") else (-math.inf, math.inf)
    y_ticks = ticks(min(ys), max(ys), limits=limits)
    bottom, top = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return 50.0 if right == left else 100 * (place(x) - left) / (right - left)

    def down(y: float) -> float:
        return 50.0 if top == bottom else 100 * (top - y) / (top - bottom)

    curves = []
    for colour, (name, points) in enumerate(shown):
        places = [(10 * across(x), 10 * down(y)) for x, y, _ in points]
        line = (
            "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in places) if len(places) > 1 and name not in scattered else ""
        )
        dotted = [] if name in smooth and line else places[-1:] if path else places
        dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in dotted)
        bars = "".join(
            f"M{10 * across(x):.0f} {10 * down(y - std):.0f}V{10 * down(y + std):.0f}" for x, y, std in points if std
        )
        curves.append(Curve(name, colour, line, dots, bars, name in dashed))
    left_out = [name for name, _ in series[MOST_CURVES:]]
    return Chart(
        found["title"],
        found["x_label"],
        found["y_label"],
        [Tick(round(across(x), 2), _written(x)) for x in _x_ticks(xs, log_x)],
        [Tick(round(down(y), 2), write(y)) for y in y_ticks],
        curves,
        f"{found['title']}: " + "; ".join(f"{name} ends at {write(points[-1][1])}" for name, points in shown),
        [text for text in (found.get("note"), f"Not drawn: {', '.join(left_out)}." if left_out else "") if text],
    )


def _x_ticks(xs: list[float], log_x: bool) -> list[float]:
    """On a logarithmic axis the values themselves where they are few, else powers of ten."""
    if not log_x:
        return ticks(min(xs), max(xs), tight=True)
    values = sorted(set(xs))
    if len(values) <= 6:
        return values
    powers = [10.0**k for k in range(math.ceil(math.log10(values[0])), math.floor(math.log10(values[-1])) + 1)]
    return powers if len(powers) > 1 else [values[0], values[-1]]


def _finite(points: list[Any], log_x: bool) -> list[tuple[float, float, float]]:
    there = [(x, y, std or 0.0) for x, y, std in ((*point, 0.0)[:3] for point in points)]
    return [(x, y, std) for x, y, std in there if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x)]


def _written(x: float) -> str:
    return f"{x:,.0f}" if x >= 1 and abs(x - round(x)) < 1e-9 else figure(x, 2).rstrip("0").rstrip(".") if x else "0"


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
