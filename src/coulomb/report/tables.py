"""The results of an evaluation as aligned text for the terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.evaluation.one_column_verdict import ONE_COLUMN_CONTESTANTS
from coulomb.evaluation.pair_verdict import PAIR_CONTESTANTS
from coulomb.ground.errors import counted
from coulomb.ground.text import visible

CONFUSED = 5  # pairs of classes that are shown
SHOTS = ("1", "5", "10")
# Heading of a column → place of the number in an evaluation, keys separated by dots.
ACCURACY = {"kNN": "knn", "linear": "linear", "classifier": "classifier"}
FEW_SHOT = {f"{count} label{'' if count == '1' else 's'}": f"few_shot.{count}" for count in SHOTS}
VIEWS = {"view R@1": "view_retrieval"}
MATCHING = {  # of runs on two columns; the arrows are explained below the table
    f"{title} {arrow}": f"{way}.{place}"
    for arrow, way in (("→", "first_to_second"), ("←", "second_to_first"))
    for title, place in {**{f"R@{k}": f"recall_at.{k}" for k in ("1", "5", "10")}, "MRR": "mrr"}.items()
}
SCORED = {"Spearman": "scored_pairs.spearman.value", "Pearson": "scored_pairs.pearson.value"}
GEOMETRY = {name.replace("_", " "): f"geometry.{name}" for name in ("alignment", "uniformity", "effective_rank")}
NO_PERCENT = ("nmi", "ari", "mrr", "spearman.value", "pearson.value", "alignment", "uniformity", "effective_rank")
STRUCTURE = {
    **{f"R@{k}": f"retrieval.recall_at.{k}" for k in ("1", "5", "10")},
    "MAP@R": "retrieval.map_at_r",
    "R-prec.": "retrieval.r_precision",
    "NMI": "clustering.nmi",
    "ARI": "clustering.ari",
    "clusters": "clustering.accuracy",
}


def evaluation_table(result: Mapping[str, Any]) -> str:
    """Returns tables of zero-shot and other classification, retrieval, fine-tuning, classes by frequency, then the verdict.

    Of a run on two columns: retrieval in both directions, then the verdict. Of a run on one column: classification and
    retrieval by labels, or correlations with scored pairs; geometry; then the verdict.
    """
    if "column" in result:
        return _one_column(result)
    if "columns" in result:
        return "\n\n".join(part for part in (_matching(result), _verdict(result)) if part)
    classified = result[_measured(result)[0]].get("classifier") is not None
    ways = {title: key for title, key in ACCURACY.items() if classified or key != "classifier"}
    views = {} if "zero_shot" in result else VIEWS
    parts = [_zero_shot(result), _table(result, "", ways | FEW_SHOT | views, _measured(result))]
    found = [name for name in _measured(result) if result[name].get("retrieval") or result[name].get("clustering")]
    parts += [_table(result, "class retrieval", STRUCTURE, found), _fine_tuning(result), _frequency(result)]
    parts += [_filled((result.get("drift") or {}).get("note", "")), _verdict(result)]
    return "\n\n".join(part for part in parts if part)


def _measured(result: Mapping[str, Any]) -> list[str]:
    """The contestants of an evaluation; only runs that start from weights have a starting point."""
    return [name for name in CONTESTANTS if result.get(name)]


def _table(
    result: Mapping[str, Any],
    title: str,
    columns: Mapping[str, str],
    names: Sequence[str],
    titles: Mapping[str, str] = CONTESTANTS,
) -> str:
    rows = [[titles[name], *(_cell(result[name], place) for place in columns.values())] for name in names]
    return aligned([title, *columns], rows) if rows else ""


def _cell(figures: Mapping[str, Any], place: str) -> str:
    value: Any = figures
    for key in place.split("."):
        value = (value or {}).get(key)
    if isinstance(value, Mapping):
        return _spread(value["mean"], value["std"])
    return f"{value:.3f}" if value is not None and place.endswith(NO_PERCENT) else _percent(value)


def _matching(result: Mapping[str, Any]) -> str:
    """Recall and MRR of each contestant, from the first column to the second and back."""
    first, second = result["columns"]
    names = [name for name in PAIR_CONTESTANTS if result.get(name)]
    keys = " and ".join(str(result["trained"][way]["keys"]) for way in ("first_to_second", "second_to_first"))
    note = f"→ {first} to {second}, ← back, among {keys} distinct cells that were held out"
    return _table(result, "", MATCHING, names, PAIR_CONTESTANTS) + "\n" + note


def _one_column(result: Mapping[str, Any]) -> str:
    """Figures of each contestant of a run on one column, as far as there is something to judge by."""
    titles = ONE_COLUMN_CONTESTANTS
    names = [name for name in titles if result.get(name)]
    classified = [name for name in names if result[name].get("knn") is not None]
    found = [name for name in names if result[name].get("retrieval") or result[name].get("clustering")]
    scored = [name for name in names if result[name].get("scored_pairs")]
    embedded = [name for name in names if result[name].get("geometry")]
    ways = {title: key for title, key in ACCURACY.items() if key != "classifier"}
    parts = [
        _table(result, "", ways | FEW_SHOT, classified, titles),
        _table(result, "class retrieval", STRUCTURE, found, titles),
        _scored(result, scored),
        _table(result, "geometry", GEOMETRY, embedded, titles),
        _verdict(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _scored(result: Mapping[str, Any], names: Sequence[str]) -> str:
    """Correlations with scored pairs, with their intervals; of pairs of another file also what was measured, and the gains."""
    if not names:
        return ""
    head, rows = ["scored pairs", *(part for title in SCORED for part in (title, "95% interval"))], []
    titles = ONE_COLUMN_CONTESTANTS | ({} if "trained" in result else {"starting_point": "published weights"})
    for name in names:
        row = [titles[name]]
        for place in SCORED.values():
            figure = result[name]["scored_pairs"][place.split(".")[1]]
            row += [f"{figure['value']:.3f}", f"{figure['low']:.3f} to {figure['high']:.3f}"]
        rows.append(row)
    lines = [aligned(head, rows)]
    protocol = result["protocol"]
    if "pairs_measured" in protocol:
        lines += [_filled(line) for line in (_what_was_scored(protocol), *_gains(result["comparison"]))]
    return "\n".join(lines)


def _what_was_scored(protocol: Mapping[str, Any]) -> str:
    columns, cut = ", ".join(visible(name, 40) for name in protocol["columns"]), protocol["texts_cut"]
    return (
        f"{counted(protocol['pairs_measured'], 'pair')} of {visible(protocol['name'], 60)} ({columns}), "
        f"{protocol['similarity']}; {protocol['pairs_left_out']} left out for a missing text or score"
        + (f"; {counted(cut, 'long text')} cut" if cut else "")
    )


def _gains(comparison: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences of Spearman's correlation from the trained encoder's, over the same pairs."""
    titles = ONE_COLUMN_CONTESTANTS | {"untrained": ONE_COLUMN_CONTESTANTS["random_init"]}
    return [
        f"Spearman, trained encoder over {titles[each['against']]}: {row['difference']:+.3f} "
        f"(95% interval {row['low']:+.3f} to {row['high']:+.3f})"
        for each in comparison
        for row in each["measurements"].values()
    ]


