"""The figures of an evaluation as aligned text, for the terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

CONTESTANTS = ("trained", "random_init", "raw_pixels")
SHOTS = ("1", "5", "10")


def evaluation_table(result: Mapping[str, Any]) -> str:
    """Tables of classification, retrieval and clustering, fine-tuning and classes by frequency, then the verdict."""
    parts = [_classification(result), _structure(result), _fine_tuning(result), _frequency(result), _verdict(result)]
    return "\n\n".join(part for part in parts if part)


def _classification(result: Mapping[str, Any]) -> str:
    own = result["trained"].get("classifier")
    head = ["kNN", "linear"] + (["classifier"] if own is not None else [])
    rows = []
    for name in CONTESTANTS:
        row = result[name]
        shots = [(row["few_shot"] or {}).get(count) for count in SHOTS]
        cells = [percent(row["knn"]), percent(row["linear"])]
        cells += [percent(row.get("classifier"))] if own is not None else []
        cells += ["–" if shot is None else spread(shot["mean"], shot["std"]) for shot in shots]
        rows.append([words(name), *cells, percent(row.get("view_retrieval"))])
    return aligned(["", *head, "1 label", "5 labels", "10 labels", "view R@1"], rows)


def _structure(result: Mapping[str, Any]) -> str:
    rows = []
    for name in CONTESTANTS:
        found, clusters = result[name].get("retrieval"), result[name].get("clustering")
        if found or clusters:
            found, clusters = found or {}, clusters or {}
            recall = [percent((found.get("recall_at") or {}).get(k)) for k in ("1", "5", "10")]
            rest = [percent(found.get(key)) for key in ("map_at_r", "r_precision")]
            rows.append([words(name), *recall, *rest, *(number(clusters.get(key)) for key in ("nmi", "ari"))])
            rows[-1].append(percent(clusters.get("accuracy")))
    head = ["class retrieval", "R@1", "R@5", "R@10", "MAP@R", "R-prec.", "NMI", "ARI", "clusters"]
    return aligned(head, rows) if rows else ""


def _fine_tuning(result: Mapping[str, Any]) -> str:
    tuned = {name: found for name in CONTESTANTS if (found := result[name].get("fine_tune"))}
    if not tuned:
        return ""
    first = next(iter(tuned.values()))
    head = ["fine-tuned with", *(f"{float(share):.3g} of labels ({first[share]['labels']})" for share in first)]
    return aligned(
        head, [[words(n), *(percent(run["accuracy"]) for run in found.values())] for n, found in tuned.items()]
    )


def _frequency(result: Mapping[str, Any]) -> str:
    """Only where the training images differ enough to be of two groups."""
    groups = {name: group for name, group in (result["trained"].get("by_frequency") or {}).items() if group}
    if len(groups) < 2:
        return ""
    ways = [way for way in ("knn", "linear", "classifier") if all(way in group for group in groups.values())]
    names = {"knn": "trained, kNN", "linear": "trained, linear", "classifier": "trained, classifier"}
    head = ["training images", *(f"{name} ({group['classes']} classes)" for name, group in groups.items())]
    return aligned(head, [[names[way], *(percent(group[way]) for group in groups.values())] for way in ways])


def _verdict(result: Mapping[str, Any]) -> str:
    """Title, figures and what to try next; '' without one, as for other data."""
    found = result.get("verdict")
    if not found:
        return ""
    told = [f"{found['title']}. {found['sentence']}", *found["remarks"], *(f"Next: {step}" for step in found["next"])]
    return "\n".join(textwrap.fill(each, 120, subsequent_indent="  ") for each in told)


def summary_table(summary: Mapping[str, Any]) -> str:
    """Mean ± deviation over seeds of the most important figures."""
    shown = {
        "kNN": "knn",
        "linear": "linear",
        "classifier": "classifier",
        **{f"{count} label{'s' if count != '1' else ''}": f"few_shot.{count}" for count in SHOTS},
        "MAP@R": "retrieval.map_at_r",
        "view R@1": "view_retrieval",
    }
    held = {title: key for title, key in shown.items() if any(key in found for found in summary["figures"].values())}
    rows = []
    for name, found in summary["figures"].items():
        cells = [found.get(key) for key in held.values()]
        rows.append([words(name), *("–" if cell is None else spread(cell["mean"], cell["std"]) for cell in cells)])
    seeds = ", ".join(map(str, summary["seeds"]))
    return aligned(["", *held], rows) + f"\nmean ± deviation over seeds {seeds}; {summary['protocol']['varies']} vary"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    return "\n".join(lines)


def words(name: str) -> str:
    """A contestant's name without the underscore."""
    return name.replace("_", " ")


def percent(value: float | None) -> str:
    """0.934 → '93.4%'; '–' for None."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Three decimals; '–' for None."""
    return "–" if value is None else f"{value:.3f}"


def spread(mean: float, std: float) -> str:
    """Mean ± deviation in percent."""
    return f"{mean:.1%} ±{std:.1%}"
