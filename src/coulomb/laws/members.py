"""Groups of new processes that call a loss together: gloo, on this machine, each process with one thread."""

import importlib
import itertools
import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = 40.0  # seconds for a group: a loss that waits for processes that do not answer would wait forever


class GroupError(RuntimeError):
    """A process of a group raised an error, ended or did not answer; the message says which."""


def in_processes(world: int, work: Callable[[int, int], Any], patience: float = PATIENCE) -> list[Any]:
    """Returns [work(rank, world) for each rank], computed in a gloo group of ``world`` new processes.

    The processes are forked, see `cannot_fork`, so that ``work`` may be any function. Each sets torch to one thread before it
    computes anything, because OpenMP's threads do not survive a fork.

    Raises:
        GroupError: a process raised an error, ended, or did not answer within ``patience`` seconds.
    """
    context = multiprocessing.get_context("fork")
    importlib.import_module("torch._dynamo")  # which collectives import: once here, not for seconds in each process
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python ≥ 3.12 on forks of processes with threads
        store, members = str(Path(folder) / "store"), []
        try:
            for rank in range(world):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_member, args=(theirs, work, rank, world, store), daemon=True)
                process.start()
                theirs.close()
                members.append((process, ours))
            deadline = time.monotonic() + patience
            return [answer(rank, ours, deadline) for rank, (_, ours) in enumerate(members)]
        finally:
            for process, ours in members:
                ours.close()
                process.join(2)
                if process.is_alive():
                    process.kill()
                    process.join()


def cannot_fork() -> str | None:
    """Returns why this process cannot be forked, as a sentence's end; None if it can."""
    if sys.platform == "darwin" or "fork" not in multiprocessing.get_all_start_methods():
        return "needs processes that are forked, which macOS does not do safely and Windows not at all"
    return "needs processes that are forked, and CUDA is in use in this one" if torch.cuda.is_initialized() else None


def answer(rank: int, pipe: Connection, deadline: float) -> Any:
    """Returns what the process of ``rank`` computed."""
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise GroupError(f"process {rank} does not answer: the processes wait for each other")
    try:
        value, error = pickle.loads(pipe.recv_bytes())
    except (EOFError, ConnectionResetError):
        raise GroupError(f"process {rank} ended") from None
    if error is not None:
        raise GroupError(f"process {rank}: {error}")
    return value


def _member(pipe: Connection, work: Callable[[int, int], Any], rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    # The loopback interface: no host name is looked up. A store in a file: no port to race for.
    loopback = itertools.chain((name for _, name in socket.if_nameindex() if name.startswith("lo")), ("lo",))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", next(loopback))
    result: tuple[Any, str | None]
    try:
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=20)
        )
        result = work(rank, world), None
    except BaseException:
        result = None, traceback.format_exc().strip().splitlines()[-1][:300]
    try:
        pipe.send_bytes(pickle.dumps(result))
        dist.barrier()  # no process leaves while another still reads
    except Exception:
        return
    finally:
        os._exit(0)  # no clean-up of what belongs to the parent
