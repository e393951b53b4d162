"""Output of a training while it runs: metrics, warnings, unreadable images, progress, and the log file."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar

from coulomb.kinds.text.tokens import TokenColumn
from coulomb.tables import Samples
from coulomb.tables.check import rounded_sentence
from coulomb.training.order import TrainingBatch
from coulomb.training.plan.plan import require_readable
from coulomb.training.record.journal import Journal, read_metrics

log = logging.getLogger("coulomb")


class TrainingFigures(pl.Callback):
    """Writes a line for every update: ``step``, ``epoch``, ``loss``, ``no_signal``, ``floor``, ``lr``, ``images_per_second``,
    ``seconds`` (of training so far, with evaluations and without interruptions), with a penalty of that name ``stay_close``
    (mean of 1 − cosine, unweighted and not part of ``loss``), the method's own figures, and those that ``more`` returns.

    ``no_signal``, the loss of embeddings without information, and ``floor``, the smallest possible loss, are null if the
    method does not know them. ``loss`` is the mean over processes and over the accumulated batches of the update, in full
    precision. ``epoch`` is the epoch of the step and counts from 1.
    """

    def __init__(self, journal: Journal, more: Callable[[], dict[str, float]] = dict):
        self.journal, self.more = journal, more
        self.pending: list[float] = []
        self.distances: list[float] = []
        self.images = 0
        self.clock = 0.0
        self.seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Starts the clock; in a resumed run, removes lines after the checkpoint."""
        self.clock = time.perf_counter()
        if trainer.is_global_zero:
            remaining = self.journal.forget_after(trainer.global_step)
            self.seconds = max((line.get("seconds", 0.0) for line in remaining), default=0.0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: TrainingBatch, batch_idx: int
    ) -> None:
        """Collects the loss, and writes a line when the update is complete."""
        self.pending.append(float(outputs["value"]))
        if outputs["stay_close"] is not None:
            self.distances.append(float(outputs["stay_close"]))
        self.images += outputs["images"]
        if not module.completes_update(batch_idx):
            return
        now = time.perf_counter()
        self.seconds += now - self.clock
        line = (
            module.method.figures()
            | self.more()
            | {
                "step": trainer.global_step,
                "epoch": batch_idx // module.steps_per_epoch + 1,
                "loss": sum(self.pending) / len(self.pending),
                "no_signal": outputs["no_signal"],
                "floor": outputs["floor"],
                "lr": outputs["lr"],
                "images_per_second": round(self.images / max(now - self.clock, 1e-9), 1),
                "seconds": round(self.seconds, 3),
            }
        )
        if self.distances:
            line["stay_close"] = sum(self.distances) / len(self.distances)
        self.pending, self.distances, self.images, self.clock = [], [], 0, now
        if trainer.is_global_zero:
            self.journal.write(line)


class Watcher(Protocol):
    """Live checks of a run."""

    def read(self, line: dict[str, Any]) -> list[str]:
        """Adds a line of ``metrics.jsonl`` and returns the warnings to log now."""


MakeWatcher = Callable[
    [dict[str, Any], dict[str, Any], bool], Watcher
]  # options, facts about the data, whether labels are needed


class Alarm(pl.Callback):
    """Reads the lines of ``metrics.jsonl`` as they are written, and logs the warnings of a `Watcher`.

    It measures nothing itself: the rules use existing metrics whenever a live evaluation is among them. It must come after
    `TrainingFigures`, which removes the lines that a resumed run repeats. Earlier warnings are not repeated.
    """

    def __init__(self, journal: Journal, watcher: Watcher):
        self.journal, self.watcher = journal, watcher

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Reads the existing lines, then listens."""
        if trainer.is_global_zero:
            for line in read_metrics(self.journal.path):
                self.watcher.read(line)
            self.journal.listeners.append(self.hear)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Stops listening."""
        self.journal.listeners.clear()

    def hear(self, line: dict[str, Any]) -> None:
        """Logs the warnings that a line gives rise to."""
        for sentence in self.watcher.read(line):
            log.warning("%s", sentence)


