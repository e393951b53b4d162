"""The log of a mapped bank: what each update replaced, in segments that begin at a checkpoint."""

import io
import json
import os
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coulomb.errors import InputError

KEPT = 3  # segments: back to the checkpoint before the last but one, as a kill may come while one is written
RECORD = struct.Struct("<qq")  # number of the update, rows


class UndoLog:
    """PATH.undo-NUMBER: a line of JSON, then records of (number, rows, slots, the rows that were there).

    A record is in the file before its update begins, so that an update cut short by a kill is undone too; a record
    that was cut short itself is ignored, as its update never began.
    """

    def __init__(self, path: Path, dim: int, about: dict[str, Any]) -> None:
        self.path, self.dim = path, dim
        self.header = (json.dumps({"format": 1, **about}) + "\n").encode()

    def exists(self) -> bool:
        """Whether there is a log."""
        return bool(self._segments())

    def open(self) -> None:
        """Make the first segment, or check that those that exist are of such a bank."""
        segments = self._segments()
        for segment in segments:
            with segment.open("rb") as file:
                found = file.readline()
            if found != self.header:
                raise InputError(
                    f"path={str(self.path)!r}: is a bank of {found.decode(errors='replace').strip()}, "
                    f"not of {self.header.decode().strip()}; choose another path"
                )
        if not segments:
            self._begin(0)

    def has_updates(self) -> bool:
        """Whether anything was ever written."""
        segments = self._segments()
        return _number(segments[-1]) > 0 or segments[-1].stat().st_size > len(self.header)

    def record(self, number: int, slots: Tensor, rows: Tensor) -> None:
        """Append one update's old rows, at least one."""
        content = RECORD.pack(number, len(slots)) + _bytes(slots.long()) + _bytes(rows)
        try:
            with self._segments()[-1].open(
                "ab", buffering=0
            ) as file:  # a file left open would be the caller's to close
                complete = file.write(content) == len(content)
        except OSError:
            complete = False
        if not complete:
            raise InputError(f"path={str(self.path)!r}: its undo log cannot be written; is the disk full?")

    def mark(self, updates: int) -> None:
        """Begin a segment at a checkpoint after so many updates; drop the segments that no kept checkpoint needs."""
        segments = self._segments()
        if _number(segments[-1]) == updates:
            return
        self._begin(updates)
        for segment in segments[: 1 - KEPT]:
            segment.unlink(missing_ok=True)

    def undo(self, rows: Tensor, updates: int) -> None:
        """Put back, newest first, what the updates from number ``updates`` on replaced, and forget these updates.

        Raises:
            InputError: the log does not reach back that far, or knows of fewer updates.
        """
        segments = self._segments()
        found = [(segment, *self._read(segment, updates)) for segment in segments]
        oldest, newest = _number(segments[0]), found[-1][1]
        known = newest[-1][0] + 1 if newest else _number(segments[-1])
        if not oldest <= updates <= known:
            raise InputError(
                f"path={str(self.path)!r}: the state after {updates} updates was asked for, but the file can go back "
                f"to those after {oldest} to {known} only: load a later checkpoint, or train anew with another path"
            )
        for segment, records, end in reversed(found):
            for number, slots, old in reversed(records):
                if number >= updates:
                    rows[slots] = old
            if _number(segment) > updates:
                segment.unlink(missing_ok=True)
            elif segment.exists():
                os.truncate(segment, end)

    def _read(self, segment: Path, updates: int) -> tuple[list[tuple[int, Tensor, Tensor]], int]:
        """The complete records, and where those before number ``updates`` end."""
        try:
            file = io.BytesIO(segment.read_bytes())
        except FileNotFoundError:  # another process of this machine was faster
            return [], 0
        records, end = [], len(file.readline())
        while len(head := file.read(RECORD.size)) == RECORD.size:
            number, count = RECORD.unpack(head)
            slots, old = file.read(8 * count), file.read(4 * count * self.dim)
            if len(old) < 4 * count * self.dim:
                break
            if number < updates:
                end = file.tell()
            records.append(
                (
                    number,
                    torch.frombuffer(bytearray(slots), dtype=torch.long),
                    torch.frombuffer(bytearray(old), dtype=torch.float32).view(count, self.dim),
                )
            )
        return records, end

    def _segments(self) -> list[Path]:
        start = f"{self.path.name}.undo-"
        beside = self.path.parent.iterdir()
        return sorted((p for p in beside if p.name.startswith(start) and p.name[len(start) :].isdigit()), key=_number)

    def _begin(self, number: int) -> None:
        segment = self.path.with_name(f"{self.path.name}.undo-{number}")
        beside = segment.with_name(f".{segment.name}.{os.getpid()}.tmp")
        beside.write_bytes(self.header)
        beside.replace(segment)


def _number(segment: Path) -> int:
    return int(segment.name.rsplit("-", 1)[1])


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()
