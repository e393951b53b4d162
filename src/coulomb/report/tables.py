"""The results of an evaluation as aligned text for the terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS

SHOTS = ("1", "5", "10")
WAYS = ("knn", "linear", "classifier")


def evaluation_table(result: Mapping[str, Any]) -> str:
    """Returns tables of classification, retrieval, fine-tuning and classes by frequency, then the verdict."""
    parts = [_classification(result), _structure(result), _fine_tuning(result), _frequency(result)]
    parts += [_filled((result.get("drift") or {}).get("note", "")), _verdict(result)]
    return "\n\n".join(part for part in parts if part)


def _measured(result: Mapping[str, Any]) -> list[str]:
    """The contestants of an evaluation; only runs that start from weights have a starting point."""
    return [name for name in CONTESTANTS if result.get(name)]


def _classification(result: Mapping[str, Any]) -> str:
    classified = result[_measured(result)[0]].get("classifier") is not None
    rows = []
    for name in _measured(result):
        row = result[name]
        shots = [(row["few_shot"] or {}).get(count) for count in SHOTS]
        cells = [_percent(row["knn"]), _percent(row["linear"])]
        cells += [_percent(row.get("classifier"))] if classified else []
        cells += ["–" if shot is None else _spread(shot["mean"], shot["std"]) for shot in shots]
        rows.append([CONTESTANTS[name], *cells, _percent(row.get("view_retrieval"))])
    head = [
        "",
        "kNN",
        "linear",
        *(["classifier"] if classified else []),
        "1 label",
        "5 labels",
        "10 labels",
        "view R@1",
    ]
    return aligned(head, rows)


def _structure(result: Mapping[str, Any]) -> str:
    rows = []
    for name in _measured(result):
        retrieval, clusters = result[name].get("retrieval") or {}, result[name].get("clustering") or {}
        if retrieval or clusters:
            cells = [_percent((retrieval.get("recall_at") or {}).get(k)) for k in ("1", "5", "10")]
            cells += [_percent(retrieval.get(key)) for key in ("map_at_r", "r_precision")]
            cells += ["–" if (v := clusters.get(key)) is None else f"{v:.3f}" for key in ("nmi", "ari")]
            rows.append([CONTESTANTS[name], *cells, _percent(clusters.get("accuracy"))])
    head = ["class retrieval", "R@1", "R@5", "R@10", "MAP@R", "R-prec.", "NMI", "ARI", "clusters"]
    return aligned(head, rows) if rows else ""


def _fine_tuning(result: Mapping[str, Any]) -> str:
    tuned = {name: runs for name in _measured(result) if (runs := result[name].get("fine_tune"))}
    if not tuned:
        return ""
    first = next(iter(tuned.values()))
    head = ["fine-tuned with", *(f"{float(share):.3g} of labels ({first[share]['labels']})" for share in first)]
    rows = [[CONTESTANTS[name], *(_percent(run["accuracy"]) for run in runs.values())] for name, runs in tuned.items()]
    return aligned(head, rows)


def _frequency(result: Mapping[str, Any]) -> str:
    """Empty unless the classes fall into at least two groups."""
    first = _measured(result)[0]  # the trained encoder, or published weights
    groups = {name: group for name, group in (result[first].get("by_frequency") or {}).items() if group}
    if len(groups) < 2:
        return ""
    ways = [way for way in WAYS if all(way in group for group in groups.values())]
    head = ["training images", *(f"{name} ({group['classes']} classes)" for name, group in groups.items())]
    names = {"knn": "kNN", "linear": "linear", "classifier": "classifier"}
    return aligned(
        head,
        [[f"{CONTESTANTS[first]}, {names[way]}", *(_percent(group[way]) for group in groups.values())] for way in ways],
    )


def _verdict(result: Mapping[str, Any]) -> str:
    """Empty for evaluations on other data, which have no verdict."""
    verdict = result.get("verdict")
    if not verdict:
        return ""
    lines = [f"{verdict['title']}. {verdict['sentence']}", *verdict["remarks"]]
    lines += [f"Next: {step}" for step in verdict["next"]]
    return "\n".join(map(_filled, lines))


def _filled(line: str) -> str:
    return textwrap.fill(line, 120, subsequent_indent="  ")


def summary_table(summary: Mapping[str, Any]) -> str:
    """Returns mean ± standard deviation over the seeds of the most important results."""
    columns = {
        "kNN": "knn",
        "linear": "linear",
        "classifier": "classifier",
        **{f"{count} label{'s' if count != '1' else ''}": f"few_shot.{count}" for count in SHOTS},
        "MAP@R": "retrieval.map_at_r",
        "view R@1": "view_retrieval",
    }
    figures = summary["figures"]
    columns = {title: key for title, key in columns.items() if any(key in row for row in figures.values())}
    rows = []
    for name, row in figures.items():
        if name not in CONTESTANTS:
            continue
        cells = [row.get(key) for key in columns.values()]
        rows.append(
            [CONTESTANTS[name], *("–" if cell is None else _spread(cell["mean"], cell["std"]) for cell in cells)]
        )
    seeds = ", ".join(map(str, summary["seeds"]))
    note = f"mean ± standard deviation over seeds {seeds}; {summary['protocol']['varies']} vary"
    return aligned(["", *columns], rows) + "\n" + note


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats columns two spaces apart: the first is left-aligned, the others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _spread(mean: float, std: float) -> str:
    return f"{mean:.1%} ±{std:.1%}"
