"""The result of an experiment as plain text."""

from collections.abc import Callable
from typing import Any

from coulomb.report.wording import count, duration, figure, percent

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
        lines += ["", one["title"], *_aligned([one["head"], *(_lines(row) for row in one["rows"])])]
    return "\n".join([*lines, "", *(f"note: {note}" for note in result["notes"])])


def _lines(row: list[str]) -> list[str]:
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
