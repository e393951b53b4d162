"""Facts about a run: its header, its data, and the command that repeats it."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.pages.numbers import count, duration, plural, shorten
from coulomb.report.collect import Run, finite


@dataclass(frozen=True)
class Header:
    """``facts``: (name, value) pairs; ``stopped``: a sentence when the run did not reach its end, else ''."""

    facts: list[tuple[str, str]]
    stopped: str


def header(run: Run) -> Header:
    """The facts that are known of ``run``."""
    config, source = run.config, run.data.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    facts: list[tuple[str, Any]] = [
        ("method", _known(config.get("method"))),
        ("encoder", _known(config.get("encoder"))),
        ("data", _known(name or config.get("data"))),
        ("images", _images(run)),
        ("epochs", _epochs(run)),
        ("time", _time(run)),
    ]
    return Header([(key, value) for key, value in facts if value], _stopped(run))


def _known(value: Any) -> str:
    return "" if value is None else shorten(str(value), 60)


def _images(run: Run) -> str:
    train = finite(run.data.get("train"))
    if train is None:
        return ""
    size = finite(run.data.get("image_size"))
    return count(train) + (f" at {size:.0f}×{size:.0f}" if size else "")


def _reached(run: Run) -> float | None:
    epochs = [epoch for line in [*run.training, *run.measures] if (epoch := finite(line.get("epoch"))) is not None]
    return max(epochs, default=None)


def _epochs(run: Run) -> str:
    planned = finite(run.config.get("epochs"))
    if planned is None:
        return ""
    reached = _reached(run)
    return f"{reached:.0f} of {planned:.0f}" if _stopped(run) and reached is not None else f"{planned:.0f}"


def _stopped(run: Run) -> str:
    """Training lines count epochs from 1, so the last epoch's lines carry the planned number."""
    planned, reached = finite(run.config.get("epochs")), _reached(run)
    if planned is None or reached is None or reached >= planned:
        return ""
    return (
        f"This run has not reached its end: {plural(round(planned), 'epoch')} were planned, the last line of its metrics "
        f"is from epoch {reached:.0f}. It may still be going on, or it stopped early."
    )


def _time(run: Run) -> str:
    """The recorded time, else an estimate from the throughput: Σ batch size · steps / (images per second)."""
    recorded = finite(run.environment.get("seconds"))
    if recorded is None and run.training:
        recorded = finite(run.training[-1].get("seconds"))
    if recorded is not None:
        return duration(recorded)
    batch, total, last = finite(run.config.get("batch_size")), 0.0, 0.0
    for factor in ("accumulate", "devices", "num_nodes"):
        batch = batch and batch * (finite(run.config.get(factor)) or 1)
    for line in run.training:
        step, speed = finite(line.get("step")), finite(line.get("images_per_second"))
        if step is None or not speed or speed < 0:
            return ""
        total, last = total + (step - last) / speed, step
    return f"about {duration(total * batch)}" if batch and total else ""


MAX_LISTED = 100
MAX_CLASSES = 40


@dataclass(frozen=True)
class DataSection:
    """Ready for the template."""

    facts: list[tuple[str, str]]
    split: str
    corrupt: list[tuple[str, str]]
    corrupt_total: int
    histogram: list[tuple[str, int, float]]  # name, images, share of the largest class
    histogram_note: str


def data_section(run: Run) -> DataSection:
    """From ``data.json``, and the class histogram from the samples where the data's own counts were not recorded."""
    data = run.data
    facts = [(name, _count(data.get(key))) for name, key in (("training images", "train"), ("held-out images", "test"))]
    facts.append(("with a label", _labelled(run)))
    if run.class_names:
        facts.append(("classes", count(len(run.class_names))))
    size, channels = finite(data.get("image_size")), finite(data.get("channels"))
    if size is not None:
        shape = f"{size:.0f}×{size:.0f} pixels"
        facts.append(
            ("seen by the network at", shape + (f", {plural(round(channels), 'channel')}" if channels else ""))
        )
    recorded = data.get("corrupt")
    entries = recorded if isinstance(recorded, list) else []
    corrupt = [
        (str(entry.get("id", "?")), str(entry.get("reason", ""))) if isinstance(entry, dict) else (str(entry), "")
        for entry in entries
    ]
    if data:
        facts.append(("could not be decoded", count(len(corrupt))))
    duplicates = finite(data.get("duplicates"))
    if duplicates is not None:
        facts.append(("exact duplicates", count(duplicates)))
    if rounded := finite(data.get("rounded")):
        facts.append(("rounded from 16 bits to 8", count(rounded)))
    source = data.get("source")
    notes = source.get("notes") if isinstance(source, dict) else None
    facts += [("note", str(note)) for note in notes] if isinstance(notes, list) else []
    split = data.get("split")
    histogram, note = _histogram(run)
    return DataSection(
        [(name, value) for name, value in facts if value],
        split if isinstance(split, str) else "",
        corrupt[:MAX_LISTED],
        len(corrupt),
        histogram,
        note,
    )


def _count(value: Any) -> str:
    number = finite(value)
    return "" if number is None else count(number)


def _labelled(run: Run) -> str:
    labelled, total = finite(run.data.get("labelled")), finite(run.data.get("train"))
    if labelled is None:
        return ""
    if labelled == 0:
        return "none"
    whole = (total or 0) + (finite(run.data.get("test")) or 0)
    return "all" if total and labelled in (total, whole) else count(labelled)


def _histogram(run: Run) -> tuple[list[tuple[str, int, float]], str]:
    counts = run.data.get("class_counts")
    if isinstance(counts, list) and counts and all(isinstance(n, int) and n >= 0 for n in counts):
        pairs, note = list(enumerate(counts)), "Images of each class, in all of the data."
    elif run.samples is not None and (run.samples.labels >= 0).any():
        found, sizes = np.unique(run.samples.labels[run.samples.labels >= 0], return_counts=True)
        pairs = list(zip(found.tolist(), sizes.tolist(), strict=True))
        note = f"Images of each class among the {plural(len(run.samples), 'held-out sample')} of this page."
    else:
        return [], ""
    if len(pairs) > MAX_CLASSES:
        pairs.sort(key=lambda pair: (-pair[1], pair[0]))
        note += f" The {MAX_CLASSES} largest of {len(pairs)} classes; the smallest has {plural(pairs[-1][1], 'image')}."
        pairs = pairs[:MAX_CLASSES]
    largest = max(n for _, n in pairs) or 1
    return [(run.class_name(label), n, round(100 * n / largest, 1)) for label, n in pairs], note


WIDTH = 96  # characters


def command_line(config: dict[str, Any]) -> str:
    """``coulomb train DATA --option value …`` with every option that has a value; '' without a configuration."""
    if not config:
        return ""
    words = ["coulomb train"]
    if config.get("data") is not None:
        words.append(shlex.quote(str(config["data"])))
    for name, value in config.items():
        flag = shlex.quote("--" + str(name).replace("_", "-"))
        if name == "data" or value is None:
            continue
        if isinstance(
            value, dict
        ):  # strengths of single views: --view flip=0; options of the method: --option top_k=20
            option = "--option" if name == "method_options" else "--view"
            words += [f"{option} {shlex.quote(f'{key}={item}')}" for key, item in value.items()]
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list):
            words += [f"{flag} {shlex.quote(str(item))}" for item in value]
        else:
            words.append(f"{flag} {shlex.quote(str(value))}")
    lines = [""]
    for word in words:  # as many options on a line as are easily read
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return " \\\n  ".join(lines)
