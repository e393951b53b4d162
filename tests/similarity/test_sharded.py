"""`Similarity` with a group: reductions and gradients equal those of one process with all keys."""

import pytest
import torch

import sharded_cases
import sharded_failures
from torch_versions import needs_attention

SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ((1, 0), (2, 0), (4, 10**6))]
ATTENTION = pytest.param((2, 0, "attention"), marks=[pytest.mark.slow, needs_attention])


@pytest.fixture(scope="module", params=[*SLOW, (2, 10**6), (4, 0), ATTENTION], ids=str)
def results(request, processes):
    world, *options = request.param
    return world, processes.run(world, sharded_cases.sharded, *options)


def test_reductions_and_gradients_equal_those_of_one_process(results):
    world, actual = results
    truth = sharded_cases.truths(world)
    assert set(truth) == set(actual[0])
    for case, (value, grads) in truth.items():
        scale = sharded_cases.KINDS[case[0]].scale
        mine = torch.cat([part[case][0] for part in actual])
        torch.testing.assert_close(mine, value, rtol=1e-10, atol=1e-10 * scale, msg=lambda text: f"{case}: {text}")
        parts = [part[case][1] for part in actual]
        for place, true in enumerate(grads):
            each = [part[place] for part in parts]
            ours = torch.cat(each) if true.ndim else torch.stack(each).sum()
            torch.testing.assert_close(ours, true, rtol=1e-10, atol=1e-9 * scale, msg=lambda text: f"{case}: {text}")


def test_a_subgroup_shares_only_its_own_keys(processes):
    actual = processes.run(4, sharded_failures.subgroup)
    assert actual[0] is None
    assert actual[3] is None
    x = torch.cat([sharded_failures.rows(5, seed=rank) for rank in (1, 2)]).requires_grad_()
    value = (2 * x @ x.T).masked_fill(torch.eye(10, dtype=torch.bool), -torch.inf).logsumexp(1)
    (grad,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(torch.cat([actual[1][0], actual[2][0]]), value.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cat([actual[1][1], actual[2][1]]), grad, rtol=0, atol=1e-10)


def test_the_ring_never_holds_all_keys(processes):
    for largest, gathered in processes.run(4, sharded_failures.received_by_the_ring, 50):
        assert not gathered
        assert largest == 50 * 4  # the block of one process, not the 4 · 50 · 4 elements of all


def test_unsupported_calls_raise(processes):
    for messages in processes.run(2, sharded_failures.refusals):
        for name, message in {
            "mask": "ValueError: over=mask with group",
            "dense": "ValueError: the dense backend with group",
            "twice": "RuntimeError: a Similarity over several processes has no second derivative",
            "k": "ValueError: k must be between 1 and the number of keys 12, got 13",
            "width": "ValueError: processes of the group differ in width: [3, 4]",
            "precision": "ValueError: processes of the group differ in precision",
            "learning": "ValueError: processes of the group differ in requires_grad of the keys: [0, 1]",
            "labels": "ValueError: labels [B, C] in several processes need positives='out'",
        }.items():
            assert messages[name].startswith(message), messages[name]


@pytest.mark.parametrize(("gather_elements", "in_backward"), [(0, True), (10**6, False)], ids=["ring", "gathered"])
def test_a_process_that_exits_raises_in_the_others(processes, gather_elements, in_backward):
    answers = processes.try_run(3, sharded_failures.one_dies, gather_elements, in_backward, timeout=10)
    assert answers[1] == (None, "died")
    for value, error in (answers[0], answers[2]):
        assert error is None
        assert value.startswith("RuntimeError: a process of the group stopped, or did not answer")


@pytest.mark.slow
def test_a_process_that_does_not_respond_raises_within_the_timeout(processes, tmp_path):
    (waited, message), _ = processes.run(2, sharded_failures.one_sleeps, tmp_path / "answered", timeout=3)
    assert message.startswith("RuntimeError: a process of the group stopped, or did not answer")
    assert 1 < waited < 7


def test_all_blocks_share_one_bound_of_the_exponent(processes):
    first, second = processes.run(2, sharded_failures.far_apart)
    assert [float(x) for x in (*first, *second)] == [-2000, -2000, 1, 1]


def test_gradients_of_logits_that_are_coarser_than_1_are_bounded(processes):
    """Of keys with equal logits in several processes each may count as one of its own."""
    for grad, true in processes.run(2, sharded_failures.coarse):
        assert 0.999 * true <= grad <= 2.001 * true
