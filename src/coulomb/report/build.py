"""Run folder → ``report.html``, one page that needs no network."""

import dataclasses
from pathlib import Path
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.evaluation.level import RULES
from coulomb.evaluation.next_steps import CAUSE
from coulomb.evaluation.one_column_verdict import ONE_COLUMN_RULES
from coulomb.evaluation.pair_verdict import PAIR_RULES
from coulomb.report.collect import RunData, read_run
from coulomb.report.column_section import ColumnSection, column_section
from coulomb.report.doctor_section import doctor_section
from coulomb.report.embedding_charts import plane_chart, similarity_section, spectrum_chart, trajectory
from coulomb.report.facts import command_line, data_section, header
from coulomb.report.gallery import make_gallery, picture, sprite_sheet
from coulomb.report.pages.numbers import NARROW
from coulomb.report.pages.page import ChartList, check_target, render_page, write_page
from coulomb.report.pair_section import PairSection, cosine_text, pair_section, pictured
from coulomb.report.scores import class_bars, class_rows, confusion_matrix, frequencies, further_scores, scores
from coulomb.report.shown_views import read_shown_views
from coulomb.report.training_charts import live_recall_chart, loss_chart, progress_chart, small_charts
from coulomb.report.verdict_section import verdict_section

STYLES = ("report.css", "doctor.css", "figures.css", "map.css", "compare.css")
SCRIPTS = ("similarity.js", "atlas.js", "lasso.js", "coloring.js", "start.js")


def build_report(run: Path | str, out: Path | str | None = None) -> Path:
    """Writes ``report.html`` into the run folder ``run``, or the page to ``out``, and returns its path.

    The page is one file that works offline: pictures, style and script are embedded, and its security policy forbids
    requests. Parts of the run that are missing or damaged are named on the page. The file is replaced atomically.

    Raises:
        InputError: ``run`` is not a run folder, or ``out`` cannot be a file.
    """
    data = read_run(run)
    return write_page(data.folder / "report.html" if out is None else check_target(out), render_report(data))


def render_report(run: RunData) -> str:
    """Returns the page as text."""
    pairs = pair_section(run)
    if pairs is not None:
        return _render_pairs(run, pairs)
    column = column_section(run)
    if column is not None:
        return _render_column(run, column)
    gallery = make_gallery(run)
    sheet = sprite_sheet(run.samples.thumbnails) if run.samples is not None else None
    charts = ChartList()
    similarity = similarity_section(run)
    content = {
        **_frame(run),
        "verdict": verdict_section(run),
        "doctor": doctor_section(run),
        "rules": RULES,
        "loss": charts.add(loss_chart(run)),
        "knn": charts.add(progress_chart(run)),
        "plane": charts.add(plane_chart([trajectory(run)])),
        "spectrum": charts.add(spectrum_chart(run)),
        "small": [(name, [charts.add(chart) for chart in members]) for name, members in small_charts(run)],
        "similarity": similarity,
        **_evaluation(run),
        "gallery": gallery,
        "sheet": sheet,
        "views": _views(run),
    }
    data = {
        "map": gallery.for_script() if gallery else None,
        "similarity": [[s.epoch, s.paths, s.sentence] for s in similarity.snapshots] if similarity else [],
        "columns": sheet.columns if sheet else 1,
        "first": gallery.queries[0] if gallery and gallery.queries else -1,
    }
    return render_page(
        "coulomb.report", "report.html", content, charts=charts, data=data, styles=STYLES, scripts=SCRIPTS
    )


def _render_pairs(run: RunData, pairs: PairSection) -> str:
    """Returns the page of a run on two columns."""
    charts, verdict, doctor = ChartList(), verdict_section(run), doctor_section(run)
    steps = [step for step in verdict.next if step != CAUSE or doctor is None]  # the doctor is on the page
    content = {
        **_frame(run),
        "verdict": dataclasses.replace(verdict, score=pairs.tiles, next=steps),
        "doctor": doctor,
        "rules": PAIR_RULES,
        "loss": charts.add(loss_chart(run)),
        "live": charts.add(live_recall_chart(run)),
        "small": [(name, [charts.add(chart) for chart in members]) for name, members in small_charts(run)],
        "names": {key: f"{name}, MRR" for key, name in pairs.names.items()},
        "pairs": pairs,
        "curves": [charts.add(direction.curve) for direction in pairs.directions if direction.curve is not None],
        "views": _views(run),
        "pictures": pictured(run),
    }
    return render_page(
        "coulomb.report",
        "pairs.html",
        content,
        charts=charts,
        styles=(*STYLES, "pairs.css"),
        filters={"cosine": cosine_text},
    )


def _render_column(run: RunData, column: ColumnSection) -> str:
    """Returns the page of a run on one column."""
    charts, shown = ChartList(), read_shown_views(run)
    content = {
        **_frame(run),
        "verdict": dataclasses.replace(verdict_section(run), score=column.tiles),
        "doctor": doctor_section(run),
        "rules": ONE_COLUMN_RULES,
        "loss": charts.add(loss_chart(run)),
        "small": [(name, [charts.add(chart) for chart in members]) for name, members in small_charts(run)],
        "names": column.names,
        "column": column,
        "shown": shown,
        "views": _views(run),
        "pictures": pictured(run),
    }
    return render_page(
        "coulomb.report",
        "column.html",
        content,
        charts=charts,
        styles=(*STYLES, "pairs.css"),
        filters={"cosine": cosine_text},
    )


def _frame(run: RunData) -> dict[str, Any]:
    """Returns what pages of all runs begin and end with."""
    return {
        "run": run,
        "head": header(run),
        "data": data_section(run),
        "command": command_line(run.config),
        "protocol": _protocol(run),
        "problems": run.problems,
    }


def _evaluation(run: RunData) -> dict[str, Any]:
    return {
        "names": {key: name for key, name in CONTESTANTS.items() if key != "starting_point" or key in run.evaluation},
        "rows": scores(run.evaluation),
        "further": further_scores(run.evaluation),
        "frequencies": frequencies(run.evaluation),
        "classes": class_rows(run.evaluation),
        "bars": class_bars(run.evaluation),
        "confusion": confusion_matrix(run),
        "drift": _drift_note(run.evaluation.get("drift")),
        "transfers": [
            (str(protocol.get("name", "other data")), scores(result) + further_scores(result))
            for result in run.transfers
            if isinstance(protocol := result.get("protocol"), dict)
        ],
    }


def _drift_note(drift: Any) -> str:
    note = drift.get("note") if isinstance(drift, dict) else None
    return note.replace("%", f"{NARROW}%") if isinstance(note, str) else ""


def _views(run: RunData) -> tuple[str, int, int] | None:
    if run.views is None:
        return None
    try:
        return picture(run.views)
    except ValueError:
        run.problems.append("views.png is not a readable picture.")
        return None


def _protocol(run: RunData) -> dict[str, Any]:
    """Flattens the evaluation protocol; settings of one measurement are named after it, as in "knn k"."""
    trained = run.evaluation.get("trained")
    protocols = [holder.get("protocol") for holder in (trained, run.evaluation) if isinstance(holder, dict)]
    merged = {key: value for protocol in protocols if isinstance(protocol, dict) for key, value in protocol.items()}
    merged.pop("versions", None)  # shown in the table of versions
    flat: dict[str, Any] = {}
    for key, value in merged.items():
        inner = value if isinstance(value, dict) else {"": value}
        flat |= {f"{key} {name}".strip(): item for name, item in inner.items() if not isinstance(item, dict)}
    return {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in flat.items()}
