"""The result of `coulomb bench losses` as text for the terminal, as JSON and as an HTML page."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coulomb.bench.contenders import CONTENDERS
from coulomb.bench.growth_chart import Curve, LogChart, log_chart
from coulomb.errors import InputError
from coulomb.models.saving import write_atomically

NOTHING = "—"
FLOORS = {"torch.mm": "products alone, torch.mm", "oneDNN": "products alone, oneDNN"}


def render(result: dict[str, Any]) -> str:
    """All of it."""
    machine = result["machine"]
    head = (
        f"forward + backward, medians of {result['repeats']} interleaved rounds; {machine['processor']} "
        f"({machine['instructions']}), {machine['threads']} threads, torch {machine['torch']}, {machine['date']}"
    )
    parts = [head, *(_case(case) for case in result["cases"])]
    if result["growth"]:
        parts.append(_growth(result["growth"]))
    if result["small"]:
        parts.append(_small(result["small"]))
    return "\n\n".join([*parts, summary(result["counts"]), f"To paste into an issue:\n{one_line(result)}"])


def one_line(result: dict[str, Any]) -> str:
    """Processor, versions and ratios of a result in one line."""
    machine, small = result["machine"], result["counts"]
    parts = [
        f"coulomb {machine['coulomb']}, torch {machine['torch']}, {machine['processor']}, {machine['instructions']}, "
        f"{machine['threads']} threads, products by {machine['products']}"
    ]
    for case in result["cases"]:
        ratios = [f"{case['speedup']['dense']:.1f}× dense"] if "dense" in case["speedup"] else []
        ratios += [f"{case['time_over_floor']['best']:.2f} × products"] if case["time_over_floor"] else []
        parts += [f"{case['name']}: {', '.join(ratios) or case['status']}"]
    if cells := small["small_met"] + small["small_missed"]:
        parts.append(f"small batches within the limit: {small['small_met']} of {cells}")
    return "; ".join(parts)


def _case(case: dict[str, Any]) -> str:
    lines = [f"{case['title']}   [{case['name']}]"]
    parity = case["parity"]
    if parity is not None:
        verdict = "rounding" if parity["ok"] else "WRONG RESULT, so no speed is reported"
        differences = f"loss {parity['loss']:.1e}, gradient {parity['gradient']:.1e}"
        lines.append(f"  parity with {parity['reference']}: {differences} ({verdict})")
    if case["status"] == "skipped":
        lines.append(f"  skipped: {case['reason']}")
    if case["status"] == "measured":
        lines.append(f"  {'':32}{'time':>12}{'':>11}{'peak MB above inputs':>22}")
        lines += [
            _row(case, name, contender.label) for name, contender in CONTENDERS.items() if name in case["seconds"]
        ]
        for kernel, label in FLOORS.items():
            if kernel not in case["time_over_floor"]:
                continue
            ratio = case["time_over_floor"][kernel]
            floor = duration(case["seconds"][f"floor {kernel}"])
            lines.append(f"  {label:32}{floor:>12}   ours is {ratio:.2f} × this")
    lines += [f"  {CONTENDERS[name].label}: {reason}" for name, reason in case["skipped"].items()]
    lines += [f"  target {t['text']}: {verdict_of(t)}" for t in case["targets"]]
    return "\n".join(lines)


def _row(case: dict[str, Any], name: str, label: str) -> str:
    speedup = case["speedup"].get(name)
    beside = "" if speedup is None else f"{speedup:.2f}×"
    held = case["memory_mb"].get(name)
    return f"  {label:32}{duration(case['seconds'][name]):>12}{beside:>11}{megabytes(held):>22}"


def _growth(growth: dict[str, Any]) -> str:
    lines = [f"Growth of NT-Xent, N × {growth['dim']}", f"  {'N':>8}{'time':>12}{'dense':>12}{'MB':>10}{'dense':>10}"]
    for point in growth["points"]:
        times = (duration(point["seconds"].get(name)) for name in ("coulomb", "dense"))
        held = (megabytes(point["memory_mb"].get(name)) for name in ("coulomb", "dense"))
        cells = "".join(f"{t:>12}" for t in times) + "".join(f"{m:>10}" for m in held)
        remark = point["reason"] or "; ".join(f"dense {reason}" for reason in point["skipped"].values())
        lines.append(f"  {point['n']:>8,}{cells}  {remark}".rstrip())
    for name, slopes in growth["slopes"].items():
        fits = [
            f"{what} ∝ N^{fit['exponent']:.2f} from N = {fit['from']:,}"
            for what, fit in (("time", slopes["seconds"]), ("memory", slopes["memory_mb"]))
            if fit
        ]
        if fits:
            lines.append(f"  {CONTENDERS[name].label}: {', '.join(fits)}")
    return "\n".join(lines)


def _small(small: dict[str, Any]) -> str:
    lines = [
        f"Small batches, N × {small['dim']}: µs, and how much slower (+) or faster (−) than dense eager; "
        "! more than 5% and 50 µs slower",
        f"  {'':26}" + "".join(f"{'N = ' + str(n):>19}" for n in small["sizes"]),
    ]
    for row in small["rows"]:
        if row["status"] == "skipped":
            lines.append(f"  {row['name']:26}  skipped: {row['reason']}")
        else:
            lines.append(f"  {row['name']:26}" + "".join(f"{_cell(cell):>19}" for cell in row["cells"]))
    return "\n".join(lines)


def _cell(cell: dict[str, Any]) -> str:
    if not cell["parity"]["ok"]:
        return "WRONG"
    return f"{1e6 * cell['coulomb']:,.0f} ({cell['slower_us']:+,.0f}{'' if cell['met'] else ' !'})"


def summary(counts: dict[str, int]) -> str:
    """What was counted, in a line."""
    parts = [
        f"{counts['measured']} cases measured, {counts['wrong']} wrong, {counts['skipped']} skipped",
        f"targets: {counts['met']} met, {counts['missed']} missed, {counts['unknown']} not measured",
    ]
    if counts["small_met"] or counts["small_missed"]:
        parts.append(f"small batches: {counts['small_met']} within the limit, {counts['small_missed']} beyond it")
    if counts["contenders_skipped"]:
        parts.append(f"{counts['contenders_skipped']} times a contender could not take part")
    return "; ".join(parts)


def verdict_of(target: dict[str, Any]) -> str:
    """ "4.81, met", "1.52, missed", or "not measured"."""
    if target["value"] is None:
        return "not measured"
    return f"{target['value']:.3g}, {'met' if target['met'] else 'MISSED'}"


def duration(seconds: float | None) -> str:
    """A time with three digits."""
    if seconds is None:
        return NOTHING
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def megabytes(held: float | None) -> str:
    """An amount of memory in MB, without the unit."""
    if held is None:
        return NOTHING
    return f"{held:,.0f}" if held >= 10 else f"{held:.1f}"


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
