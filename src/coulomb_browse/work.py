"""The user's decisions: an append-only file of JSON lines, which survives a crash, and every change of which can be undone."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading import parse_json, read_lines

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

KINDS = {  # what is decided about an image: what its value may be
    "file": "keep or drop, of a group of duplicates",
    "correction": "the right label of an image whose label looked wrong; the given label if it is kept",
    "label": "the label that the user gave",
}
MOST_TEXT = 1000  # characters of a label
Values = dict[str, str | None]


class Work:
    """Decisions by kind and image: ``work["file"]["a.jpg"] == "drop"``. One process at a time opens the file.

    Each line is ``{"n": 7, "at": time, "kind": "file", "set": {id: value or null}}`` or ``{"n": 8, "at": time, "undo": 7}``.
    A line is on the disk (fsync) before `decide` returns. A process that is killed leaves at most one incomplete line, at the
    end; lines that cannot be read are skipped and counted in ``damaged``.

    Args:
        path: path of the file, which is created with the first decision.

    Raises:
        InputError: another process has the file open, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.damaged = path, 0
        self._decided: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        self._history: list[tuple[int, str, Values]] = []  # number, kind and previous values of what can be undone
        self._last = 0
        self._guard = threading.Lock()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise InputError(f"{path}: cannot be opened ({error.strerror}); check its permissions") from None
        self.locked = self._lock()
        self._complete = True  # False: the last line has no end
        for line in read_lines(path, remedy="move it elsewhere to start again"):
            self._complete = line.endswith(b"\n")
            self._read(line)

    def __getitem__(self, kind: str) -> Mapping[str, str]:
        return self._decided[kind]

    @property
    def undoable(self) -> int:
        """The number of changes that can be undone."""
        return len(self._history)

    def decide(self, kind: str, values: Mapping[str, Any], known: Callable[[str], bool]) -> None:
        """Sets decisions about images, {id: value}; None removes one. On the disk when it returns.

        Raises:
            InputError: an unknown kind or image, or a value that the kind does not have.
        """
        _check(kind, values)
        if unknown := [name for name in values if not known(name)]:
            raise InputError(f"id={unknown[0]!r}: is not in the index; reload the page")
        with self._guard:
            self._append({"kind": kind, "set": dict(values)})

    def undo(self) -> tuple[str, Values] | None:
        """Undoes the last change that is in force; returns its kind and the values before it, None if there is none."""
        with self._guard:
            if not self._history:
                return None
            number, kind, values = self._history[-1]
            self._append({"undo": number})
            return kind, values

    def close(self) -> None:
        """Closes the file and releases its lock."""
        with self._guard, contextlib.suppress(OSError):
            os.close(self._file)

    def _lock(self) -> bool:
        try:
            if fcntl is None:
                raise OSError
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise InputError(
                f"{self.path}: another coulomb browse has this index open; use its page, or stop it first"
            ) from None
        except OSError:  # no such locks on this platform or file system
            return False
        return True

    def _append(self, change: dict[str, Any]) -> None:
        entry = {"n": self._last + 1, "at": datetime.now(UTC).isoformat(timespec="seconds")} | change
        line = ("" if self._complete else "\n") + json.dumps(entry, ensure_ascii=True) + "\n"
        content = line.encode()
        try:
            written = os.write(self._file, content)
            self._complete = written == len(content)
            if not self._complete:
                raise OSError(0, "the disk is full")
            os.fsync(self._file)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); free some space, then decide again"
            ) from None
        self._apply(entry)

    def _read(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            entry = parse_json(line)
            if not isinstance(entry, dict) or type(entry.get("n")) is not int:
                raise ValueError
            if "undo" not in entry:
                _check(entry.get("kind"), entry.get("set"))
            self._apply(entry)
        except ValueError:  # InputError is one
            self.damaged += 1

    def _apply(self, entry: dict[str, Any]) -> None:
        self._last = max(self._last, entry["n"])
        if "undo" in entry:
            if not self._history or self._history[-1][0] != entry["undo"]:
                raise ValueError("undoes a change that is not the last")
            _, kind, values = self._history.pop()
            self._set(kind, values)
            return
        kind, values = entry["kind"], entry["set"]
        self._history.append((entry["n"], kind, {name: self._decided[kind].get(name) for name in values}))
        self._set(kind, values)

    def _set(self, kind: str, values: Values) -> None:
        for name, value in values.items():
            if value is None:
                self._decided[kind].pop(name, None)
            else:
                self._decided[kind][name] = value


def _check(kind: Any, values: Any) -> None:
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"kind={kind!r}: is not one of {', '.join(KINDS)}")
    if not isinstance(values, Mapping) or not values:
        raise InputError("set: must be an object of decisions by id")
    for value in values.values():
        if value is None:
            continue
        if not isinstance(value, str) or not value.strip() or len(value) > MOST_TEXT:
            raise InputError(f"set: a decision must be a text of 1 to {MOST_TEXT} characters, or null")
        if kind == "file" and value not in ("keep", "drop"):
            raise InputError(f"set: {value!r} is neither 'keep' nor 'drop'")
