"""A warning during training when something is clearly wrong, once."""

import logging
from typing import Any

import lightning.pytorch as pl

from coulomb.doctor import Watcher
from coulomb.runs.journal import Journal, read_metrics

log = logging.getLogger("coulomb")


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
                self.watcher.hear(line)
            self.journal.listeners.append(self.hear)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Stop listening."""
        self.journal.listeners.clear()

    def hear(self, line: dict[str, Any]) -> None:
        """Say what is to be said."""
        for sentence in self.watcher.hear(line):
            log.warning("%s", sentence)
