from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

import negatives_cases
from coulomb.ground.errors import CoulombWarning
from coulomb.losses import InfoNCELoss
from coulomb.negatives import Queue


def drawn(count, dim=3, seed=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 9),
    batches=st.lists(st.integers(0, 25), max_size=8),
    fill=st.sampled_from(["empty", "random"]),
    reload=st.booleans(),
)
def test_matches_a_deque(size, batches, fill, reload):
    queue = Queue(size, 3, fill=fill, seed=4)
    start = [(row, -1, -1, 0) for row in queue.keys().unbind()]
    oracle = deque(start, maxlen=size)
    for number, count in enumerate(batches, 1):
        keys, labels, ids = drawn(count, seed=number), torch.arange(count) % 3 - 1, torch.arange(count) + 100 * number
        queue.enqueue(keys, labels, ids)
        oracle.extend(zip(normalize(keys, dim=1), labels.tolist(), ids.tolist(), [number] * count, strict=True))
        if reload:  # the state dict is complete
            state, queue = queue.state_dict(), Queue(size, 3, fill="empty", seed=number)
            queue.load_state_dict(state)
    assert len(queue) == len(oracle) == len(queue.keys())
    if oracle:
        assert torch.equal(queue.keys(), torch.stack([key for key, *_ in oracle]))
        ages = [len(batches) - born for *_, born in oracle]
        assert queue.staleness() == (pytest.approx(sum(ages) / len(ages)), max(ages))
    assert queue.labels().tolist() == [label for _, label, _, _ in oracle]
    assert queue.ids().tolist() == [name for _, _, name, _ in oracle]


def test_random_fill_consists_of_seeded_unit_vectors():
    first, again, other = (Queue(50, 4, fill="random", seed=seed).keys() for seed in (1, 1, 2))
    torch.testing.assert_close(first.norm(dim=1), torch.ones(50))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_empty_queue():
    queue = Queue(4, 2)
    assert (len(queue), queue.keys().shape, queue.staleness()) == (0, (0, 2), (0.0, 0.0))
    queue.enqueue(drawn(2, 2))
    assert queue.labels().tolist() == queue.ids().tolist() == [-1, -1]


def test_enqueue_may_come_before_the_backward_pass():
    queue, query = Queue(5, 3, fill="random"), drawn(2, seed=1).requires_grad_()
    keys = drawn(2, seed=2)
    (before,) = torch.autograd.grad(InfoNCELoss()(query, keys, queue.keys()), query)
    loss = InfoNCELoss()(query, keys, queue.keys())
    queue.enqueue(keys)
    (after,) = torch.autograd.grad(loss, query)
    assert torch.equal(before, after)


def test_keys_are_detached_and_stored_in_fp32():
    queue = Queue(5, 3)
    queue.enqueue(drawn(2).requires_grad_().bfloat16())
    assert queue.keys().dtype == torch.float32 and not queue.keys().requires_grad
    torch.testing.assert_close(queue.keys().norm(dim=1), torch.ones(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Queue(0, 3), "size must be at least 1"),
        (lambda: Queue(3, 3, fill="ones"), "fill must be 'empty' or 'random'"),
        (lambda: Queue(3, 3, gather="yes"), "gather must be"),
        (lambda: Queue(3, 3).enqueue(torch.ones(2, 4)), r"keys must have shape \[B, 3\]"),
        (lambda: Queue(3, 3).enqueue(torch.full((2, 3), torch.nan)), "keys has 2 of 2 rows with NaN"),
        (lambda: Queue(3, 3).enqueue(torch.ones(2, 3), ids=torch.arange(3)), r"ids must have shape \[2\]"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_types_and_zero_rows():
    with pytest.raises(TypeError, match="size must be a whole number"):
        Queue(2.5, 3)
    with pytest.raises(TypeError, match="labels must be an integer tensor"):
        Queue(3, 3).enqueue(torch.ones(2, 3), labels=torch.ones(2))
    with pytest.raises(RuntimeError, match="torch.distributed is not initialized"):
        Queue(3, 3, gather=True).enqueue(torch.ones(2, 3))
    with pytest.warns(CoulombWarning, match="1 of 2 rows of keys are zero vectors"):
        Queue(3, 3).enqueue(torch.tensor([[0.0, 0, 0], [1, 0, 0]]))


@pytest.mark.parametrize("counts", [[3, 3], [5, 2], [0, 4], [9, 8]], ids=str)
def test_queues_of_several_processes_equal_one_queue(processes, counts):
    found = processes.run(2, negatives_cases.enqueued, counts)
    alone = Queue(7, 3, fill="random")
    for step in range(3):
        for rank, count in enumerate(counts):
            alone.enqueue(*negatives_cases.batch(step, rank, count))
    for state in found:
        assert torch.equal(state["keys"], alone.keys())
        assert torch.equal(state["labels"], alone.labels())
        assert torch.equal(state["ids"], alone.ids())
        assert state["enqueues"] == 3


def test_gather_false_enqueues_only_own_keys(processes):
    first, second = processes.run(2, negatives_cases.enqueued, [2, 2], False)
    assert not torch.equal(first["keys"], second["keys"])
