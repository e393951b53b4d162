"""Four processes that stay, to run functions in gloo groups of one, two or four of them."""

import os
import sys
import traceback
import warnings
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Processes:
    """Started at their first use; each starts once, as importing torch is what takes the time."""

    def __init__(self, folder, most=4):
        self.folder, self.most, self.numbers = folder, most, count()
        self.members = []

    def run(self, world, function, *arguments, timeout=60):
        """[function(*arguments) of rank 0, of rank 1, …]; an error in one is raised here."""
        results = self.try_run(world, function, *arguments, timeout=timeout)
        for rank, (value, error) in enumerate(results):
            assert error is None, f"rank {rank} of {world}: {error}"
        return [value for value, _ in results]

    def try_run(self, world, function, *arguments, timeout=60):
        """[(value or None, error as text or None), …]; a process that died is (None, "died")."""
        self.members += [self._start() for _ in range(self.most - len(self.members))]
        rendezvous = self.folder / f"rendezvous{next(self.numbers)}"
        used = self.members[:world]
        for rank, (_, pipe) in enumerate(used):
            pipe.send((function, arguments, rank, world, str(rendezvous), timeout))
        results = [self._answer(pipe, timeout + 60) for _, pipe in used]
        lost = [rank for rank, (_, error) in enumerate(results) if error in ("died", "hangs")]
        for rank in reversed(lost):
            self._end(*self.members.pop(rank))
        return results

    def stop(self):
        while self.members:
            self._end(*self.members.pop())

    def _end(self, process, pipe):
        process.terminate()
        process.join()
        pipe.close()

    def _start(self):
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _answer(self, pipe, timeout):
        try:
            return pipe.recv() if pipe.poll(timeout) else (None, "hangs")
        except EOFError:
            return None, "died"


def _serve(pipe):
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    while True:
        function, arguments, rank, world, rendezvous, timeout = pipe.recv()
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{rendezvous}",
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=timeout),
            )
            result = function(*arguments), None
        except BaseException:
            result = None, traceback.format_exc()
        pipe.send(result)
        if dist.is_initialized():
            dist.destroy_process_group()
