"""Several run folders → one page: what differs in configuration, what differs in result, their curves over one another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.report.build import Numbered, verdict_of
from coulomb.report.collect import Run, collect
from coulomb.report.compare_charts import compare_charts
from coulomb.report.compare_tables import caution, differences, results
from coulomb.report.doctor_section import doctor_section
from coulomb.report.header import header
from coulomb.report.page import render_page, target_of, write_page

MOST = 8  # colours that can be told apart


def build_comparison(runs: Sequence[Path | str], out: Path | str = "compare.html") -> Path:
    """Write one page that shows ``runs`` side by side to ``out``; returns its path.

    The runs themselves stay as they are. The page is a file of its own like a report: offline, without requests.

    Raises :class:`coulomb.errors.InputError` when there are fewer than two runs or more than eight, one is not a run folder or
    is given twice, or ``out`` is a folder.
    """
    folders = [Path(run).resolve() for run in runs]
    if not 2 <= len(folders) <= MOST:
        raise InputError(f"runs: {len(folders)} given; a comparison shows 2 to {MOST} of them")
    if twice := [str(folder) for i, folder in enumerate(folders) if folder in folders[:i]]:
        raise InputError(f"runs: {twice[0]!r} is given twice; give every run once")
    target = target_of(out)
    return write_page(target, render_comparison([collect(folder) for folder in folders]))


def render_comparison(runs: Sequence[Run]) -> str:
    """The page as text."""
    charts, names = Numbered(), names_of(runs)
    groups = [(name, [charts.add(chart) for chart in found]) for name, found in compare_charts(runs, names)]
    return render_page(
        "compare.html",
        {
            "names": names,
            "cards": [_card(run, name, i) for i, (run, name) in enumerate(zip(runs, names, strict=True))],
            "differences": differences(runs),
            "results": results(runs),
            "caution": caution(runs),
            "charts": groups,
            "problems": [f"{name}: {text}" for run, name in zip(runs, names, strict=True) for text in run.problems],
            "versions": sorted({str(run.environment["coulomb"]) for run in runs if "coulomb" in run.environment}),
            "sheet": None,
            "for_script": {"charts": charts.readouts},
        },
    )


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folders' names, with as many of their parents as tell them apart."""
    for depth in range(1, max(len(run.folder.parts) for run in runs) + 1):
        names = ["/".join(run.folder.parts[-depth:]) for run in runs]
        if len(set(names)) == len(names):
            break
    return [run.name if depth == 1 else name for run, name in zip(runs, names, strict=True)]


def _card(run: Run, name: str, number: int) -> dict[str, Any]:
    return {
        "name": name,
        "style": f"k{number}",
        "folder": str(run.folder),
        "verdict": verdict_of(run),
        "doctor": doctor_section(run),
        "head": header(run),
    }
