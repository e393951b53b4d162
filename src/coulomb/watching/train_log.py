"""``train.log``: everything worth knowing about a run, in plain lines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def train_log(path: Path) -> Iterator[None]:
    """Append what the ``coulomb`` loggers say to ``path`` while the block runs; an exception's message too."""
    logger = logging.getLogger("coulomb")
    handler = logging.FileHandler(path, encoding="utf-8")
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
        handler.close()