class CorruptImages(pl.Callback):
    """Collects unreadable images, from before and during training, and names those that were rounded to 8 bits.

    Args:
        stores: the image stores of the run (training, test), each counted once.
        allowed: largest fraction of unreadable images per store; above it the run stops.
    """

    def __init__(self, stores: list[Samples], allowed: float):
        self.stores: list[Samples] = []
        self.allowed = allowed
        self.reasons: dict[int, dict[int, str]] = {}
        self.named: dict[int, set[int]] = {}  # by `coulomb.training.plan.plan.decode`
        for store in stores:
            self.watch(store)

    def watch(self, store: Samples, *, trains: bool = False) -> None:
        """Adds the samples of a store that could not be read. The first store is the one whose batches train; ``trains``:
        this one.
        """
        if id(store) in self.reasons:
            return
        self.stores.insert(0 if trains else len(self.stores), store)
        self.reasons[id(store)], self.named[id(store)] = {}, set(store.rounded)
        self.add(store, store.failures)

    def add(self, store: Samples, failures: dict[int, str]) -> None:
        """Logs new failures by name.

        Raises:
            InputError: more than ``allowed`` of the images cannot be read.
        """
        reasons = self.reasons[id(store)]
        for index, reason in failures.items():
            if index not in reasons:
                reasons[index] = reason
                log.warning("skipped unreadable image %s: %s", store.item_id(index), reason)
        require_readable(store, list(reasons), self.allowed)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: TrainingBatch, batch_idx: int) -> None:
        """Adds the images of the batch that could not be decoded."""
        if batch.failed:
            self.add(self.stores[0], dict(batch.failed))
        self.stores[0].rounded.update(batch.rounded)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Logs which images were rounded to 8 bits, if they were first decoded during the training."""
        for store in self.stores:
            cut = [
                cells.cut for cells in store.table.columns.values() if isinstance(cells, TokenColumn)
            ]  # counted before
            new = [row for row in sorted(store.rounded - self.named[id(store)]) if not any(each[row] for each in cut)]
            if new and trainer.is_global_zero:
                log.info("%s", rounded_sentence([store.item_id(position) for position in new]))

    def listed(self) -> list[dict[str, str]]:
        """Returns names and reasons, for ``data.json``."""
        return [
            {"id": store.item_id(index), "reason": reason}
            for store in self.stores
            for index, reason in sorted(self.reasons[id(store)].items())
        ]


class Bar(TQDMProgressBar):
    """A progress bar over the whole run, with epoch, loss, its no-signal value if known, and the latest kNN."""

    def get_metrics(self, trainer: pl.Trainer, module: Any) -> dict[str, Any]:
        """Returns the values at the end of the bar."""
        return _figures(module)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Sets the description: for Lightning, the whole run is one epoch."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description("training")


class Lines(pl.Callback):
    """For logs and pipes: one line per epoch, at most one per second, and the last."""

    def __init__(self) -> None:
        self.printed = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Prints when an epoch is complete."""
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        if rest or not trainer.is_global_zero or (epoch < module.config.epochs and time.monotonic() - self.printed < 1):
            return
        self.printed = time.monotonic()
        figures = "  ".join(f"{name} {value}" for name, value in _figures(module).items() if name != "epoch")
        print(f"epoch {epoch}/{module.config.epochs}  {figures}", file=sys.stderr, flush=True)  # noqa: T201


class Watch(pl.Callback):
    """Stores the latest values for the progress display."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stores loss, no-signal value and batch."""
        module.latest = {"loss": float(outputs["value"]), "no_signal": outputs["no_signal"], "batch": batch_idx}


def progress_callbacks() -> list[pl.Callback]:
    """Returns callbacks for a bar on a terminal, or lines elsewhere."""
    return [Watch(), Bar() if sys.stderr.isatty() else Lines()]


def _figures(module: Any) -> dict[str, str]:
    latest = getattr(module, "latest", None)
    if latest is None:
        return {}
    none = latest["no_signal"]
    figures = {
        "epoch": f"{latest['batch'] // module.steps_per_epoch + 1}/{module.config.epochs}",
        "loss": f"{latest['loss']:.3f}" + ("" if none is None else f" (no signal {none:.3f})"),
    }
    if (knn := getattr(module, "latest_knn", None)) is not None:
        figures["kNN"] = f"{knn:.1%}"
    if (mrr := getattr(module, "latest_mrr", None)) is not None:
        figures["MRR"] = f"{mrr:.3f}"
    return figures


class LogFile(logging.FileHandler):
    """A log file that is closed with one warning if it cannot be written, instead of a traceback per line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Warns once; the run continues, because results are written to other files."""
        logger, error = logging.getLogger("coulomb"), sys.exc_info()[1]
        if self in logger.handlers:
            logger.removeHandler(self)
            logger.warning("%s: cannot be written (%s); the run continues without it", self.baseFilename, error)


@contextmanager
def train_log(path: Path) -> Iterator[None]:
    """Appends log messages of ``coulomb`` to ``path`` while the block runs, and the message of an exception."""
    logger = logging.getLogger("coulomb")
    handler = LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    except BaseException as error:
        logger.error("stopped: %s: %s", type(error).__name__, error)
        raise
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        with contextlib.suppress(OSError):  # the disk may still be full
            handler.close()
