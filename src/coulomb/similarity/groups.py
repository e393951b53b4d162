"""The option ``gather``: which processes share their keys, and the rows of all of them."""

import torch.distributed as dist
from torch import Tensor

Gather = bool | str


def checked_gather(gather: Gather) -> Gather:
    """``gather`` if it is True, False or ``"auto"``; else an error naming it."""
    if gather not in (True, False, "auto"):
        raise ValueError(f"gather must be True, False or 'auto', got {gather!r}")
    return gather


def group_of(gather: Gather) -> dist.ProcessGroup | None:
    """The processes that share their keys; None for this one alone.

    Raises:
        RuntimeError: ``gather=True`` in a program without a process group.
    """
    if gather is False:
        return None
    if not (dist.is_available() and dist.is_initialized()):
        if gather == "auto":
            return None
        raise RuntimeError(
            "gather=True, but torch.distributed is not initialised: call init_process_group first, or use gather='auto'"
        )
    return dist.group.WORLD if dist.get_world_size() > 1 else None


def rows_in(group: dist.ProcessGroup | None, rows: Tensor) -> Tensor:
    """The rows of all processes in the order of ranks, [ΣN, …]; their gradients come home summed. For small things."""
    if group is None:
        return rows
    from coulomb.similarity.processes import gather_rows  # takes a second to import; needed by several processes only

    return gather_rows(rows, group)
