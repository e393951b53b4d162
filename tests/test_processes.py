"""Groups of processes in tests: what happens if a rendezvous fails, and that nothing leaks from one call to the next."""

import os
import time
from functools import partial

import pytest
import torch.distributed as dist

from coulomb.similarity import policy
from forked import context
from processes import Processes, gloo


def fail():
    raise RuntimeError("Wait timeout")


def die():
    os._exit(3)


def hang():
    time.sleep(100)


def sabotaged(how, stores, rank, world, store, timeout):
    """A rendezvous that rank 1 misses if ``store`` is one of ``stores``."""
    if rank == 1 and store.endswith(stores):
        how()
    gloo(rank, world, store, timeout)


def late(folder, rank, world, store, timeout):
    """A rendezvous that rank 1 leaves later than rank 0."""
    gloo(rank, world, store, timeout)
    if rank == 1:
        time.sleep(0.5)
    (folder / f"met{rank}").touch()


def met(folder):
    return sorted(path.name for path in folder.glob("met*"))


def others_alive():
    """Whether rank 0, which answers at once, is still there for rank 1, which answers later."""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 1:
        time.sleep(0.5)
        os.kill(pids[0], 0)  # raises ProcessLookupError if there is no such process
    return dist.get_rank()


def ran(folder):
    (folder / str(os.getpid())).touch()
    return dist.get_rank(), dist.get_world_size(), os.getpid()


def wrong(folder):
    ran(folder)
    raise ValueError("the function is wrong")


def change():
    before, policy.LEAF = policy.LEAF, 5
    return before


@pytest.fixture
def started(monkeypatch):
    """The processes that a test starts, in their order."""
    out = []

    def start(process, _start=context.Process.start):
        _start(process)
        out.append(process)

    monkeypatch.setattr(context.Process, "start", start)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [
        (fail, "rank 1: RuntimeError: Wait timeout"),
        (die, "rank 1: died"),
        (hang, "ranks [0, 1] did not answer within 5 s"),
    ],
)
def test_a_failed_rendezvous_is_tried_again_with_new_processes(tmp_path, capsys, started, how, why):
    groups = Processes(tmp_path, patience=5 if how is hang else 45, meet=partial(sabotaged, how, "rendezvous0"))
    (tmp_path / "ran").mkdir()
    found = groups.run(2, ran, tmp_path / "ran")
    assert capsys.readouterr().out == f"rendezvous failed: attempt 1 of 3, 2 processes: {why}\n"
    assert [(rank, world) for rank, world, _ in found] == [(0, 2), (1, 2)]
    assert [pid for *_, pid in found] == [process.pid for process in started[2:]]
    assert len({process.pid for process in started}) == 4
    assert {path.name for path in (tmp_path / "ran").iterdir()} == {str(pid) for *_, pid in found}
    assert all(process.exitcode is not None for process in started)


def test_a_rendezvous_is_tried_three_times(tmp_path, capsys, started):
    groups = Processes(tmp_path, meet=partial(sabotaged, fail, ("0", "1", "2", "3")))
    with pytest.raises(
        RuntimeError, match="a rendezvous of 2 processes failed 3 times; the last time: rank 1: RuntimeError"
    ):
        groups.run(2, ran, tmp_path)
    assert capsys.readouterr().out.count("rendezvous failed: attempt") == 3
    assert len(started) == 6


def test_no_function_runs_before_all_have_met(tmp_path):
    assert Processes(tmp_path, meet=partial(late, tmp_path)).run(2, met, tmp_path) == [["met0", "met1"]] * 2


def test_no_process_leaves_before_all_have_answered(processes):
    assert processes.run(2, others_alive) == [0, 1]


def test_an_error_of_the_function_is_not_tried_again(tmp_path, started):
    with pytest.raises(AssertionError, match=r"rank 0 of 2: (.|\n)*the function is wrong"):
        Processes(tmp_path).run(2, wrong, tmp_path)
    assert len(started) == 2


def test_nothing_that_a_function_changes_reaches_the_next(processes):
    assert processes.run(2, change) == processes.run(2, change) == [policy.LEAF] * 2
