"""Rows of a memory bank in a memory-mapped file, with an undo log that restores them to the state of a checkpoint.

PATH holds the rows (sparse); PATH.undo-NUMBER, one segment per checkpoint, a line of JSON and then one record per row
that an update replaced since update NUMBER. The records of an update are written before its rows, so that an update
interrupted by a kill is undone as well; an incomplete record belongs to an update that has not changed any row.

Plain files instead of SQLite: that takes 2 to 4 times as long per update and .3 to .7 s per checkpoint to drop old records.
"""

import glob
import json
import mmap
import os
import socket
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.similarity.collectives import gather_rows

SEGMENTS = 3  # the state can return to any of the last three checkpoints: a kill may hit while the last one is written


class MappedRows:
    """Rows [n, dim] in fp32 in a sparse file; rows of zeros were never written.

    Args:
        path: the file, created if it does not exist.
        slots: n.
        dim: width of a row.
        seed: recorded, so that the file is not continued with another one.

    Raises:
        InputError: the file cannot be created, is not a bank, or has another size or seed.
    """

    def __init__(self, path: Path, slots: int, dim: int, seed: int) -> None:
        self.path, size = path, slots * dim * 4
        self.record = np.dtype([("update", "<i8"), ("slot", "<i8"), ("row", "<f4", (dim,))])
        self.header = (json.dumps({"format": 2, "slots": slots, "dim": dim, "seed": seed}) + "\n").encode()
        self._writes = True
        # Size first: another process may be creating the bank, and the log is created before the file.
        present = path.stat().st_size if path.exists() else 0
        segments = self._segments()
        if present and not segments:
            raise self._error("exists and is no bank, as it has no undo log; choose another path")
        try:
            self.newest = segments[-1] if segments else self._begin(0)
            with self.newest.open("rb") as file:
                header, records = file.readline(), file.read(1)
            if header != self.header:
                text = header.decode(errors="replace").strip()
                raise self._error(f"is a bank of {text}, not of {self.header.decode().strip()}; choose another path")
            self.of_earlier_run = bool(records) or _number(self.newest) > 0
            if present != size and (present or self.of_earlier_run):
                raise self._error(f"has {present} bytes instead of {size}; choose another path")
            with path.open("a+b") as file:
                file.truncate(size)
                memory = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise self._error(f"cannot be created or mapped ({error})") from None
        if hasattr(mmap, "MADV_RANDOM"):
            memory.madvise(mmap.MADV_RANDOM)  # read-ahead makes access to single rows hundreds of times slower
        self.rows = torch.frombuffer(memory, dtype=torch.float32).view(slots, dim)

    def read(self, slots: Tensor) -> Tensor:
        """Returns a copy of rows, [M, dim].

        Raises:
            InputError: the file holds the updates of an earlier run, and `go_back` has not been called.
        """
        if self.of_earlier_run:
            remedy = "continue that run by load_state_dict, choose another path, or delete it with its .undo files"
            raise self._error(f"holds the updates of an earlier run: {remedy}")
        return self.rows[slots]

    def write(self, update: int, slots: Tensor, rows: Tensor) -> None:
        """Replaces rows as update number ``update``, after logging their previous values.

        Raises:
            InputError: the log cannot be written; no row is replaced.
        """
        records = np.empty(len(slots), self.record)
        records["update"], records["slot"], records["row"] = update, slots, self.rows[slots]
        length = self.newest.stat().st_size
        try:
            with self.newest.open("ab") as file:  # not kept open, as nothing would close it
                file.write(records.tobytes())
        except OSError as error:
            os.truncate(self.newest, length)  # an incomplete record would shift all that follow
            raise self._error(f"its undo log cannot be written ({error}); is the disk full?") from None
        self.rows[slots] = rows

    def elect_writer(self, group: dist.ProcessGroup | None) -> bool:
        """Returns True in the process that writes, the first of each machine; every process of the group must call this."""
        if group is not None:
            host = torch.tensor([int.from_bytes(socket.gethostname().encode()[-7:])])
            self._writes = int((gather_rows(group, host) == host).nonzero()[0]) == dist.get_rank(group)
        return self._writes

    def mark(self, updates: int) -> None:
        """Begins a segment of the log at a checkpoint after ``updates`` updates, and deletes the oldest."""
        if self._writes and not self.of_earlier_run and _number(self.newest) != updates:
            segments = self._segments()
            self.newest = self._begin(updates)
            for segment in segments[: 1 - SEGMENTS]:
                segment.unlink(missing_ok=True)

    def go_back(self, updates: int) -> None:
        """Restores the rows as they were after ``updates`` updates. Several processes may do so at the same time.

        Raises:
            InputError: the log does not reach back so far, or ends before.
        """
        segments = self._segments()
        newest = self._read(segments[-1])["update"]
        first, last = _number(segments[0]), int(newest[-1]) + 1 if len(newest) else _number(segments[-1])
        if not first <= updates <= last:
            remedy = "load a later checkpoint, or start a new run with another path"
            raise self._error(f"can return to the states after {first} to {last} updates, not {updates}: {remedy}")
        rows = self.rows.numpy()
        for segment in reversed(segments):
            records = self._read(segment)
            count = int(np.searchsorted(records["update"], updates))
            undone = records[count:][::-1]
            rows[undone["slot"]] = undone["row"]  # newest first: of several values of a slot the oldest remains
            if _number(segment) > updates:
                segment.unlink(missing_ok=True)
            elif segment.exists():
                os.truncate(segment, len(self.header) + count * self.record.itemsize)
        self.newest, self.of_earlier_run = self._segments()[-1], False

    def _error(self, text: str) -> InputError:
        return InputError(f"path={str(self.path)!r}: {text}")

    def _segments(self) -> list[Path]:
        """Segments of the log, oldest first."""
        beside = self.path.parent.glob(f"{glob.escape(self.path.name)}.undo-*")
        return sorted((s for s in beside if s.stem == self.path.name and s.suffix[6:].isdigit()), key=_number)

    def _begin(self, number: int) -> Path:
        segment = self.path.with_name(f"{self.path.name}.undo-{number}")
        temporary = segment.with_name(f".{segment.name}.{os.getpid()}.tmp")
        temporary.write_bytes(self.header)
        return temporary.replace(segment)

    def _read(self, segment: Path) -> np.ndarray:
        """The complete records of a segment; none if another process has deleted it."""
        try:
            return np.fromfile(segment, self.record, offset=len(self.header))
        except FileNotFoundError:
            return np.empty(0, self.record)


def _number(segment: Path) -> int:
    """The number of updates before the first record of a segment."""
    return int(segment.suffix[6:])
