"""Facts about a run: its header, its data, and the command that repeats it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coulomb.ground.reading import finite
from coulomb.kinds.image.canvas import STORED_CANVAS, Canvas
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import count, duration, plural, shorten
from coulomb.report.training_charts import last_value

MAX_FILES = 100  # unreadable images that are listed by name
MAX_CLASSES = 40  # of the histogram
LINE_WIDTH = 96  # characters of the command


@dataclass(frozen=True)
class Header:
    """``facts``: (name, value) pairs; ``stopped``: a sentence if the run did not reach its last epoch, else ''."""

    facts: list[tuple[str, str]]
    stopped: str


def header(run: RunData) -> Header:
    """Returns the facts under the title that are known of ``run``."""
    config, source = run.config, run.data.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    stopped = _stopped(run)
    whitened = config.get("tune") == "whiten"
    facts = [
        ("method", "PCA whitening, no training" if whitened else _short(config.get("method"))),
        ("encoder", _short(_by_column(run, "encoder"))),
        ("data", _short(name or config.get("data"))),
        (f"{run.rows_are}s", _images(run)),
        ("tune", "" if whitened else _short(_by_column(run, "tune"))),
        ("epochs", "" if whitened else _epochs(run, bool(stopped))),
        ("time", "" if (seconds := last_value(run.training, "seconds")) is None else duration(seconds)),
    ]
    return Header([(key, value) for key, value in facts if value], stopped)


def _by_column(run: RunData, option: str) -> Any:
    """Returns the value of an option; of one that has a value per column, with room between them."""
    value = run.config.get(option)
    return value.replace(",", ", ") if run.columns and isinstance(value, str) else value


def _short(value: Any) -> str:
    return "" if value is None else shorten(str(value), 60)


def _images(run: RunData) -> str:
    train, size = finite(run.data.get("train")), finite(run.data.get("image_size"))
    if train is None:
        return ""
    return count(train) + (f" at {size:.0f}×{size:.0f}" if size else "")


def _last_epoch(run: RunData) -> float | None:
    epochs = [epoch for line in [*run.training, *run.measures] if (epoch := finite(line.get("epoch"))) is not None]
    return max(epochs, default=None)


def _epochs(run: RunData, stopped: bool) -> str:
    planned, last = finite(run.config.get("epochs")), _last_epoch(run)
    if planned is None:
        return ""
    return f"{last:.0f} of {planned:.0f}" if stopped and last is not None else f"{planned:.0f}"


def _stopped(run: RunData) -> str:
    """Training lines count epochs from 1, so the lines of the last epoch have the planned number."""
    planned, last = finite(run.config.get("epochs")), _last_epoch(run)
    if planned is None or last is None or last >= planned:
        return ""
    if run.stopped:
        by, reason = (shorten(str(run.stopped.get(name) or ""), 200) for name in ("by", "reason"))
        return f"{by} ended the run after epoch {last:.0f} of {planned:.0f}{f': {reason}' if reason else '.'}"
    return (
        f"This run has not finished: {plural(round(planned), 'epoch')} were planned, the last line of its metrics is from "
        f"epoch {last:.0f}. It is still running, or it stopped early."
    )


@dataclass(frozen=True)
class DataSection:
    """What the page shows of the data.

    ``facts``: (name, value); ``corrupt``: (file, reason); ``histogram``: (class, images, percent of the largest class).
    """

    facts: list[tuple[str, str]]
    split: str
    corrupt: list[tuple[str, str]]
    corrupt_total: int
    histogram: list[tuple[str, int, float]]
    histogram_note: str


def _band_facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns what a run on bands did with their values, and what its pictures show."""
    left_out = data.get("views_left_out")
    facts = [("views", left_out)] if isinstance(left_out, str) else []
    canvas, notes = data.get("canvas"), data.get("band_notes")
    bands = Canvas.from_dict(canvas).bands if canvas is not None and STORED_CANVAS.fits(canvas) else None
    if bands is None:
        return facts
    said = [("note", str(note)) for note in notes] if isinstance(notes, list) else []
    return [("bands", bands.describe()), ("pictures", f"false color: {bands.shown}"), *said, *facts]


