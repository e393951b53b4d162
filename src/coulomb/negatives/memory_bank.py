"""A memory bank with one slot per training image, from which noise is drawn (instance discrimination)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.ground.checked import ZERO, checked_share, checked_whole
from coulomb.ground.randomness import derive_seed
from coulomb.negatives.mapped_rows import MappedRows
from coulomb.negatives.rows import integers, unit_rows
from coulomb.similarity.collectives import Gather, checked_gather, gather_group, gather_rows

CHUNK = 2**22  # numbers drawn at a time for the initial rows


class MemoryBank(nn.Module):
    """v_i ← normalize(m·v_i + (1−m)·f_i): one unit vector per image, a moving average of its features (Wu et al., 2018).

    Initial rows are random directions, a function of (seed, slot), not the first features, as in the authors' code.

    Without ``path`` the rows are a buffer of n·D·4 bytes, which is part of the state dict. With ``path`` they are in a
    sparse memory-mapped file, for banks larger than memory; slots that were never written take no space. The state dict
    then holds only the number of updates. PATH.undo-… beside the file hold the previous values of all rows replaced since
    the last three calls of `state_dict`; `load_state_dict` restores them bit for bit, even after kill −9, and refuses
    older states. The log is trimmed by `state_dict`: without checkpoints it grows by B·(D·4 + 16) bytes per update.
    Not covered: a crash of the machine, which may lose what is not yet on the disk, and a full disk, on which the system
    ends a process that writes to a mapped file.

    With several processes `update` takes the features of all of them. In memory all banks stay identical; a mapped file
    is shared by the processes of one machine, of which one writes. Each machine needs a file on its own disk.

    Args:
        num_instances: n; slots are numbered 0 … n−1.
        dim: D, width of a row.
        momentum: m, weight of the previous vector; .5 in the authors' code. 0 keeps only the last feature.
        path: file of the rows; None keeps them in memory. A file with the updates of another run must be continued by
            `load_state_dict`, or deleted.
        seed: seed of the initial rows.
        gather: use the features of all processes: True, False, or ``"auto"``, when torch.distributed is initialized
            with several processes, which must then all call `update`.

    Raises:
        ValueError, TypeError: an argument is invalid, or rows are NaN or infinite. An `InputError` (a ValueError) for a
            file of another size, seed or run, and for states that cannot be restored.

    >>> bank = MemoryBank(1000, 8)
    >>> bank.update(torch.tensor([3]), torch.ones(1, 8))
    >>> bank.lookup(torch.tensor([[3, 999]])).shape
    torch.Size([1, 2, 8])

    Shape:
        update(index, features): [B] and [B, D].
        rows of the bank: [n, D].
    """

    rows: Tensor
    updates: Tensor

    def __init__(
        self,
        num_instances: int,
        dim: int,
        *,
        momentum: float = 0.5,
        path: str | Path | None = None,
        seed: int = 0,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.num_instances, self.dim = checked_whole("num_instances", num_instances), checked_whole("dim", dim)
        self.momentum, self.seed, self.gather = checked_share("momentum", momentum), seed, checked_gather(gather)
        self.mapped = None if path is None else MappedRows(Path(path), num_instances, dim, seed)
        if path is None:
            chunks = torch.arange(num_instances).split(max(1, CHUNK // dim))
            self.register_buffer("rows", torch.cat([initial_rows(slots, dim, seed) for slots in chunks]))
        self.register_buffer("updates", torch.tensor(0))

    def __len__(self) -> int:
        return self.num_instances

    def lookup(self, index: Tensor) -> Tensor:
        """Returns a copy of the rows of slots, [*index.shape, D], on the device of ``index``, without gradient."""
        slots = self._slots(index)
        return self._read(slots.flatten()).view(*slots.shape, self.dim).to(slots.device)

    def keys(self) -> Tensor:
        """Returns all rows [n, D]. In memory this is the buffer itself, so call `update` after the backward pass.

        For a mapped bank it is a copy in memory.
        """
        return self.rows if self.mapped is None else self.lookup(torch.arange(self.num_instances))

    @torch.no_grad()
    def update(self, index: Tensor, rows: Tensor) -> None:
        """Moves the slots ``index`` [B] towards the features ``rows`` [B, D], which are normalized first.

        A slot that occurs several times moves once, towards the mean of its normalized features. A slot does not change
        if old and new vector cancel, or if the features are zero vectors (counted in a `CoulombWarning`).
        """
        rows = unit_rows("rows", rows, self.dim)
        index, group = self._slots(index, len(rows)).to(rows.device), gather_group(self.gather)
        index, rows = gather_rows(group, index), gather_rows(group, rows)
        if not len(index):
            return  # in all processes
        slots, position, counts = torch.unique(index, return_inverse=True, return_counts=True)
        new = rows.new_zeros(len(slots), self.dim).index_add_(0, position, rows) / counts[:, None]
        if self.mapped is None or self.mapped.elect_writer(group):
            old = self._read(slots)
            slots, new = slots.to(old.device), new.to(old.device)
            moved = self.momentum * old + (1 - self.momentum) * new
            norm = torch.linalg.vector_norm(moved, dim=1, keepdim=True)
            moved = torch.where((norm < ZERO) | (new == 0).all(1, keepdim=True), old, moved / norm.clamp_min(ZERO))
            if self.mapped is None:
                self.rows[slots] = moved
            else:
                self.mapped.write(int(self.updates), slots, moved)
        if self.mapped is not None and group is not None:
            dist.barrier(group)  # no process may read before the rows are written
        self.updates += 1

    def sample(
        self, shape: tuple[int, ...] | int, generator: torch.Generator, log_prob: Tensor | None = None
    ) -> Tensor:
        """Draws slots with replacement: integers of ``shape`` on the generator's device, the noise of an `NCELoss`.

        ``log_prob`` [n] is the log of each slot's (unnormalized) probability; −∞ is never drawn. None draws uniformly.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if log_prob is None:
            return torch.randint(self.num_instances, shape, generator=generator, device=generator.device)
        if log_prob.shape != (self.num_instances,):
            raise ValueError(f"log_prob must have shape [{self.num_instances}], got {tuple(log_prob.shape)}")
        weights = (log_prob.to(generator.device).double() - log_prob.max().double()).exp()
        cumulative = weights.cumsum(0)
        if not bool(torch.isfinite(cumulative[-1])):
            raise ValueError("log_prob must be log weights: −inf or finite, with at least one finite value")
        draws = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64) * cumulative[-1]
        last = int(weights.nonzero()[-1])  # rounding must not draw a slot without weight
        return torch.searchsorted(cumulative, draws, right=True).clamp_max(last)

    def _slots(self, index: Tensor, rows: int | None = None) -> Tensor:
        """Returns ``index`` as int64 if its values are slots; raises TypeError or ValueError otherwise."""
        index = integers("index", index, rows)
        if index.numel():
            smallest, largest = (int(value) for value in index.aminmax())
            if smallest < 0 or largest >= self.num_instances:
                raise ValueError(f"index must be from 0 to {self.num_instances - 1}, got {smallest}…{largest}")
        return index

    def _read(self, slots: Tensor) -> Tensor:
        """Returns a copy of the rows of ``slots`` [M], on the bank's device."""
        if self.mapped is None:
            return self.rows[slots.to(self.rows.device)]
        rows = self.mapped.read(slots := slots.cpu())
        unwritten = (rows == 0).all(1)
        rows[unwritten] = initial_rows(slots[unwritten], self.dim, self.seed)
        return rows

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.mapped is not None:
            self.mapped.mark(int(self.updates))

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        if self.mapped is not None:
            self.mapped.go_back(int(self.updates))

    def extra_repr(self) -> str:
        """Returns the options, for ``print(bank)``."""
        where = "" if self.mapped is None else f", path={str(self.mapped.path)!r}"
        return f"{self.num_instances}, {self.dim}, momentum={self.momentum:g}, seed={self.seed}{where}"


def initial_rows(slots: Tensor, dim: int, seed: int) -> Tensor:
    """Returns random unit rows [M, dim] for ``slots`` [M]: uniform draws from the cube [−1, 1]^dim, normalized.

    The authors of instance discrimination draw from U(−√(3/dim), √(3/dim)), whose rows have length 1 on average. The
    numbers are the output of SplitMix64 (Steele, Lea & Flood, 2014) at position slot·dim + column.
    """
    position = slots.numpy().astype(np.uint64)[:, None] * np.uint64(dim) + np.arange(dim, dtype=np.uint64)
    bits: np.ndarray = position * np.uint64(0x9E3779B97F4A7C15) + np.uint64(derive_seed(seed, "memory bank"))
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return normalize(torch.from_numpy((bits >> np.uint64(40)).astype(np.float32)) / 2**23 - 1, dim=1)