def _zero_shot(result: Mapping[str, Any]) -> str:
    """Accuracy by the names of the classes, beside chance, and the classes that are most often taken for another one."""
    found = result.get("zero_shot")
    if not found:
        return ""
    ks = [k for k in found["top"] if int(k) < len(found["classes"])]  # others are always right
    head = ["zero-shot, by the words of the classes", *(f"top-{k}" for k in ks), "balanced"]
    rows = [
        [title, *(_percent(row["top"][k]) for k in ks), _percent(row["balanced_accuracy"])]
        for title, row in (("trained encoder", found), ("chance", found["chance"]))
    ]
    wrong = [
        (count, visible(found["classes"][true], 30), visible(found["classes"][taken], 30), sum(line))
        for true, line in enumerate(found["confusion"])
        for taken, count in enumerate(line)
        if taken != true and count
    ]
    lines = [
        f"  {true} taken for {taken}: {count} of {total}"
        for count, true, taken, total in sorted(wrong, key=lambda each: -each[0])[:CONFUSED]
    ]
    prompts = ", ".join(repr(visible(prompt, 60)) for prompt in found["protocol"]["prompts"])
    note = f"{found['protocol']['test']} held-out images, {len(found['classes'])} classes; prompts: {prompts}"
    return "\n".join([aligned(head, rows), note, *(["most frequent mistakes:", *lines] if lines else [])])


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
    ways = {title: key for title, key in ACCURACY.items() if all(key in group for group in groups.values())}
    head = ["training images", *(f"{name} ({group['classes']} classes)" for name, group in groups.items())]
    rows = [
        [f"{CONTESTANTS[first]}, {title}", *(_percent(group[key]) for group in groups.values())]
        for title, key in ways.items()
    ]
    return aligned(head, rows)


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
    columns = ACCURACY | FEW_SHOT | {"MAP@R": STRUCTURE["MAP@R"]} | VIEWS | MATCHING | SCORED
    figures = summary["figures"]
    columns = {title: key for title, key in columns.items() if any(key in row for row in figures.values())}
    rows = []
    titles = PAIR_CONTESTANTS if set(columns) & set(MATCHING) else CONTESTANTS | ONE_COLUMN_CONTESTANTS
    for name in filter(titles.__contains__, figures):
        cells = {key: figures[name].get(key) for key in columns.values()}
        rows.append([titles[name], *("–" if cell is None else _varied(key, cell) for key, cell in cells.items())])
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


def _varied(place: str, cell: Mapping[str, float]) -> str:
    if place.endswith(NO_PERCENT):
        return f"{cell['mean']:.3f} ±{cell['std']:.3f}"
    return _spread(cell["mean"], cell["std"])


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _spread(mean: float, std: float) -> str:
    return f"{mean:.1%} ±{std:.1%}"
