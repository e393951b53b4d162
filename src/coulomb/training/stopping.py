"""Ctrl-C and SIGTERM stop the training after the current update, with a checkpoint."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from coulomb.ground.errors import NonFiniteError, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handles SIGINT and SIGTERM while a run is prepared, trained or evaluated.

    A signal raises KeyboardInterrupt. While ``patient`` is set, the first one is only recorded in ``number``, and
    `Checkpoints` ends the training after the current update; a second one always raises. ``step`` is the step of the last
    checkpoint, or None.

    Handlers can only be set in the main thread; in other threads nothing is changed.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.patient = False
        self.step: int | None = None
        self._process = os.getpid()
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Sets the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                previous = signal.signal(number, self)
                self._previous.setdefault(number, previous)

    def remove(self) -> None:
        """Restores the previous handlers."""
        for number, previous in self._previous.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
        self._previous = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if os.getpid() != self._process:  # in a forked worker: the parent handles Ctrl-C
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        first, self.number = self.number is None, number
        if not (first and self.patient):
            raise KeyboardInterrupt


@contextmanager
def stoppable(sentence: Callable[[Signals], str]) -> Iterator[Signals]:
    """Handles SIGINT and SIGTERM while the block runs; raises `Stopped` with ``sentence(signals)`` if one ended it."""
    signals = Signals()
    signals.install()
    try:
        yield signals
    except NonFiniteError:
        raise
    except (KeyboardInterrupt, RuntimeError, SystemExit) as error:
        # After a signal, other errors are its consequence: data workers and other processes receive it, too.
        if signals.number is None and not isinstance(error, KeyboardInterrupt):
            raise
        raise Stopped(sentence(signals), signals.number or signal.SIGINT) from None
    finally:
        signals.remove()
