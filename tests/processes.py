"""Runs functions in gloo groups of new processes: one group per call, nothing shared between calls."""

import os
import pickle
import socket
import time
import traceback
import warnings
from contextlib import suppress
from datetime import timedelta
from itertools import count
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

from forked import context
from summary import RENDEZVOUS


def gloo(rank, world, store, timeout):
    """Initializes the default group, for whose operations ``timeout`` holds too."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    # The loopback interface: no host name is looked up. A store in a file: no port to race for.
    os.environ.setdefault(
        "GLOO_SOCKET_IFNAME", next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    )
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
    )


class Processes:
    """Groups of new processes.

    Args:
        folder: an empty folder for the files through which the processes of a group find each other.
        attempts: how often a rendezvous is tried, each time with new processes.
        patience: seconds after which the processes of a rendezvous are given up.
        meet: the rendezvous, called in each process with (rank, world, store, timeout).
    """

    def __init__(self, folder, attempts=3, patience=45, meet=gloo):
        self.folder, self.attempts, self.patience, self.meet = folder, attempts, patience, meet
        self.numbers = count()

    def run(self, world, function, *arguments, timeout=60):
        """Returns [function(*arguments) of rank 0, of rank 1, …]; raises AssertionError if a rank raised an error."""
        results = self.try_run(world, function, *arguments, timeout=timeout)
        for rank, (_, error) in enumerate(results):
            assert error is None, f"rank {rank} of {world}: {error}"
        return [value for value, _ in results]

    def try_run(self, world, function, *arguments, timeout=60):
        """Returns [(value or None, error as text or None), …]; the error of a process that died is "died".

        Only the rendezvous is tried again: once all processes have met, ``function`` runs exactly once in each.
        ``timeout`` is that of the group, in seconds.
        """
        for attempt in range(1, self.attempts + 1):
            members = [_Member() for _ in range(world)]
            failure = "interrupted"
            try:
                store = str(self.folder / f"rendezvous{next(self.numbers)}")
                for rank, member in enumerate(members):
                    member.send((self.meet, (rank, world, store, timeout)), (function, arguments))
                failure = self._failure(members)
                if failure is None:
                    return self._results(members, timeout)
                print(f"{RENDEZVOUS} attempt {attempt} of {self.attempts}, {world} processes: {failure}")
            finally:
                for member in members:
                    member.pipe.close()  # it leaves by itself if it can
                for member in members:
                    member.process.join(0 if failure else 10)
                    member.process.kill()
                    member.process.join()
        raise RuntimeError(f"a rendezvous of {world} processes failed {self.attempts} times; the last time: {failure}")

    def _failure(self, members):
        """Why the rendezvous failed, in one line; None if all processes have met."""
        waiting = {member.pipe: rank for rank, member in enumerate(members)}
        deadline = time.monotonic() + self.patience
        while waiting:
            ready = wait(waiting, max(0.0, deadline - time.monotonic()))
            if not ready:
                return f"ranks {sorted(waiting.values())} did not answer within {self.patience} s"
            for pipe in ready:
                rank = waiting.pop(pipe)
                _, error = members[rank].answer()
                if error is not None:
                    return f"rank {rank}: {error.strip().splitlines()[-1]}"
        return None

    def _results(self, members, timeout):
        for member in members:
            member.send("all have met")
        deadline = time.monotonic() + timeout + 60
        return [
            member.answer() if member.pipe.poll(max(0.0, deadline - time.monotonic())) else (None, "hangs")
            for member in members
        ]


class _Member:
    """A new process and the pipe to it."""

    def __init__(self):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, *messages):
        with suppress(BrokenPipeError):  # the process died: its answer says so
            for message in messages:
                self.pipe.send_bytes(pickle.dumps(message))

    def answer(self):
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            return None, "died"


def _serve(pipe):
    """Meets the other processes, runs the function, and stays until all have answered: no group loses a process early."""
    calls = [pipe.recv_bytes() for _ in range(2)]
    with suppress(EOFError):  # the pipe was closed: leave
        for call in calls:
            pipe.send_bytes(_answer(call))
            pipe.recv_bytes()


def _answer(call):
    try:
        function, arguments = pickle.loads(call)
        return pickle.dumps((function(*arguments), None))
    except BaseException:
        return pickle.dumps((None, traceback.format_exc()))
