"""The result of `benchmarks.losses` as text for the terminal, as JSON and as an HTML page."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from coulomb.ground.errors import InputError
from coulomb.report.pages.chart import Chart, Series, line_chart
from coulomb.report.pages.page import ChartList, render_page, write_page

FLOORS = {"torch.mm": "products alone, torch.mm", "oneDNN": "products alone, oneDNN"}


def render_text(result: dict[str, Any]) -> str:
    """Returns all results as tables for the terminal."""
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
    """Returns processor, versions and ratios in one line."""
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
            floor = format_seconds(case["seconds"][f"floor {kernel}"])
            lines.append(f"  {label:32}{floor:>12}   coulomb takes {ratio:.2f} times as long")
    lines += [f"  {CONTENDERS[name].label}: {reason}" for name, reason in case["skipped"].items()]
    lines += [f"  target {t['text']}: {target_result(t)}" for t in case["targets"]]
    return "\n".join(lines)


def _row(case: dict[str, Any], name: str, label: str) -> str:
    speedup = case["speedup"].get(name)
    ratio = "" if speedup is None else f"{speedup:.2f}×"
    held = case["memory_mb"].get(name)
    return f"  {label:32}{format_seconds(case['seconds'][name]):>12}{ratio:>11}{format_megabytes(held):>22}"


def _growth(growth: dict[str, Any]) -> str:
    lines = [f"Growth of NT-Xent, N × {growth['dim']}", f"  {'N':>8}{'time':>12}{'dense':>12}{'MB':>10}{'dense':>10}"]
    for point in growth["points"]:
        times = (format_seconds(point["seconds"].get(name)) for name in ("coulomb", "dense"))
        held = (format_megabytes(point["memory_mb"].get(name)) for name in ("coulomb", "dense"))
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
        f"Small batches, N × {small['dim']}: µs, and the difference from dense eager (+ slower, − faster); "
        "! more than 10% and 300 µs slower",
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
    """Returns the counts of cases, targets and small batches in one line."""
    parts = [
        f"{counts['measured']} cases measured, {counts['wrong']} wrong, {counts['skipped']} skipped",
        f"targets: {counts['met']} met, {counts['missed']} missed, {counts['unknown']} not measured",
    ]
    if counts["small_met"] or counts["small_missed"]:
        parts.append(f"small batches: {counts['small_met']} within the limit, {counts['small_missed']} beyond it")
    if counts["contenders_skipped"]:
        parts.append(f"contenders skipped: {counts['contenders_skipped']}")
    return "; ".join(parts)


def target_result(target: dict[str, Any]) -> str:
    """Returns '4.81, met', '1.52, MISSED' or 'not measured'."""
    if target["value"] is None:
        return "not measured"
    return f"{target['value']:.3g}, {'met' if target['met'] else 'MISSED'}"


def format_seconds(seconds: float | None) -> str:
    """Formats a time with three digits."""
    if seconds is None:
        return "—"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def format_megabytes(amount: float | None) -> str:
    """Formats an amount of memory in MB, without the unit."""
    if amount is None:
        return "—"
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}"


@dataclass(frozen=True)
class Bar:
    """The time of one contender; ``width``, ``low`` and ``high`` in percent of the slowest contender."""

    label: str
    style: str
    width: float
    seconds: str
    low: float
    high: float
    remark: str
    memory: str


def save(result: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Writes ``losses.json`` and ``losses.html`` into the folder, which is created if needed, and returns their paths.

    Raises:
        InputError: ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: this is a file; give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    data = write_page(folder / "losses.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return data, write_page(folder / "losses.html", render_html(result))


def render_html(result: dict[str, Any]) -> str:
    """Returns the page as text."""
    charts, growth = ChartList(), result["growth"]
    content = {
        "result": result,
        "headlines": headlines(result),
        "summary": summary(result["counts"]),
        "cases": [(case, bars(case)) for case in result["cases"]],
        "labels": {name: contender.label for name, contender in CONTENDERS.items()},
        "charts": [charts.add(chart) for chart in growth_charts(growth)] if growth else [],
        "growth_remarks": _growth_remarks(growth) if growth else [],
    }
    filters = {"seconds": format_seconds, "megabytes": format_megabytes, "target_result": target_result}
    return render_page("benchmarks", "losses.html", content, charts=charts, styles=["losses.css"], filters=filters)


def headlines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (number, explanation) for the first case with a dense contender, and for the targets."""
    rows: list[tuple[str, str]] = []
    case = next((case for case in result["cases"] if "dense" in case["speedup"]), None)
    if case is not None:
        rows.append((f"{case['speedup']['dense']:.1f}×", f"faster than dense PyTorch: {case['title']}"))
        own, dense = (case["memory_mb"].get(name) for name in ("coulomb", "dense"))
        if own and dense:
            used = f"{format_megabytes(own)} instead of {format_megabytes(dense)} MB"
            rows.append((f"{dense / own:.0f}×", f"less memory: {used}"))
        rows.append((f"{case['time_over_floor']['best']:.2f}", "times the matrix products alone"))
    met, missed = result["counts"]["met"], result["counts"]["missed"]
    if met + missed:
        rows.append((f"{met} of {met + missed}", "targets met"))
    return rows


