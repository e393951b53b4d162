import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from coulomb.ground import workers
from coulomb.ground.workers import Task, run
from coulomb.losses import NTXentLoss
from coulomb.similarity import Similarity

pytestmark = pytest.mark.skipif(not workers.can_share(), reason="threads cannot be set for one thread alone here")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def large_loss():
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2, 700, 16, generator=generator).requires_grad_()
    loss = NTXentLoss(temperature=0.2)(views[0], views[1])
    loss.backward()
    return loss.detach(), views.grad


def test_tasks_with_a_common_claim_run_in_order_and_never_at_the_same_time():
    torch.set_num_threads(4)
    order, inside, overlaps = {claim: [] for claim in range(6)}, set(), []

    def work(number, claims):
        overlaps.extend(claim for claim in claims if claim in inside)
        inside.update(claims)
        time.sleep(0.0005)
        for claim in claims:
            order[claim].append(number)
        inside.difference_update(claims)

    claims = [((number * 7) % 6, (number * number + 1) % 6) for number in range(120)]
    run((Task(partial(work, number, set(one)), one) for number, one in enumerate(claims)), at_once=4)
    assert not overlaps
    for claim, numbers in order.items():
        assert numbers == [number for number, one in enumerate(claims) if claim in one]


def test_tasks_without_a_common_claim_run_side_by_side():
    barrier = threading.Barrier(2)  # would break if one thread ran both
    run([Task(partial(barrier.wait, 20), (number,)) for number in range(2)], at_once=2)


def test_an_error_reaches_the_caller_and_ends_the_others():
    done = []

    def work(number):
        if number == 3:
            raise ZeroDivisionError("task 3")
        time.sleep(0.001)
        done.append(number)

    with pytest.raises(ZeroDivisionError, match="task 3"):
        run((Task(partial(work, number), (number,)) for number in range(10_000)), at_once=2)
    assert len(done) < 100 and torch.get_num_threads() == 2
    run([Task(partial(done.append, "later"), ())], at_once=2)
    assert done[-1] == "later"


def test_an_error_of_the_source_reaches_the_caller():
    def source():
        yield Task(list, (0,))
        raise ZeroDivisionError("source")

    with pytest.raises(ZeroDivisionError, match="source"):
        run(source(), at_once=2)


def test_operators_inside_use_one_thread_and_other_threads_the_number_that_was_set():
    inside, outside, stop = set(), set(), threading.Event()

    def watch():  # a new thread begins with the default of the process
        while not stop.is_set():
            thread = threading.Thread(target=lambda: outside.add(torch.get_num_threads()))
            thread.start()
            thread.join()

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(30):
        run([Task(lambda: inside.add(torch.get_num_threads()), (n,)) for n in range(8)], at_once=2)
    stop.set()
    watcher.join()
    assert inside == {1} and outside == {2} and torch.get_num_threads() == 2


def test_threads_are_divided_among_few_tasks():
    torch.set_num_threads(4)
    inside = set()
    run([Task(lambda: inside.add(torch.get_num_threads()), (n,)) for n in range(8)], at_once=2)
    assert inside == {2} and torch.get_num_threads() == 4


@pytest.mark.parametrize("threads, at_once", [(1, 8), (4, 1), (4, 0)])
def test_one_thread_computes_in_the_calling_thread(threads, at_once):
    torch.set_num_threads(threads)
    seen = []
    run([Task(lambda: seen.append((threading.get_ident(), torch.get_num_threads())), ()) for _ in range(20)], at_once)
    assert set(seen) == {(threading.get_ident(), threads)}


def test_a_mode_of_the_calling_thread_sees_every_operator():
    queries, counted = torch.randn(1500, 8), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with FlopCounterMode(display=False) as flops:
            Similarity(queries, backend="streaming", tile=500).lse("others")
        counted.append(flops.get_total_flops())
    assert counted[0] == counted[1] > 2 * 1500**2 / 2 * 8


def test_inference_mode_holds_in_workers():
    with torch.inference_mode():
        assert Similarity(torch.randn(1500, 8), backend="streaming").lse("others").isfinite().all()


def test_losses_in_two_threads_equal_those_of_one():
    loss, gradient = large_loss()
    found = []
    threads = [threading.Thread(target=lambda: found.extend(large_loss() for _ in range(5))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    for other_loss, other_gradient in found:
        assert torch.equal(loss, other_loss) and torch.equal(gradient, other_gradient)


def test_threads_do_not_accumulate():
    large_loss()
    before = threading.active_count()
    for _ in range(10):
        large_loss()
    assert threading.active_count() == before


def in_child(expected, queue):
    loss, gradient = large_loss()
    queue.put(bool(torch.equal(loss, expected[0]) and torch.equal(gradient, expected[1])))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_after_first_use_starts_threads_of_its_own():
    expected = large_loss()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(expected, queue))
    child.start()
    assert queue.get(timeout=60)
    child.join()
    assert child.exitcode == 0


def test_an_interrupt_ends_all_threads():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    done, before = [], signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            run((Task(partial(time.sleep, 0.002), (number,)) for number in range(100_000)), at_once=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert torch.get_num_threads() == 2
    run([Task(partial(done.append, number), (number,)) for number in range(50)], at_once=2)
    assert sorted(done) == list(range(50))


def test_a_loss_while_the_interpreter_shuts_down():
    code = (
        "import atexit, torch; torch.set_num_threads(2); from coulomb.similarity import Similarity\n"
        "z = torch.randn(1500, 8)\n"
        "work = lambda: print(Similarity(z, backend='streaming').lse('others').shape, flush=True)\n"
        "work(); atexit.register(work)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (ended.returncode, ended.stdout.count("1500"), ended.stderr) == (0, 2, "")


@pytest.mark.parametrize("rows, threads", [(2048, 2), (2049, 1), (8192, 1), (8193, 2)])
def test_alone_leaves_operators_on_some_thousand_rows_to_the_calling_thread(rows, threads):
    with workers.alone(torch.empty(rows, 128)):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2
