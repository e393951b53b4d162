"""The result of :func:`coulomb.data.check` as plain text; names are shown with their control characters made visible."""

from typing import Any

from coulomb.data.columns import column_lines
from coulomb.data.names import some, visible

MOST = 20  # lines of one list; the dictionary holds them all


def render_check(result: dict[str, Any]) -> str:
    """Plain text without markup (print it with markup off: names may hold brackets)."""
    source, survey, memory = result["source"], result["survey"], result["memory"]
    suggested = result["suggested"]
    lines = [
        f"{visible(source['name'])} ({source['kind']}): {result['count']} images, {result['readable']} readable",
        *(f"  note: {visible(note, 400)}" for note in source["notes"]),
        "",
        f"size      width {_spread(survey, 'width')}, height {_spread(survey, 'height')}"
        + (", all the same" if survey["uniform"] else ""),
        "modes     " + ", ".join(f"{visible(mode)} {count}" for mode, count in survey["modes"].items()),
        f"suggested image size {suggested['image_size']}, channels {suggested['channels']}, {suggested['dtype']}",
        f"memory    {_bytes(memory['full_size'])} decoded at full size, {_bytes(memory['canvases'])} as "
        f"{memory['canvas']}×{memory['canvas']} canvases",
        "",
        *_label_lines(result["labels"]),
        *(["columns   not used, and could be labels:"] if result["other_columns"] else []),
        *column_lines(result["other_columns"]),
        "",
        *_corrupt_lines("corrupt  ", result["corrupt"]),
        *(_corrupt_lines("corrupt test images", result["test"]["corrupt"]) if "test" in result else []),
        *_duplicate_lines(result["duplicates"]),
    ]
    if result["findings"]:
        lines += ["", "worth attention:", *(f"  - {finding}" for finding in result["findings"])]
    return "\n".join(lines)


def _label_lines(labels: dict[str, Any] | None) -> list[str]:
    if labels is None:
        return ["labels    none"]
    classes = labels["classes"]
    lines = [f"labels    {labels['labelled']} labelled, {labels['unlabelled']} unlabelled, {len(classes)} classes"]
    if labels.get("p_no_positive") is not None:
        lines[0] += (
            f"; P(no other image of its class in a batch of {labels['batch_size']}) = {labels['p_no_positive']:.2g}"
        )
    most = max(entry["count"] for entry in classes)
    by_count = sorted(classes, key=lambda entry: -entry["count"])
    shown = by_count if len(by_count) <= MOST else by_count[: MOST // 2] + by_count[-MOST // 2 :]
    width = max(len(visible(entry["name"], 24)) for entry in shown)
    for row, entry in enumerate(shown):
        if len(by_count) > MOST and row == MOST // 2:
            lines.append(f"  … {len(by_count) - MOST} classes between these …")
        bar = "█" * max(1, round(24 * entry["count"] / most))
        name = visible(entry["name"], 24)
        chance = entry.get("p_no_positive")
        shown_chance = "" if chance is None else f" P(no positive) {chance:.2g}"
        lines.append(f"  {name:<{width}} {entry['count']:>8} {bar:<24}{shown_chance}".rstrip())
    return lines


def _corrupt_lines(title: str, corrupt: list[dict[str, str]]) -> list[str]:
    lines = [f"{title} {len(corrupt) or 'none'}"]
    lines += [f"  {visible(entry['id'])}: {visible(entry['reason'])}" for entry in corrupt[:MOST]]
    return lines if len(corrupt) <= MOST else [*lines, f"  … and {len(corrupt) - MOST} more"]


def _duplicate_lines(duplicates: dict[str, Any]) -> list[str]:
    groups = sorted(duplicates["groups"], key=lambda group: not group["cross_label"])
    if not groups:
        return ["copies    none"]
    lines = [f"copies    {duplicates['redundant']} in {len(groups)} groups of identical pixels"]
    for group in groups[:MOST]:
        lines.append(f"  {some(group['ids'])}" + ("  (different labels!)" if group["cross_label"] else ""))
    return lines if len(groups) <= MOST else [*lines, f"  … and {len(groups) - MOST} more groups"]


def _spread(survey: dict[str, Any], side: str) -> str:
    low, high = survey[f"{side}_range"]
    return f"{low}" if low == high else f"{low}…{high} (median {survey[side]:g})"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
