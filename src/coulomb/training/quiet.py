"""Lightning talks about itself; what it says that a user of coulomb can do nothing about is left out."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

CHATTER = (
    r".*LeafSpec.*deprecated.*",  # between versions of torch and Lightning
    r".*does not have many workers.*",  # batches come from memory
    r".*GPU available but not used.*",  # accelerator="cpu" was asked for
    r".*multiprocessing.*fork.*",
)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Only warnings and errors of Lightning's loggers, and not those of its warnings that concern its own insides."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    loggers += [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("lightning.")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in CHATTER:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
