"""The processes that work together: a single one, or all processes that torchrun started, on one or several machines."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist

from coulomb.ground.errors import InputError, LostProcessError

Result = TypeVar("Result")

MEETING = timedelta(minutes=10)  # for the processes to find each other
# For steps of unknown length; a process that dies closes its connections, which ends the wait.
PATIENT = timedelta(days=7)


@dataclass(frozen=True)
class Torchrun:
    """What torchrun tells the processes that it starts.

    Attributes:
        world: number of processes.
        local: number of processes on this machine.
        job: the same for all starts of the job, new for each job unless the user chooses it (``--rdzv-id``).
        restarts: how often the processes were started again after a failure.
    """

    world: int
    local: int
    job: str
    restarts: int

    @property
    def machines(self) -> int:
        """Number of machines, or 1 if they have different numbers of processes."""
        return self.world // self.local if self.world % self.local == 0 else 1


def torchrun() -> Torchrun | None:
    """Returns how torchrun started this process; None if it did not."""
    if not dist.is_available() or not dist.is_torchelastic_launched():
        return None
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    world, local, restarts = (int(os.environ[name]) for name in names)
    return Torchrun(world, local, os.environ["TORCHELASTIC_RUN_ID"], restarts)


class Team:
    """The processes of ``torchrun``, on one or several machines with a common file system.

    Joins the process group if torchrun started this process and the group has not been joined yet. All processes must call
    the same methods in the same order.

    Args:
        timeout: timeout of a group that is joined here, for operations outside this object; default: `PATIENT`.
    """

    def __init__(self, timeout: timedelta = PATIENT) -> None:
        self._joined = not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1
        self._group: dist.ProcessGroup | None = None
        if self._joined:
            if torch.cuda.is_available():
                torch.cuda.set_device(self.device)
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            with connected():
                dist.init_process_group(backend, timeout=timeout, **fresh_store())
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        if self.world > 1:
            with connected():
                self._group = dist.new_group(backend="gloo", timeout=PATIENT)

    @classmethod
    def alone(cls) -> Self:
        """Returns the team of this process alone, which may be one of a group."""
        team = cls.__new__(cls)
        team._joined, team._group, team.world, team.rank = False, None, 1, 0
        return team

    @classmethod
    def meet(cls, seconds: Any) -> Self:
        """Returns the processes that torchrun started; without torchrun, this one alone.

        ``seconds``: how long a process waits for another one during training (``Config.process_timeout``); `PATIENT` if it is
        not a number, because the option has not been checked yet.
        """
        if torchrun() is None:
            return cls.alone()
        return cls(timedelta(seconds=seconds) if isinstance(seconds, int | float) else PATIENT)

    @classmethod
    def of_group(cls) -> Self:
        """Returns the processes of the existing group, or this one alone; all processes of the group must call this."""
        return cls() if dist.is_available() and dist.is_initialized() else cls.alone()

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
        """Runs ``work`` in the first process and returns its result in all processes; an `InputError` is raised in all."""
        with self.leading() as share:
            return share(outcome(work)) if self.rank == 0 else self.follow()

    @contextmanager
    def leading(self) -> Iterator[Callable[[Any], Any]]:
        """Context of the first process whose results the others receive by `follow`.

        Yields a function that sends its argument to the others, once, and returns it, or raises it if it is an `InputError`.
        An exception in the block before that is sent instead.
        """
        sent = self.rank != 0

        def share(result: Any) -> Any:
            nonlocal sent
            if not sent:
                sent = True
                self._broadcast(result)
            if isinstance(result, InputError):
                raise result
            return result

        try:
            yield share
        except BaseException as error:
            if not sent:
                sent = True
                lost = LostProcessError(f"the first process stopped: {type(error).__name__}, see its message")
                self._broadcast(error if isinstance(error, InputError) else lost)
            raise

    def follow(self) -> Any:
        """Returns what the first process sends in `leading`; raises it if it is an error."""
        result = self._broadcast(None)
        if isinstance(result, InputError | LostProcessError):
            raise repeated(result)
        return result

    def _broadcast(self, result: Any) -> Any:
        box: list[Any] = [result]
        if self.world > 1:
            with connected():
                dist.broadcast_object_list(box, group=self._group)
        return box[0]

    def to_first(self, work: Callable[[], Result]) -> list[Result]:
        """Runs ``work`` in all processes; returns their results, by rank, in the first process and None in the others."""
        if self.world == 1:
            return [work()]
        mine = outcome(work)
        box: list[Any] | None = [None] * self.world if self.rank == 0 else None
        with connected():
            dist.gather_object(mine, box, group=self._group)
        for rank, result in enumerate([mine] if box is None else box):
            if isinstance(result, InputError):
                raise result if box is None or rank == 0 else repeated(result)
        return box or []

    def by_each(self, work: Callable[[], Result]) -> list[Result]:
        """Runs ``work`` in all processes and returns all results; an `InputError` of any process is raised in all."""
        box: list[Any] = [outcome(work)]
        if self.world > 1:
            mine, box = box[0], [None] * self.world
            with connected():
                dist.all_gather_object(box, mine, group=self._group)
        for rank, result in enumerate(box):
            if isinstance(result, InputError):
                raise result if rank == self.rank else repeated(result)
        return box


def fresh_store() -> dict[str, Any]:
    """Returns arguments of ``init_process_group``: a store for this start of the processes, the rank and the world size.

    torchrun keeps one store for all starts. It separates them by each machine's count of restarts, and these counts differ
    if some machines restart because of a failure and others because a machine joined or left: processes would then find
    addresses of dead processes. So the first process chooses a prefix, and every process accepts it only together with the
    word that this process has just sent.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    server = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=MEETING)
    store, word, deadline = dist.PrefixStore("coulomb", server), uuid.uuid4().hex, time.monotonic() + MEETING.seconds
    store.set(f"word {rank}", word)

    def accepted(each: int, words: list[str]) -> bool:
        return store.check([f"accepted {words[0]} {each}"])

    while time.monotonic() < deadline:
        if rank == 0:
            known = [f"word {each}" for each in range(world)]
            if store.check(known):
                words = [store.get(name).decode() for name in known]
                store.set("words", " ".join(words))
                if all(accepted(each, words) for each in range(1, world)):
                    break
        elif store.check(["words"]):
            words = store.get("words").decode().split()
            if len(words) == world and words[rank] == word:
                store.set(f"accepted {words[0]} {rank}", "yes")
                break
        time.sleep(0.05)
    else:
        raise LostProcessError(f"process {rank} of {world}: the others did not answer within {MEETING.seconds} seconds")
    return {"store": dist.PrefixStore(words[0], server), "rank": rank, "world_size": world}


def repeated(error: Result) -> Result:
    """Marks the error of another process, so that the command line prints it once per machine; returns it."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        error.repeated = True  # type: ignore[attr-defined]
    return error


def outcome(work: Callable[[], Any]) -> Any:
    """Returns the result of ``work``, or the `InputError` that it raised."""
    try:
        return work()
    except InputError as error:
        return error


@contextmanager
def connected() -> Iterator[None]:
    """Context that converts an error of the connection to other processes into a `LostProcessError`."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise LostProcessError(
            "another process ended or cannot be reached, see its message; run the same command again"
        ) from None


def is_lost_connection(error: RuntimeError) -> bool:
    """Returns True if gloo or NCCL raised ``error`` because another process ended."""
    words = ("gloo", "nccl", "closed by peer", "reset by peer", "broken pipe")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
