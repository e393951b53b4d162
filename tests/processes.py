"""Runs a function in several processes of a gloo group and collects what each returns."""

import os
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_in_processes(function, world, folder, *arguments, timeout=60):
    """[function(*arguments) of rank 0, of rank 1, …], in processes of a group. An error in one is raised here."""
    folder = Path(folder) / f"world{world}"
    folder.mkdir(parents=True)
    context = mp.get_context("spawn")
    started = [
        context.Process(target=_entry, args=(function, rank, world, folder, timeout, arguments), daemon=True)
        for rank in range(world)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(timeout + 60)
        assert process.exitcode is not None, "a process hangs"
    results = []
    for rank in range(world):
        error = folder / f"error{rank}.txt"
        assert not error.exists(), error.read_text()
        result = folder / f"{rank}.pt"
        results.append(torch.load(result) if result.exists() else None)
    return results


def _entry(function, rank, world, folder, timeout, arguments):
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=timeout),
        )
        torch.save(function(*arguments), folder / f"{rank}.pt")
        dist.destroy_process_group()
    except BaseException:
        (folder / f"error{rank}.txt").write_text(f"rank {rank}:\n{traceback.format_exc()}")
