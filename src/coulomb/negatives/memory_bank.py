"""A memory of every training instance: one slot each, from which noise is drawn (instance discrimination)."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coulomb.checked import checked_share, checked_whole
from coulomb.negatives.mapped import MappedRows
from coulomb.negatives.rows import slots_in, unit_rows
from coulomb.negatives.start import start_of_all
from coulomb.similarity.collectives import Gather, checked_gather, group_of, rows_in

ZERO = 1e-12


class MemoryBank(nn.Module):
    """v_i ← normalised (m·v_i + (1−m)·f_i): one unit vector an instance, that follows its features (Wu et al., 2018)

    Slots start at random directions, a function of (seed, slot) alone, not at features, as in the authors' code.

    In memory, the slots are a buffer: a checkpoint of the module it belongs to holds them, n·D·4 bytes. With ``path``
    they lie in a sparse file that is mapped into memory, for banks larger than it: slots never written take no space.
    A checkpoint then holds the number of updates alone, and the file goes back to where it was: beside it, in
    PATH.undo-…, lie the rows that each update replaced since the last three calls of `state_dict`, and
    `load_state_dict` puts them back, bit for bit, also after a kill −9. A state that is older is refused by name.
    The log is cut at `state_dict`: without checkpoints it grows by B·(D·4 + 8) bytes an update. Not covered: a crash of
    the whole machine, which may lose what was not on the disk yet; and a full disk, where the system ends a process that
    writes to a mapped file.

    On several processes `update` takes the instances of all of them. In memory all banks stay alike; a mapped file is
    shared by the processes of a machine, one of which writes. Each machine needs the file on a disk of its own.

    Args:
        num_instances: n, one slot for each of 0 … n−1.
        dim: D, width of a slot.
        momentum: m, share of the old vector; .5 in the authors' code. 0 keeps the last feature alone.
        path: file of the mapped storage; None: in memory. A file with another run's updates must be continued by
            `load_state_dict`, or deleted.
        seed: of the first directions.
        gather: take the instances of all processes: True, False, or ``"auto"``, when torch.distributed is initialised
            with several processes, which must then all call `update`.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite rows are a ValueError. For files of another size,
            another seed or another run, and states that cannot be reached, an `InputError` (a ValueError).

    >>> bank = MemoryBank(1000, 8)
    >>> bank.update(torch.tensor([3]), torch.ones(1, 8))
    >>> bank.lookup(torch.tensor([[3, 999]])).shape
    torch.Size([1, 2, 8])
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
        if self.mapped is None:
            self.register_buffer("rows", start_of_all(num_instances, dim, seed))
        self.register_buffer("updates", torch.tensor(0))

    def __len__(self) -> int:
        return self.num_instances

    def lookup(self, index: Tensor) -> Tensor:
        """The vectors of instances, [*index.shape, dim], on the device of ``index``; a copy, without gradient."""
        index = slots_in("index", index, self.num_instances)
        if self.mapped is not None:
            return self.mapped.read(index.cpu().flatten()).view(*index.shape, self.dim).to(index.device)
        return self.rows[index.to(self.rows.device)].to(index.device)

    def keys(self) -> Tensor:
        """All vectors [n, dim], in order. In memory the storage itself: `update` after the backward pass, not before.

        Of a mapped bank a copy in memory.
        """
        return self.rows if self.mapped is None else self.lookup(torch.arange(self.num_instances))

    @torch.no_grad()
    def update(self, index: Tensor, rows: Tensor) -> None:
        """Move the slots ``index`` [B] towards the features ``rows`` [B, dim], which need not be of unit length.

        An instance that is there several times moves once, towards the mean of its unit rows. Where old and new cancel
        exactly, or the features are zero vectors (counted in a `CoulombWarning`), the slot stays.
        """
        index, rows = slots_in("index", index, self.num_instances), unit_rows("rows", rows, self.dim)
        if index.shape != (len(rows),):
            raise ValueError(f"index must have shape [{len(rows)}], one slot for each row, got {tuple(index.shape)}")
        group = group_of(self.gather)
        index, rows = rows_in(group, index.to(rows.device)), rows_in(group, rows)
        if not len(index):
            return  # of all processes
        slots, place, counts = torch.unique(index, return_inverse=True, return_counts=True)
        means = rows.new_zeros(len(slots), self.dim).index_add_(0, place, rows) / counts[:, None]
        if self.mapped is None:
            slots, means = slots.to(self.rows.device), means.to(self.rows.device)
            self.rows[slots] = self._moved(self.rows[slots], means)
        else:
            slots, means = slots.cpu(), means.cpu()
            if self.mapped.writes(group):
                old = self.mapped.read(slots)
                self.mapped.write(int(self.updates), slots, self._moved(old, means))
            if group is not None:
                dist.barrier(group)  # nobody reads before it is written
        self.updates += 1

    def _moved(self, old: Tensor, new: Tensor) -> Tensor:
        """The slots after an update."""
        moved = self.momentum * old + (1 - self.momentum) * new
        norm = torch.linalg.vector_norm(moved, dim=1, keepdim=True)
        return torch.where((norm < ZERO) | (new == 0).all(1, keepdim=True), old, moved / norm.clamp_min(ZERO))

    def sample(
        self, shape: tuple[int, ...] | int, generator: torch.Generator, log_prob: Tensor | None = None
    ) -> Tensor:
        """Slots drawn with replacement, integers of ``shape``, on the generator's device: the noise of an `NCELoss`.

        ``log_prob`` [n] is the log of each slot's (unnormalised) weight; −∞ is never drawn. None: all alike.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if log_prob is None:
            return torch.randint(self.num_instances, shape, generator=generator, device=generator.device)
        if log_prob.shape != (self.num_instances,):
            raise ValueError(f"log_prob must have shape [{self.num_instances}], got {tuple(log_prob.shape)}")
        weights = (log_prob.to(generator.device).double() - log_prob.max().double()).exp()
        reached = weights.cumsum(0)
        if not bool(torch.isfinite(reached[-1])):
            raise ValueError("log_prob must be log weights, −inf or finite, with at least one finite; it has others")
        drawn = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64) * reached[-1]
        last = int(weights.nonzero()[-1])  # rounding must not draw what has no weight
        return torch.searchsorted(reached, drawn, right=True).clamp_max(last)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.mapped is not None:
            self.mapped.mark(int(self.updates))

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        if self.mapped is not None:
            self.mapped.go_back(int(self.updates))

    def extra_repr(self) -> str:
        """The options, for ``print(bank)``."""
        where = "" if self.mapped is None else f", path={str(self.mapped.path)!r}"
        return f"{self.num_instances}, {self.dim}, momentum={self.momentum:g}, seed={self.seed}{where}"