def bars(case: dict[str, Any]) -> list[Bar]:
    """Returns the bars of a case: coulomb, its peers, then the floors."""
    seconds = case["seconds"]
    styles = {"coulomb": "ours", "dense": "dense"}
    shown = [(name, contender.label, styles.get(name, "peer")) for name, contender in CONTENDERS.items()]
    shown += [(f"floor {kernel}", label, "floor") for kernel, label in FLOORS.items()]
    shown = [entry for entry in shown if entry[0] in seconds]
    longest = max((seconds[name] for name, _, _ in shown), default=1.0)
    rows = []
    for name, label, style in shown:
        if style == "ours":
            remark = ""
        elif style == "floor":
            remark = f"coulomb takes {case['time_over_floor'][name.removeprefix('floor ')]:.2f} times as long"
        else:
            speedup = case["speedup"][name]
            remark = f"coulomb {speedup:.1f}× faster" if speedup >= 1 else f"coulomb {1 / speedup:.2f}× slower"
        held = case["memory_mb"].get(name)
        width, low, high = (round(min(100.0, 100 * t / longest), 2) for t in (seconds[name], *case["spread"][name]))
        memory = "" if held is None else f"{format_megabytes(held)} MB"
        rows.append(Bar(label, style, width, format_seconds(seconds[name]), low, high, remark, memory))
    return rows


def growth_charts(growth: dict[str, Any]) -> list[Chart]:
    """Returns charts of time and memory over N."""
    charts = [
        line_chart(
            [
                Series(
                    CONTENDERS[name].label,
                    [(point["n"], point[what][name]) for point in growth["points"] if point[what].get(name)],
                    style,
                    exponent=f"{fit['exponent']:.2f}" if (fit := growth["slopes"][name][what]) else "",
                )
                for name, style in (("coulomb", "ours"), ("dense", "dense"))
            ],
            title=title,
            y_label=unit,
            x_label=f"N, rows of {growth['dim']} numbers",
            x_name="N",
            write=write,
            log_x=True,
            log_y=True,
            ends=True,
        )
        for what, title, unit, write in (
            ("seconds", "Time", "forward and backward", format_seconds),
            ("memory_mb", "Peak memory", "above the inputs, in MB", format_megabytes),
        )
    ]
    return [chart for chart in charts if chart is not None]


def _growth_remarks(growth: dict[str, Any]) -> list[str]:
    remarks = []
    for point in growth["points"]:
        reasons = [point["reason"]] if point["reason"] else []
        reasons += [f"{CONTENDERS[name].label} {reason}" for name, reason in point["skipped"].items()]
        remarks += [f"N = {point['n']:,}: {reason}" for reason in reasons]
    return remarks
