"""Ctrl-C and SIGTERM: training stops after the current update, with a checkpoint of it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl

from coulomb.errors import NonFiniteError, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals(pl.Callback):
    """The handler of SIGINT and SIGTERM while a run is prepared, trained or evaluated.

    A signal raises KeyboardInterrupt, except while ``patient`` is set: then the first one is only recorded in ``number``, and
    `Checkpoints` ends the training after the current update. A second one raises in any case. ``step`` is the step of the
    last checkpoint, None before there is one.

    As a callback it must be the first: when training starts, it replaces Lightning's handler of SIGTERM, which would end the
    process without a message. Handlers can be set in the main thread only; elsewhere the signals keep their meaning.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.patient = False
        self.step: int | None = None
        self._process = os.getpid()
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Set the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                previous = signal.signal(number, self)
                self._previous.setdefault(number, previous)

    def remove(self) -> None:
        """Restore the handlers that were set before."""
        for number, previous in self._previous.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
        self._previous = {}

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Replace Lightning's handler."""
        self.install()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if os.getpid() != self._process:  # a worker process that was forked: its parent decides about Ctrl-C
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        first, self.number = self.number is None, number
        if not (first and self.patient):
            raise KeyboardInterrupt


@contextmanager
def stoppable(sentence: Callable[[Signals], str]) -> Iterator[Signals]:
    """Handle SIGINT and SIGTERM in the block; raise `Stopped` with ``sentence(signals)`` if one ended it."""
    signals = Signals()
    signals.install()
    try:
        yield signals
    except NonFiniteError:
        raise
    except (KeyboardInterrupt, RuntimeError, SystemExit) as error:
        # After a signal, other errors follow from it: data workers or other processes received it too.
        if signals.number is None and not isinstance(error, KeyboardInterrupt):
            raise
        raise Stopped(sentence(signals), signals.number or signal.SIGINT) from None
    finally:
        signals.remove()
