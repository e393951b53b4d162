"""Errors and warnings for users."""

from collections.abc import Iterable


class InputError(ValueError):
    """An argument, file or data set is wrong. The message names it, its value and the remedy.

    The command line prints the message as one line without a traceback and exits with code 2.
    """


class DataUnavailableError(InputError):
    """Data cannot be read to the end: the network or a disk fails, or a file changed meanwhile. The message has the remedy.

    The error says nothing about the data themselves: no image is skipped because of it, and no result that it cut short is
    saved.
    """


class NonFiniteError(RuntimeError):
    """A loss became NaN or infinite in training; the message names the first such tensor and the saved batch."""


class LostProcessError(RuntimeError):
    """Another process of a distributed run ended; the message says how to resume."""


class Stopped(KeyboardInterrupt):
    """A signal (Ctrl-C or SIGTERM) stopped a run; the message has the step and says how to resume.

    Args:
        message: for the user.
        signal: number of the signal.
    """

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.code = 128 + signal  # exit code as in shells: 130 for Ctrl-C, 143 for SIGTERM


class CoulombWarning(UserWarning):
    """Part of the input contributes nothing; the message counts it (anchors without positives, zero vectors)."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns "1 image" or "2 images" for messages; ``many``: the plural, if it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns "; did you mean 'simclr'?" for a ``name`` that is similar to one of ``names``, else an empty string."""
    import difflib  # only needed for errors

    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
