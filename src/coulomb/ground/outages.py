"""Errors of the operating system that say nothing about a file: a disk, the network or this process failed."""

import errno

from coulomb.ground.errors import DataUnavailableError
from coulomb.ground.text import visible

_OUTAGES = frozenset(
    getattr(errno, name)
    for name in (
        "EIO ESTALE ETIMEDOUT ENOTCONN ECONNRESET ECONNABORTED ECONNREFUSED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH "
        "ENETRESET ESHUTDOWN EREMOTEIO ENODEV ENXIO EMFILE ENFILE ENOMEM ENOBUFS"
    ).split()
    if hasattr(errno, name)
)


def is_outage(error: OSError) -> bool:
    """Returns True if a disk, the network or this process failed, False for an error of one file, such as no permission."""
    return error.errno in _OUTAGES


def unavailable(where: object, error: OSError) -> DataUnavailableError:
    """Returns the error for data at ``where`` that the operating system could not read."""
    return DataUnavailableError(
        f"{visible(where)}: cannot be read ({error.strerror or error}); check the disk and the network, then run the command "
        "again, or resume the run"
    )
