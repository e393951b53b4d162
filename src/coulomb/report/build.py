"""Run folder → ``report.html``: one page that asks nothing of any network."""

from pathlib import Path
from typing import Any

from coulomb.pages.chart import Chart
from coulomb.pages.page import render_page, target_of, write_page
from coulomb.report.collect import Run, collect
from coulomb.report.doctor_section import doctor_section
from coulomb.report.embedding_charts import plane_chart, similarity_section, spectrum_chart, trajectory
from coulomb.report.facts import command_line, data_section, header
from coulomb.report.gallery import Gallery, gallery, picture, sprite_sheet
from coulomb.report.scores import CONTESTANTS, class_bars, class_rows, confusion, frequencies, further_scores, scores
from coulomb.report.training_charts import loss_chart, progress_chart, small_charts
from coulomb.report.verdict import RULES, Verdict, judge


def build_report(run: Path | str, out: Path | str | None = None) -> Path:
    """Write ``report.html`` into the run folder ``run``, or the page to ``out``, and return its path.

    The page is one file that works offline: pictures, style and script are in it, and its own security policy forbids
    requests. Parts of the run that are missing or damaged are named on the page; they never stop it. The file is
    replaced in one step, so that a reader never sees half of one.

    Raises :class:`coulomb.errors.InputError` when ``run`` is not a run folder, or ``out`` cannot be a file.
    """
    found = collect(run)
    return write_page(found.folder / "report.html" if out is None else target_of(out), render(found))


def render(run: Run) -> str:
    """The page as text."""
    return render_page("report.html", _content(run))


def _content(run: Run) -> dict[str, Any]:
    seed = run.config.get("seed")
    shown = gallery(run, seed if isinstance(seed, int) else 0)
    sheet = sprite_sheet(run.samples.thumbnails) if run.samples is not None else None
    charts = Numbered()
    similarity = similarity_section(run)
    return {
        "run": run,
        "head": header(run),
        "verdict": verdict_of(run, shown),
        "doctor": doctor_section(run),
        "rules": RULES,
        "loss": charts.add(loss_chart(run)),
        "knn": charts.add(progress_chart(run)),
        "plane": charts.add(plane_chart([trajectory(run)])),
        "spectrum": charts.add(spectrum_chart(run)),
        "small": [(name, [charts.add(chart) for chart in found]) for name, found in small_charts(run)],
        "similarity": similarity,
        **_evaluation(run, shown),
        "gallery": shown,
        "sheet": sheet,
        "views": _views(run),
        "data": data_section(run),
        "command": command_line(run.config),
        "protocol": _protocol(run),
        "for_script": {
            "charts": charts.readouts,
            "map": shown.for_script() if shown else None,
            "similarity": [[s.epoch, s.paths, s.said] for s in similarity.snapshots] if similarity else [],
            "columns": sheet.columns if sheet else 1,
            "first": shown.queries[0] if shown else -1,
        },
        "problems": run.problems,
    }


class Numbered:
    """Charts get the number by which the page's script finds their readouts."""

    def __init__(self) -> None:
        self.readouts: list[list[dict[str, Any]]] = []

    def add(self, chart: Chart | None) -> tuple[Chart, int] | None:
        """(chart, its number)."""
        if chart is None:
            return None
        self.readouts.append(chart.readout)
        return chart, len(self.readouts) - 1


def verdict_of(run: Run, shown: Gallery | None = None) -> Verdict:
    """The verdict on a run from all that its folder holds."""
    test = run.data.get("test")
    return judge(
        run.evaluation,
        run.training,
        run.measures,
        test_images=test if isinstance(test, int) and not isinstance(test, bool) and test > 0 else None,
        effective_rank=shown.effective_rank if shown else None,
        options=run.config,
    )


def _evaluation(run: Run, shown: Gallery | None) -> dict[str, Any]:
    return {
        "names": CONTESTANTS,
        "rows": scores(run.evaluation),
        "further": further_scores(run.evaluation),
        "frequencies": frequencies(run.evaluation),
        "classes": class_rows(run.evaluation),
        "bars": class_bars(run),
        "confusion": confusion(run, shown.neighbours if shown else None),
        "transfers": [
            (str(protocol.get("name", "other data")), scores(found) + further_scores(found))
            for found in run.transfers
            if isinstance(protocol := found.get("protocol"), dict)
        ],
    }


def _views(run: Run) -> tuple[str, int, int] | None:
    if run.views is None:
        return None
    try:
        return picture(run.views)
    except ValueError:
        run.problems.append("views.png cannot be read as a picture.")
        return None


def _protocol(run: Run) -> dict[str, Any]:
    """One flat mapping; what belongs to one measurement is named after it, as in "knn k"."""
    trained = run.evaluation.get("trained")
    protocols = [holder.get("protocol") for holder in (trained, run.evaluation) if isinstance(holder, dict)]
    every = {key: value for found in protocols if isinstance(found, dict) for key, value in found.items()}
    every.pop("versions", None)  # they have their own table
    flat: dict[str, Any] = {}
    for key, value in every.items():
        inner = value if isinstance(value, dict) else {"": value}
        flat |= {f"{key} {name}".strip(): item for name, item in inner.items() if not isinstance(item, dict)}
    return {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in flat.items()}
