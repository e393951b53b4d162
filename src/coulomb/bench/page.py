"""A benchmark's result → JSON and one HTML page that asks nothing of any network."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.bench.growth_chart import Curve, LogChart, log_chart
from coulomb.bench.peers import CONTENDERS
from coulomb.bench.text import FLOORS, duration, megabytes, summary, verdict_of
from coulomb.errors import InputError
from coulomb.models.saving import write_atomically


@dataclass(frozen=True)
class Bar:
    """One contender of one case; ``width`` in percent of the slowest."""

    label: str
    style: str
    width: float
    seconds: str
    low: float
    high: float
    remark: str
    memory: str


def save(result: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write ``losses.json`` and ``losses.html`` into the folder, made if needed; return their paths.

    Raises InputError where ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: this is a file; give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    data, page = folder / "losses.json", folder / "losses.html"
    write_atomically(data, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))
    write_atomically(page, render_page(result).encode("utf-8"))
    return data, page


def render_page(result: dict[str, Any]) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader({"page.html": _part("page.html")}),
    )
    environment.filters |= {"duration": duration, "megabytes": megabytes, "verdict_of": verdict_of}
    return environment.get_template("page.html").render(
        result=result,
        style=Markup(_part("page.css")),  # our own file
        headlines=headlines(result),
        summary=summary(result["counts"]),
        cases=[(case, bars(case)) for case in result["cases"]],
        labels={name: contender.label for name, contender in CONTENDERS.items()},
        charts=growth_charts(result["growth"]) if result["growth"] else [],
        growth_remarks=_growth_remarks(result["growth"]) if result["growth"] else [],
    )


def headlines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """(number, what it is) of the first case that was measured beside dense PyTorch, and how many targets were met."""
    found: list[tuple[str, str]] = []
    case = next((case for case in result["cases"] if "dense" in case["speedup"]), None)
    if case is not None:
        found.append((f"{case['speedup']['dense']:.1f}×", f"faster than dense PyTorch: {case['title']}"))
        held, dense = (case["memory_mb"].get(name) for name in ("coulomb", "dense"))
        if held and dense:
            found.append((f"{dense / held:.0f}×", f"less memory: {megabytes(held)} instead of {megabytes(dense)} MB"))
        found.append((f"{case['time_over_floor']['best']:.2f}", "times the matrix products alone"))
    counts = result["counts"]
    known = counts["met"] + counts["missed"]
    if known:
        found.append((f"{counts['met']} of {known}", "targets met"))
    return found


def bars(case: dict[str, Any]) -> list[Bar]:
    """Ours, the peers, then the floors."""
    seconds, made = case["seconds"], []
    shown = [(n, c.label, _style(n)) for n, c in CONTENDERS.items()]
    shown += [(f"floor {kernel}", label, "floor") for kernel, label in FLOORS.items()]
    longest = max((seconds[name] for name, _, _ in shown if name in seconds), default=1.0)
    for name, label, style in shown:
        if name not in seconds:
            continue
        low, high = case["spread"][name]
        if name == "coulomb":
            remark = ""
        elif style == "floor":
            remark = f"ours {case['time_over_floor'][name.removeprefix('floor ')]:.2f} × this"
        else:
            remark = _times(case["speedup"][name])
        held = case["memory_mb"].get(name)
        share = [round(min(100.0, 100 * value / longest), 2) for value in (seconds[name], low, high)]
        memory = "" if held is None else f"{megabytes(held)} MB"
        made.append(Bar(label, style, share[0], duration(seconds[name]), share[1], share[2], remark, memory))
    return made


def _times(speedup: float) -> str:
    return f"ours {speedup:.1f}× faster" if speedup >= 1 else f"ours {1 / speedup:.2f}× slower"


def _style(name: str) -> str:
    return {"coulomb": "ours", "dense": "dense"}.get(name, "peer")


def growth_charts(growth: dict[str, Any]) -> list[LogChart]:
    """Time and memory against N."""
    made = []
    for what, title, unit, write in (
        ("seconds", "Time", "of forward and backward", duration),
        ("memory_mb", "Peak memory", "above the inputs, in MB", megabytes),
    ):
        curves = []
        for name, style in (("coulomb", "ours"), ("dense", "dense")):
            points = [(point["n"], point[what][name]) for point in growth["points"] if point[what].get(name)]
            fit = growth["slopes"][name][what]
            exponent = f"{fit['exponent']:.2f}" if fit else ""
            curves.append(Curve(points, CONTENDERS[name].label, style, exponent))
        chart = log_chart(curves, title=title, unit=unit, x_label=f"N, rows of {growth['dim']} numbers", write=write)
        if chart is not None:
            made.append(chart)
    return made


def _growth_remarks(growth: dict[str, Any]) -> list[str]:
    remarks = []
    for point in growth["points"]:
        reasons = [point["reason"]] if point["reason"] else []
        reasons += [f"{CONTENDERS[name].label} {reason}" for name, reason in point["skipped"].items()]
        remarks += [f"N = {point['n']:,}: {reason}" for reason in reasons]
    return remarks


def _part(name: str) -> str:
    return resources.files("coulomb.bench").joinpath(name).read_text(encoding="utf-8")
