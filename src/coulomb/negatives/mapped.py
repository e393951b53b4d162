"""Rows in a sparse file that is mapped into memory, and a log beside it by which they can go back to a checkpoint."""

import mmap
import socket
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.errors import InputError
from coulomb.negatives.start import initial_rows
from coulomb.negatives.undo import UndoLog
from coulomb.similarity.collectives import rows_in

REMEDY = "continue its run by load_state_dict, choose another path, or delete it with its .undo files"


class MappedRows:
    """[n, dim] in fp32 in a file; a slot of zeros was never written and stands for its first direction.

    Raises:
        InputError: the file is no bank, or one of another size or seed.
    """

    def __init__(self, path: Path, slots: int, dim: int, seed: int) -> None:
        self.path, self.dim, self.seed = path, dim, seed
        wanted, found = slots * dim * 4, path.stat().st_size if path.exists() else None
        self.log = UndoLog(path, dim, {"slots": slots, "dim": dim, "seed": seed})
        if found is not None and (not self.log.exists() or found != wanted):
            why = f"{found} bytes, not the {wanted} of this bank" if self.log.exists() else "no undo log beside it"
            raise InputError(
                f"path={str(path)!r}: exists and is no bank of [{slots}, {dim}] ({why}); choose another path"
            )
        try:
            self.log.open()
            self.rows = mapped_rows(path, wanted).view(slots, dim)
        except OSError as error:
            raise InputError(f"path={str(path)!r}: cannot be made or mapped ({error})") from None
        self.of_another_run = self.log.has_updates()
        self._writes = True

    def read(self, slots: Tensor) -> Tensor:
        """A copy of some rows [M, dim]."""
        if self.of_another_run:
            raise InputError(f"path={str(self.path)!r}: holds the updates of an earlier run: {REMEDY}")
        rows = self.rows[slots]
        fresh = (rows == 0).all(1)
        rows[fresh] = initial_rows(slots[fresh], self.dim, self.seed)
        return rows

    def write(self, number: int, slots: Tensor, rows: Tensor) -> None:
        """Update ``number``: replace rows; what was in the file is logged first."""
        self.log.record(number, slots, self.rows[slots])
        self.rows[slots] = rows

    def writes(self, group: dist.ProcessGroup | None) -> bool:
        """Whether this process is the one of its machine that writes; all of the group must call this."""
        if group is not None:
            host = torch.tensor([int.from_bytes(socket.gethostname().encode()[-7:])])
            hosts = rows_in(group, host)
            self._writes = int((hosts == host).nonzero()[0]) == dist.get_rank(group)
        return self._writes

    def mark(self, updates: int) -> None:
        """A checkpoint is being made after so many updates."""
        if self._writes and not self.of_another_run:
            self.log.mark(updates)

    def go_back(self, updates: int) -> None:
        """Undo all updates from number ``updates`` on. Several processes may do this at once: all write the same."""
        self.log.undo(self.rows, updates)
        self.of_another_run = False


def mapped_rows(path: Path, size: int) -> Tensor:
    """The numbers of a file of ``size`` bytes, made (sparse) if absent; what is written to the tensor is in the file."""
    with path.open("ab") as file:
        file.truncate(size)
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    if hasattr(mmap, "MADV_RANDOM"):
        memory.madvise(mmap.MADV_RANDOM)  # reading ahead makes a row here and a row there hundreds of times slower
    return torch.frombuffer(memory, dtype=torch.float32)
