"""Metrics of a run: ``metrics.jsonl``, and the same values as TensorBoard files and for other loggers."""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_text
from coulomb.ground.reading import RESTORE, check_shape, list_of, maybe, number, parse_json, read_lines, whole

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

log = logging.getLogger("coulomb")


class Journal:
    """Writes one JSON object per line, complete on disk before the next step begins, and the same values for loggers.

    Args:
        path: ``metrics.jsonl``.
        tensorboard: folder for event files; None for none. If they cannot be written, a warning is logged and the run
            continues. Records are written here without a thread, because TensorBoard's own writer hangs on a full disk.

    ``listeners`` are called with every line after it is written. ``loggers`` receive its numbers; one that fails is left out
    from then on, with a warning. In a resumed run, ``new_loggers``, whose log is empty, receive the earlier lines first.
    """

    def __init__(self, path: Path, tensorboard: Path | None = None):
        self.path = path
        self.loggers: list[Logger] = []
        self.new_loggers: list[Logger] = []
        self.repeated = 0  # lines to come that the loggers have received before the run was resumed
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self.events: Path | None = None
        if tensorboard is not None:
            tensorboard.mkdir(parents=True, exist_ok=True)
            self.events = tensorboard / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}.coulomb"
            self._record(file_version="brain.Event:2")

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line, which must contain ``step``.

        Raises:
            InputError: the disk is full, or the folder is no longer writable.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); free some space, then continue with --resume"
            ) from None
        if self.repeated:
            self.repeated -= 1
        else:
            if self.events is not None:
                self._scalars(line)
            self._log(line, self.loggers)
        for listener in self.listeners:
            listener(line)

    def forget_after(self, step: int) -> list[dict[str, Any]]:
        """Removes the lines after ``step``, which a resumed run repeats; returns the remaining ones.

        A run that resumes at step 0 has no checkpoint and repeats everything, including the evaluation at step 0. Loggers
        cannot forget: they keep what they have received, and the repeated lines are not sent again.
        """
        lines = read_metrics(self.path)
        remaining = [line for line in lines if line["step"] <= step] if step else []
        write_text(self.path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in remaining))
        self.repeated = len(lines) - len(remaining)
        for line in lines:
            self._log(line, self.new_loggers)
        return remaining

    def _log(self, line: dict[str, Any], loggers: "Iterable[Logger]") -> None:
        if not (values := scalars(line)).keys() - {"epoch"}:
            return
        for logger in list(loggers):
            try:
                logger.log_metrics(values, step=line["step"])
                logger.save()
            except Exception as error:  # servers, disks, accounts: a log must not end the training that it is about
                name = type(logger).__name__
                log.warning("%s failed (%s); the run continues without it, metrics.jsonl has all values", name, error)
                self.loggers.remove(logger)
                self.new_loggers = [each for each in self.new_loggers if each is not logger]

    def _scalars(self, line: dict[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars(line).items()]
        self._record(step=line["step"], summary=Summary(value=values))

    def _record(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        assert self.events is not None
        try:
            with self.events.open("ab") as file:
                RecordWriter(file).write(Event(wall_time=time.time(), **content).SerializeToString())
        except OSError as error:
            log.warning("TensorBoard files cannot be written (%s); metrics.jsonl has the same values", error.strerror)
            self.events = None


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers of a line by name, without ``step``."""
    return {name: value for name, value in line.items() if name != "step" and isinstance(value, int | float)}


LINE = {
    "step": whole,
    "epoch": maybe(whole),
    "loss": maybe(number),
    "seconds": maybe(number),
    "class_gradient_norm": maybe(list_of(maybe(number))),
    "class_gradient_views": maybe(list_of(number)),
}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Reads all complete lines of ``metrics.jsonl``; a last line that a kill cut short is skipped.

    Raises:
        InputError: any other line is damaged, or is not the metrics of a step.
    """
    if not path.exists():
        return []
    lines = []
    for index, content in enumerate(read_lines(path), 1):
        if not content.strip():
            continue
        remedy = f"remove line {index}, or {RESTORE}"
        try:
            line = parse_json(content)
        except ValueError as error:
            if not content.endswith(b"\n") and (content.startswith(b"{") or not content.strip(b"\0")):
                break  # the last line, cut short by a kill or, as zeros, by a power cut
            why = str(error).removesuffix(" in line 1")
            raise InputError(f"{path}, line {index}: cannot be read as JSON ({why}); {remedy}") from None
        lines.append(check_shape(f"{path}, line {index}", line, LINE, remedy))
    return lines
