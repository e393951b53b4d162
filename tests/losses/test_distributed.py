"""Losses in several processes: loss and parameter gradient equal those of one process with the whole batch."""

import pytest
import torch

import distributed_cases as cases
import sharded_failures
from coulomb.losses import NTXentLoss, SupConLoss, TripletLoss

SETTINGS = {
    "1 process": (1, cases.UNEVEN, 0),
    "2 uneven, ring": (2, cases.UNEVEN, 0),
    "2 even, gathered": (2, cases.EVEN, 10**6),
    "3 uneven, ring": (3, cases.UNEVEN, 0),
    "4 uneven, ring": (4, cases.UNEVEN, 0),
    "4 even, ring": (4, cases.EVEN, 0),
    "4 uneven, gathered": (4, cases.UNEVEN, 10**6),
}


QUICK = ("2 even, gathered", "3 uneven, ring")
ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]


@pytest.fixture(scope="module", params=ALL)
def together(request, processes):
    world, sizes, gather_elements = SETTINGS[request.param]
    return processes.run(world, cases.together, sizes[world], gather_elements)


@pytest.mark.parametrize("name", cases.CASES)
def test_mean_over_processes_equals_one_process_with_the_whole_batch(together, name):
    loss, grads = cases.alone(name)
    for rank in together:
        mine, mine_grads = rank[name]
        torch.testing.assert_close(mine, loss, rtol=0, atol=1e-10)
        assert set(mine_grads) == set(grads)
        for key, grad in grads.items():
            torch.testing.assert_close(mine_grads[key], grad, rtol=0, atol=1e-10)


def test_distributed_data_parallel_gives_the_gradient_of_the_whole_batch(processes):
    _, grads = cases.alone("NTXent")
    for results in processes.run(2, cases.wrapped, cases.EVEN[2]):
        for key, grad in grads.items():
            torch.testing.assert_close(results[key], grad, rtol=0, atol=1e-10)


def test_reductions_and_diagnoses_cover_the_anchors_of_each_process(processes):
    results = processes.run(2, sharded_failures.values)
    x, y = (torch.cat([sharded_failures.rows(4, seed=seed + rank) for rank in (0, 1)]) for seed in (0, 9))
    labels = torch.tensor([0, 1, 0, 1] * 2)
    whole = NTXentLoss(reduction="none")(x, y).view(2, 2, 4)  # [view, process, sample]
    triplets = TripletLoss(reduction="none")(x, labels).view(2, 4)
    hardest = SupConLoss(diagnose=True)(x, labels)[1].hardest_negative.view(2, 4)
    for rank, mine in enumerate(results):
        torch.testing.assert_close(mine["none"], whole[:, rank].flatten())
        torch.testing.assert_close(mine["sum"], whole[:, rank].sum())
        torch.testing.assert_close(mine["mean"], whole[:, rank].mean())
        torch.testing.assert_close(mine["compiled"], mine["mean"])
        torch.testing.assert_close(mine["triplets"], triplets[rank])
        torch.testing.assert_close(mine["hardest"], hardest[rank])


def test_a_mask_covers_the_samples_of_each_process(processes):
    results = torch.cat(processes.run(2, sharded_failures.masked))
    x = torch.cat([sharded_failures.rows(4, seed=rank) for rank in (0, 1)])
    mask = torch.block_diag(*[torch.eye(4).flip(0)] * 2).bool()
    torch.testing.assert_close(results, SupConLoss(0.5, reduction="none")(x, mask=mask))


def test_gather_without_a_group_raises():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="torch.distributed is not initialized"):
        NTXentLoss(gather=True)(x, x)
    with pytest.raises(ValueError, match="^gather .*'yes'"):
        NTXentLoss(gather="yes")
    torch.testing.assert_close(NTXentLoss(gather="auto")(x, x), NTXentLoss(gather=False)(x, x))


def test_processes_that_pass_other_arguments_raise_in_each(processes):
    messages = processes.run(2, sharded_failures.disagreements)
    assert messages[0] == messages[1]
    steps = (
        "ValueError: processes of the group disagree: rank 0 exchanges {}, rank 1 exchanges {}; all must call the same"
    )
    for name, message in {
        "SupCon, labels": steps.format("keys", "labels or ids"),
        "SupCon, several labels": steps.format("labels or ids", "numbers of rows"),
        "SupCon, numbers of classes": "ValueError: processes of the group differ in width of rows: [6, 5]",
        "SupCon, a mask": steps.format("labels or ids", "keys"),
        "Sigmoid, ids": steps.format("keys", "labels or ids"),
        "ids": "ValueError: processes of the group differ in ids per row (0: none): [0, 1]",
        "another loss": steps.format("keys", "numbers of rows"),
        "width": "ValueError: processes of the group differ in width of rows: [4, 3]",
        "dtype": "ValueError: processes of the group differ in bytes per element of rows: [8, 4]",
        "equal arguments": "no error",
    }.items():
        assert messages[0][name].startswith(message), messages[0][name]
