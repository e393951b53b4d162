"""The processes that build an index together: one, or those that torchrun started."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from coulomb.errors import InputError

Result = TypeVar("Result")


class Team:
    """The processes of ``torchrun``, on one or several machines with a common file system.

    The group is joined here if the environment of ``torchrun`` is there and it has not been joined yet.
    """

    def __init__(self) -> None:
        self._joined = not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1
        if self._joined:
            dist.init_process_group("gloo", timeout=timedelta(days=7))
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    def leave(self) -> None:
        """Leaves the group if it was joined here."""
        if self._joined:
            dist.destroy_process_group()

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())

    def by_first(self, work: Callable[[], Result]) -> Result:
        """Returns the result of ``work`` in the first process, in all processes; an `InputError` is raised in all."""
        box: list[Any] = [None]
        if self.rank == 0:
            box[0] = outcome(work)
        if self.world > 1:
            dist.broadcast_object_list(box)
        if isinstance(box[0], InputError):
            raise box[0]
        return box[0]

    def by_each(self, work: Callable[[], Result]) -> list[Result]:
        """Returns the results of ``work`` of all processes; an `InputError` of any process is raised in all."""
        box: list[Any] = [outcome(work)]
        if self.world > 1:
            mine, box = box[0], [None] * self.world
            dist.all_gather_object(box, mine)
        for result in box:
            if isinstance(result, InputError):
                raise result
        return box


def outcome(work: Callable[[], Any]) -> Any:
    """Returns the result of ``work``, or the `InputError` that it raised."""
    try:
        return work()
    except InputError as error:
        return error
