"""The errors that a user can mend."""

from collections.abc import Iterable


class InputError(ValueError):
    """Something the caller handed over is wrong, and the message says what, with which value, and what to do.

    The command line prints the message as one line and exits with code 2; no traceback.
    """


class NonFiniteError(RuntimeError):
    """A loss became NaN or infinite during training; the message names the first tensor that did and the saved batch."""


class LostProcessError(RuntimeError):
    """Another process of a run with several processes ended; the message says how to resume."""


class Stopped(KeyboardInterrupt):
    """A signal (Ctrl-C or SIGTERM) stopped a run; the message says at which step, and how to resume.

    Args:
        message: the sentence for the user.
        signal: number of the signal.
    """

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.code = 128 + signal  # the exit code that shells use: 130 for Ctrl-C, 143 for SIGTERM


class CoulombWarning(UserWarning):
    """Part of what was handed over carries no signal; the message counts it (anchors without positives, zero vectors)."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message about a ``name`` that is none of ``names``: "; did you mean 'simclr'?", or nothing."""
    import difflib  # for errors alone

    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
