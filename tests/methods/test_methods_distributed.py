"""Two processes give the losses of one with the whole batch, and have the same queue, bank and average."""

import pytest
import torch

import methods_distributed
import pairs_distributed
from coulomb.methods import METHODS


@pytest.mark.slow
@pytest.mark.parametrize("name", methods_distributed.MAKE)
def test_two_processes_are_one_with_the_whole_batch(processes, name):
    losses, state = methods_distributed.trained(name)
    assert len(set(losses)) == len(losses)
    for found, theirs in processes.run(2, methods_distributed.trained, name):
        assert found == pytest.approx(losses, abs=1e-5)
        for key, value in state.items():
            if name == "moco symmetric" and key.startswith("queue."):
                continue  # each process's two views lie side by side
            torch.testing.assert_close(
                theirs[key], value, rtol=0, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_queues_are_identical(processes):
    (_, first), (_, second) = processes.run(2, methods_distributed.trained, "moco symmetric")
    assert int(first["queue.enqueues"]) == 6
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


UNEVEN = [6, 4, 3]


@pytest.fixture(scope="module")
def uneven(processes):
    """Losses and gradients of all methods in three processes that are started once."""
    return processes.run(3, methods_distributed.uneven_gradients_of_all, UNEVEN)


@pytest.mark.parametrize("name", METHODS)
def test_uneven_shares_give_the_gradient_of_the_whole_batch(uneven, name):
    """`Method.local_mean` is right: it decides how the losses of processes with different numbers of images are weighted."""
    loss, gradients = methods_distributed.uneven_gradients(name, UNEVEN)
    assert METHODS[name].local_mean is not None
    for found, theirs in (process[name] for process in uneven):
        assert found == pytest.approx(loss, rel=1e-6)
        assert theirs.keys() == gradients.keys()
        for key, gradient in gradients.items():
            torch.testing.assert_close(
                theirs[key], gradient, rtol=1e-5, atol=1e-7, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize("sizes", [(7, 5), (4, 3, 5)])
def test_clip_with_a_queue_and_hard_negatives_equals_one_process(processes, sizes):
    losses, state = pairs_distributed.trained(sizes=sizes)
    for found, theirs in processes.run(len(sizes), pairs_distributed.trained, 5, sizes):
        assert found == pytest.approx(losses, rel=1e-5)
        assert theirs.keys() == state.keys()
        for key, value in state.items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}")
