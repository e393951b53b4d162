"""``train.log``: everything worth knowing about a run, in plain lines."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