def data_section(run: RunData) -> DataSection:
    """Returns the facts in ``data.json``."""
    data = run.data

    def counted(key: str) -> str:
        number = finite(data.get(key))
        return "" if number is None else count(number)

    recorded = data.get("corrupt")
    corrupt = [
        (str(entry.get("id", "?")), str(entry.get("reason", ""))) if isinstance(entry, dict) else (str(entry), "")
        for entry in (recorded if isinstance(recorded, list) else [])
    ]
    size, channels = finite(data.get("image_size")), finite(data.get("channels"))
    shape = f"{size:.0f}×{size:.0f} pixels" if size is not None else ""
    facts = [
        (f"training {run.rows_are}s", counted("train")),
        (f"held-out {run.rows_are}s", counted("test")),
        ("with a label", _labeled(run)),
        ("classes", count(len(run.class_names)) if run.class_names else ""),
        ("input size", shape + (f", {plural(round(channels), 'channel')}" if shape and channels else "")),
        *_band_facts(data),
        ("could not be decoded", count(len(corrupt)) if data else ""),
        ("exact duplicates", counted("duplicates")),
        ("rounded from 16 to 8 bits", counted("rounded") if finite(data.get("rounded")) else ""),
    ]
    source = data.get("source")
    notes = source.get("notes") if isinstance(source, dict) else None
    facts += [("note", str(note)) for note in notes] if isinstance(notes, list) else []
    split = data.get("split")
    return DataSection(
        [(name, value) for name, value in facts if value],
        split if isinstance(split, str) else "",
        corrupt[:MAX_FILES],
        len(corrupt),
        *_histogram(run),
    )


def _labeled(run: RunData) -> str:
    labeled, total = finite(run.data.get("labeled")), finite(run.data.get("train"))
    if labeled is None:
        return ""
    if labeled == 0:
        return "none"
    whole = (total or 0) + (finite(run.data.get("test")) or 0)
    return "all" if total and labeled in (total, whole) else count(labeled)


def _histogram(run: RunData) -> tuple[list[tuple[str, int, float]], str]:
    counts = run.data.get("class_counts")
    if not (isinstance(counts, list) and counts and all(type(n) is int and n >= 0 for n in counts)):
        return [], ""
    pairs, note = list(enumerate(counts)), "Images per class in the whole data set."
    if len(pairs) > MAX_CLASSES:
        pairs.sort(key=lambda pair: (-pair[1], pair[0]))
        note += f" The {MAX_CLASSES} largest of {len(pairs)} classes; the smallest has {plural(pairs[-1][1], 'image')}."
        pairs = pairs[:MAX_CLASSES]
    largest = max(n for _, n in pairs) or 1
    return [(run.class_name(label), n, round(100 * n / largest, 1)) for label, n in pairs], note


def command_line(config: dict[str, Any]) -> str:
    """Returns ``coulomb train DATA --option value …`` with every option that has a value; '' without a configuration."""
    if not config:
        return ""
    words = ["coulomb train"]
    if config.get("data") is not None:
        words.append(shlex.quote(str(config["data"])))
    for name, value in config.items():
        flag = shlex.quote("--" + str(name).replace("_", "-"))
        if name == "data" or value is None:
            continue
        if isinstance(value, dict):  # --view flip=0 for single views, --option top_k=20 for the method
            option = "--option" if name == "method_options" else "--view"
            words += [f"{option} {shlex.quote(f'{key}={item}')}" for key, item in value.items() if item is not None]
        elif isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list):
            words += [f"{flag} {shlex.quote(str(item))}" for item in value]
        else:
            words.append(f"{flag} {shlex.quote(str(value))}")
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > LINE_WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return " \\\n  ".join(lines)
