"""What a training writes while it runs: figures, warnings, progress and the log file."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar

from coulomb.data import Images
from coulomb.doctor import Watcher
from coulomb.runs.journal import Journal, read_metrics
from coulomb.runs.prepare import require_readable

log = logging.getLogger("coulomb")


class TrainingFigures(pl.Callback):
    """Writes a line for every update: ``step``, ``epoch``, ``loss``, ``no_signal``, ``floor``, ``lr``,
    ``images_per_second``, ``seconds`` (of training so far, evaluations included, interruptions not), the method's own
    figures, and those of ``more``, asked for at every line.

    ``no_signal``, the loss of knowing nothing, and ``floor``, the least there is, are null where the method has no such value.

    ``loss`` is the mean over processes and over the accumulated batches of the update and is written in full
    precision. ``epoch`` counts from 1 and is the epoch that the step belongs to.
    """

    def __init__(self, journal: Journal, more: Callable[[], dict[str, float]] = dict):
        self.journal, self.more = journal, more
        self.pending: list[float] = []
        self.images = 0
        self.clock = 0.0
        self.seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin, or on a resumed run forget what the checkpoint does not know."""
        self.clock = time.perf_counter()
        if trainer.is_global_zero:
            kept = self.journal.forget_after(trainer.global_step)
            self.seconds = max((line.get("seconds", 0.0) for line in kept), default=0.0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: dict[str, Any], batch_idx: int
    ) -> None:
        """Collect the loss; write when the update is complete."""
        self.pending.append(float(outputs["value"]))
        self.images += len(batch["index"])
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
                "images_per_second": round(self.images * trainer.world_size / max(now - self.clock, 1e-9), 1),
                "seconds": round(self.seconds, 3),
            }
        )
        self.pending, self.images, self.clock = [], 0, now
        if trainer.is_global_zero:
            self.journal.write(line)


class Alarm(pl.Callback):
    """Reads the lines of ``metrics.jsonl`` as they are written and logs what `coulomb.doctor.Watcher` has to say.

    It measures nothing: the rules look at figures that are there anyway, when a live evaluation is among them. It must come
    after what drops the lines that a resumed run writes again; what was said before an interruption is not said again.
    """

    def __init__(self, journal: Journal, watcher: Watcher):
        self.journal, self.watcher = journal, watcher

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Catch up with the lines there are, and listen."""
        if trainer.is_global_zero:
            for line in read_metrics(self.journal.path):
                self.watcher.read(line)
            self.journal.listeners.append(self.hear)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Stop listening."""
        self.journal.listeners.clear()

    def hear(self, line: dict[str, Any]) -> None:
        """Say what is to be said."""
        for sentence in self.watcher.read(line):
            log.warning("%s", sentence)


class CorruptImages(pl.Callback):
    """Keeps the list of unreadable images, those found before training and those met on the way.

    Args:
        stores: the image stores of the run (training, test), each counted once.
        allowed: share of a store's images that may be unreadable; above it the run stops with the list.
    """

    def __init__(self, stores: list[Images], allowed: float):
        self.stores = list({id(store): store for store in stores}.values())
        self.allowed = allowed
        self.known: dict[int, dict[int, str]] = {id(store): {} for store in self.stores}
        for store in self.stores:
            self.add(store, store.failures)

    def add(self, store: Images, failures: dict[int, str]) -> None:
        """Log new failures by name; stop when there are too many.

        Raises:
            InputError: more than ``allowed`` of the images cannot be read.
        """
        known = self.known[id(store)]
        for index, reason in failures.items():
            if index not in known:
                known[index] = reason
                log.warning("skipped unreadable image %s: %s", store.item_id(index), reason)
        require_readable(store, list(known), self.allowed)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Note what the loader could not decode."""
        if batch["failed"]:
            self.add(self.stores[0], dict(batch["failed"]))

    def listed(self) -> list[dict[str, str]]:
        """Names and reasons, for ``data.json``."""
        return [
            {"id": store.item_id(index), "reason": reason}
            for store in self.stores
            for index, reason in sorted(self.known[id(store)].items())
        ]


class Bar(TQDMProgressBar):
    """A bar over the whole run: loss beside the loss of no signal (where there is one), the epoch, and the latest kNN."""

    def get_metrics(self, trainer: pl.Trainer, module: Any) -> dict[str, Any]:
        """The figures at the end of the bar."""
        return _figures(module)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Name the bar: Lightning's one pass is our whole run."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description("training")


class Lines(pl.Callback):
    """For logs and pipes: one line an epoch, but not more than one a second, and the last."""

    def __init__(self) -> None:
        self.printed = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print when an epoch is complete."""
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        if rest or not trainer.is_global_zero or (epoch < module.config.epochs and time.monotonic() - self.printed < 1):
            return
        self.printed = time.monotonic()
        figures = "  ".join(f"{name} {value}" for name, value in _figures(module).items() if name != "epoch")
        print(f"epoch {epoch}/{module.config.epochs}  {figures}", file=sys.stderr, flush=True)  # noqa: T201


class Watch(pl.Callback):
    """Remembers the latest figures for whoever shows them."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keep loss, no-signal value and epoch."""
        module.latest = {"loss": float(outputs["value"]), "no_signal": outputs["no_signal"], "batch": batch_idx}


def progress_callbacks() -> list[pl.Callback]:
    """A bar on a terminal, lines elsewhere."""
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
    return figures


class LogFile(logging.FileHandler):
    """A log file that stops with one warning where it cannot be written, in place of a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Say so once; the files that matter are written elsewhere, with errors of their own."""
        logger, error = logging.getLogger("coulomb"), sys.exc_info()[1]
        if self in logger.handlers:
            logger.removeHandler(self)
            logger.warning("%s: cannot be written (%s); the run goes on without it", self.baseFilename, error)


@contextmanager
def train_log(path: Path) -> Iterator[None]:
    """Append what the ``coulomb`` loggers say to ``path`` while the block runs; an exception's message too."""
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
        with contextlib.suppress(OSError):  # what could not be written before
            handler.close()
