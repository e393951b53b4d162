"""A benchmark's result as tables for the terminal."""

from typing import Any

from coulomb.bench.peers import CONTENDERS

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
