"""Run folder → ``report.html``: one page that asks nothing of any network."""

import base64
import contextlib
import hashlib
import os
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.report import wording
from coulomb.report.collect import Run, collect
from coulomb.report.curves import loss_chart, progress_chart, small_charts
from coulomb.report.data_section import data_section
from coulomb.report.gallery import gallery
from coulomb.report.header import header
from coulomb.report.recreate import command_line
from coulomb.report.scores import CONTESTANTS, class_rows, frequencies, further_scores, scores
from coulomb.report.sprites import picture, sprite_sheet
from coulomb.report.verdict import RULES, judge


def build_report(run: Path | str) -> Path:
    """Write ``report.html`` into the run folder ``run`` and return its path.

    The page is one file that works offline: pictures, style and script are in it, and its own security policy forbids
    requests. Parts of the run that are missing or damaged are named on the page; they never stop it. The file is
    replaced in one step, so that a reader never sees half of one.

    Raises :class:`coulomb.errors.InputError` when ``run`` is not a run folder.
    """
    found = collect(run)
    target = found.folder / "report.html"
    partial = found.folder / f".report.html.{os.getpid()}.partial"
    try:
        partial.write_text(render(found), encoding="utf-8", newline="\n")
        partial.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
    return target


def render(run: Run) -> str:
    """The page as text."""
    script, style = _part("page.js"), _part("page.css")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader({"page.html": _part("page.html"), "macros.html": _part("macros.html")}),
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        name: getattr(wording, name) for name in ("percent", "count", "plural", "duration", "figure", "shorten")
    }
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        **_content(run),
        style=Markup(style),
        script=Markup(script),
        script_hash=hashed,  # our own files, not the user's
    )


def _content(run: Run) -> dict[str, Any]:
    seed = run.config.get("seed")
    shown = gallery(run, seed if isinstance(seed, int) else 0)
    sheet = sprite_sheet(run.samples.thumbnails) if run.samples is not None else None
    views = None
    if run.views is not None:
        try:
            views = picture(run.views)
        except ValueError:
            run.problems.append("views.png cannot be read as a picture.")
    test = run.data.get("test")
    verdict = judge(
        run.evaluation,
        run.training,
        run.measures,
        test_images=test if isinstance(test, int) and not isinstance(test, bool) else None,
        effective_rank=shown.effective_rank if shown else None,
    )
    loss, knn, small = loss_chart(run), progress_chart(run), small_charts(run)
    return {
        "run": run,
        "head": header(run),
        "verdict": verdict,
        "rules": RULES,
        "names": CONTESTANTS,
        "rows": scores(run.evaluation),
        "further": further_scores(run.evaluation),
        "frequencies": frequencies(run.evaluation),
        "classes": class_rows(run.evaluation),
        "transfers": [
            (str(protocol.get("name", "other data")), scores(found) + further_scores(found))
            for found in run.transfers
            if isinstance(protocol := found.get("protocol"), dict)
        ],
        "loss": loss,
        "knn": knn,
        "small": small,
        "charts": [chart.readout if chart else None for chart in (loss, knn, *small)],
        "gallery": shown,
        "sheet": sheet,
        "views": views,
        "data": data_section(run),
        "command": command_line(run.config),
        "protocol": _protocol(run),
        "problems": run.problems,
    }


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


def _part(name: str) -> str:
    return resources.files("coulomb.report").joinpath(name).read_text(encoding="utf-8")
