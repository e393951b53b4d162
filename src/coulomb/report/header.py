"""The line under the title: what was run, in words."""

from dataclasses import dataclass
from typing import Any

from coulomb.report.collect import Run, finite
from coulomb.report.wording import count, duration, plural, shorten


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
