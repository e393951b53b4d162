"""Tasks side by side: worker threads that each compute whole tiles, with one thread of torch each.

An operator that torch splits over all cores waits for its slowest thread at its end. If other work shares the cores, such as
data loading, one of these threads is often not scheduled, and every operator of every tile waits for it: up to 14 times the
time of independent threads (`python -m benchmarks.beside 4`). Threads that share nothing but a list of tasks wait
only at the end of the list. The interpreter's lock is held between operators only.

The results do not depend on which thread computes what: tasks that write to the same place name it as a claim, and run in
the given order.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

WINDOW = 256  # tasks that are searched for one that can run; bounds the memory and the time of the search


class Task(NamedTuple):
    """What to do, and the places that it writes to: tasks with a common claim run one after another, in order."""

    work: Callable[[], object]
    claims: tuple[Hashable, ...]


def run(tasks: Iterable[Task], at_once: int) -> None:
    """Runs all tasks, in the calling thread and in worker threads; returns when they are done.

    Args:
        tasks: read as needed. Without gradients, and outside autocast.
        at_once: how many of them can run at the same time, given their claims. This and `torch.get_num_threads()` limit the
            number of threads; torch's threads are divided among them for operators inside the tasks. With one thread the
            tasks run in order in the calling thread.

    Raises:
        The exception of a task, after all running tasks have finished; tasks that have not started are dropped.
    """
    threads = torch.get_num_threads()
    workers = min(threads, at_once)
    if workers < 2 or not can_share() or torch._C._len_torch_dispatch_stack():  # modes see the calling thread only
        for task in tasks:
            task.work()
        return
    _Run(tasks, workers, threads // workers)()


class _Run:
    """One call of `run`."""

    def __init__(self, tasks: Iterable[Task], workers: int, inner: int) -> None:
        self.source, self.workers, self.inner = iter(tasks), workers, inner
        self.waiting: list[Task] = []
        self.claimed: set[Hashable] = set()  # by tasks that run
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.inference = torch.is_inference_mode_enabled()

    def __call__(self) -> None:
        release_team()
        others = []
        with suppress(RuntimeError):  # the interpreter shuts down: the calling thread computes everything
            others = [_pool().submit(self.work_off) for _ in range(self.workers - 1)]
        self.work_off()
        for other in others:
            if not other.cancel():  # not started, because the pool runs the tasks of other calls: nothing is left to do
                other.result()
        if self.error is not None:
            raise self.error

    def work_off(self) -> None:
        """Runs tasks until none is left."""
        try:
            with own_threads(self.inner), torch.inference_mode(self.inference), torch.no_grad():
                while (task := self.next()) is not None:
                    task.work()
                    with self.changed:
                        self.claimed.difference_update(task.claims)
                        self.changed.notify_all()
        except BaseException as error:  # KeyboardInterrupt, too: the other threads must end
            with self.changed:
                self.error = self.error or error
                self.changed.notify_all()

    def next(self) -> Task | None:
        """Waits for a task whose claims no earlier unfinished task has, and takes it; None if there is none left."""
        with self.changed:
            while self.error is None:
                claimed = set(self.claimed)
                for place, task in enumerate(self.candidates()):
                    if claimed.isdisjoint(task.claims):
                        self.claimed.update(self.waiting.pop(place).claims)
                        return task
                    claimed.update(task.claims)
                if not self.waiting:
                    return None
                self.changed.wait()
        return None

    def candidates(self) -> Iterator[Task]:
        """The next tasks in order, read from the source as far as needed."""
        yield from self.waiting
        while len(self.waiting) < WINDOW and (task := next(self.source, None)) is not None:
            self.waiting.append(task)
            yield task


_executor: ThreadPoolExecutor | None = None
_starting = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    """The worker threads, which are started when needed and wait for the next call."""
    global _executor  # noqa: PLW0603  # one pool per process
    with _starting:
        if _executor is None:
            _executor = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="coulomb")
        return _executor


def _forget_pool() -> None:
    """After a fork the threads exist in the parent only."""
    global _executor, _starting
    _executor, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_pool)


class _Library(NamedTuple):
    """Functions of OpenMP and MKL in the library of torch; None where there is none."""

    omp_set_num_threads: Callable[[int], object]
    set_mkl_threads: Callable[[int], int] | None
    omp_pause_resource_all: Callable[[int], object] | None


@cache
def _library() -> _Library | None:
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        with suppress(OSError, AttributeError):
            found = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))
            mkl, pause = (
                getattr(found, name, None) for name in ("MKL_Set_Num_Threads_Local", "omp_pause_resource_all")
            )
            return _Library(found.omp_set_num_threads, mkl, pause)
    return None


@contextmanager
def own_threads(count: int) -> Iterator[None]:
    """Within this block, operators in the calling thread use ``count`` threads. Other threads are not affected.

    `torch.set_num_threads` would also change the default of threads that start meanwhile.
    """
    library = _library()
    assert library is not None
    before = torch.get_num_threads()  # makes torch initialize this thread now, and not later
    mkl_before = None
    try:
        library.omp_set_num_threads(count)
        if library.set_mkl_threads is not None:
            mkl_before = library.set_mkl_threads(count)
        yield
    finally:
        library.omp_set_num_threads(before)
        if library.set_mkl_threads is not None and mkl_before is not None:
            library.set_mkl_threads(mkl_before)


# Sizes of operators that run in the calling thread alone. With fewer elements (N ≤ 1,024 at D = 128) a loss takes a few
# milliseconds, and setting the threads would add 5 to 10%; with more, one thread takes longer than a millisecond.
MORE_THAN, AT_MOST = 2**18, 2**20


def alone(value: Tensor) -> AbstractContextManager[object]:
    """Within this block operators run in the calling thread alone, if ``value`` is on a CPU and of a size where that helps.

    With two threads such an operator takes .1 ms less on a quiet machine, but waits for 10 ms next to four busy processes.
    """
    if torch.compiler.is_compiling() or value.device.type != "cpu" or not MORE_THAN < value.numel() <= AT_MOST:
        return nullcontext()
    return own_threads(1) if torch.get_num_threads() > 1 and can_share() else nullcontext()


@cache
def can_share() -> bool:
    """True if the number of threads can be set for one thread alone; else tasks run in the calling thread."""
    if _library() is None:
        return False
    before = torch.get_num_threads()
    with own_threads(before + 1):
        return torch.get_num_threads() == before + 1


PAUSE_SOFT = 1  # omp.h


def release_team() -> None:
    """Ends the calling thread's OpenMP team, which would otherwise spin for milliseconds on the cores of the workers."""
    library = _library()
    if library is not None and library.omp_pause_resource_all is not None:
        library.omp_pause_resource_all(PAUSE_SOFT)
