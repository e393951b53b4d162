"""The result of an experiment as text and as an HTML page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coulomb.report.pages.chart import UNLIMITED, Chart, Series, line_chart
from coulomb.report.pages.numbers import count, duration, percent, significant
from coulomb.report.pages.page import ChartList, render_page, write_page

FORMATS: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "figure": significant,
    "count": count,
    "duration": duration,
    "text": str,
}
BASELINES = {"untrained": "untrained encoder", "raw_pixels": "raw pixels"}
OUTCOMES = {True: "holds here", False: "does not hold here", None: "not measured"}


def outcome(claim: dict[str, Any]) -> str:
    """Returns whether a claim holds in these runs."""
    return OUTCOMES[claim["holds"]] + (", perhaps by chance" if claim.get("chance") else "")


def cell(value: Any, kind: str, std: float | None = None) -> str:
    """Formats a value of a column with its standard deviation over seeds; '–' if there is none."""
    if value is None:
        return "–"
    text = FORMATS[kind](value)
    if std is None or kind in ("text", "count", "duration"):
        return text
    return f"{text} ± {100 * std:.1f}" if kind == "percent" else f"{text} ± {significant(std, 2)}"


def render_text(result: dict[str, Any]) -> str:
    """Returns title, table, claims, minima of the losses if there are any, further tables and notes."""
    columns, rows = result["columns"], result["rows"]
    table = [["", *(heading for _, heading, _ in columns)]]
    for name, row in rows.items():
        label = BASELINES.get(name, name)
        if "failed" in row:
            table.append([label, f"failed: {row['failed']}"])
        else:
            table.append([label, *(cell(row.get(key), kind, row.get(f"{key}_std")) for key, _, kind in columns)])
    lines = [result["title"], result["question"], "", *(_aligned(table) if rows else []), ""]
    for claim in result["claims"]:
        lines += [
            f"{outcome(claim).upper()}: {claim['claim']}",
            f"    here: {claim['measured']}",
            f"    published: {claim['published']}",
        ]
    if result.get("optimum"):
        lines += ["", "Minima of the losses over free logits"]
        optima = [["", "formula", "expected", "numerical", "error"]]
        optima += [
            [row["what"], row["formula"], f"{row['expected']:.5f}", f"{row['found']:.5f}", f"{row['error']:.3%}"]
            for row in result["optimum"]
        ]
        lines += _aligned(optima)
    for one in result.get("tables", []):
        cells = ([text.replace("\n", " · ") for text in row] for row in one["rows"])
        lines += ["", one["title"], *_aligned([one["head"], *cells])]
    return "\n".join([*lines, "", *(f"note: {note}" for note in result["notes"])])


def _aligned(table: list[list[str]]) -> list[str]:
    """Right-aligned columns after the first; a shorter row, the reason of a failed run, is not aligned."""
    whole = [row for row in table if len(row) == len(table[0])]
    widths = [max(len(row[column]) for row in whole) for column in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + (
                [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
                if row in whole
                else row[1:]
            )
        )
        for row in table
    ]


def save_page(result: dict[str, Any], folder: Path) -> Path:
    """Writes ``NAME.html`` into the folder of ``result.json``, and returns its path."""
    return write_page(folder / f"{result['experiment']}.html", render_html(result))


def render_html(result: dict[str, Any]) -> str:
    """Returns the page as text."""
    charts = ChartList()
    content = {
        "result": result,
        "rows": [(name, BASELINES.get(name, name), name in BASELINES, row) for name, row in result["rows"].items()],
        "best": _best(result),
        "charts": [charts.add(chart) for spec in result["charts"] if (chart := draw_chart(spec)) is not None],
        "conclusion": conclusion(result["claims"]),
        "facts": _facts(result),
    }
    return render_page(
        "coulomb_lab",
        "lab.html",
        content,
        charts=charts,
        styles=["lab.css"],
        filters={"cell": cell, "outcome": outcome},
    )


def draw_chart(spec: dict[str, Any]) -> Chart | None:
    """Draws a chart of ``result.json``; returns None if there is no finite point.

    A chart has ``title``, ``x_label``, ``y_label`` and ``series`` of ``name`` and ``points`` (x, y) or (x, y, deviation).
    Optional: ``log_x``; ``percent``; ``path``, a trajectory; ``note``. Optional of a series: ``dashed`` for published
    values, ``smooth`` for no dots, ``scattered`` for no line.
    """
    share = bool(spec.get("percent"))
    return line_chart(
        [
            Series(
                one["name"],
                one["points"],
                dashed=bool(one.get("dashed")),
                draw="line" if one.get("smooth") else "dots" if one.get("scattered") else "both",
            )
            for one in spec["series"]
        ],
        title=spec["title"],
        x_label=spec["x_label"],
        y_label=spec["y_label"],
        write=percent if share else significant,
        limits=(0.0, 1.0) if share else UNLIMITED,
        log_x=bool(spec.get("log_x")),
        path=bool(spec.get("path")),
        note=spec.get("note", ""),
    )


def _best(result: dict[str, Any]) -> dict[str, float]:
    """The highest value of every column of accuracies."""
    best: dict[str, float] = {}
    for key, _, kind in result["columns"]:
        values = [row[key] for row in result["rows"].values() if row.get(key) is not None]
        if kind == "percent" and values:
            best[key] = max(values)
    return best


def conclusion(claims: list[dict[str, Any]]) -> str:
    """Returns a sentence on how many claims hold."""
    checked = [claim for claim in claims if claim["holds"] is not None]
    if not checked:
        return "None of the claims can be checked with these runs."
    held = sum(claim["holds"] for claim in checked)
    text = f"{held} of {len(checked)} claims hold here" if held < len(checked) else f"All {held} claims hold here"
    uncertain = sum(bool(claim.get("chance")) for claim in checked)
    return text + (f"; {uncertain} of the results may be chance." if uncertain else ".")


def _facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    settings, protocol = result["settings"], result["protocol"]
    runs = sum(name not in BASELINES for name in result["rows"])
    facts = [("data", settings["data"]), ("runs", str(runs)), ("encoder", protocol.get("encoder"))] if runs else []
    facts.append(("seeds per run", str(len(result["seeds"])) if runs and len(result.get("seeds", [])) > 1 else None))
    facts.append(("image size", protocol.get("image size")))
    if settings["budget"]:
        facts.append(("training time per run", f"{settings['budget']:g} min"))
    if counts := result.get("counts"):
        facts.append(("training images per class", f"{max(counts):,} … {min(c for c in counts if c):,}"))
    facts.append(("quick run", "yes" if settings["quick"] else None))
    return [(name, str(value)) for name, value in facts if value is not None]
