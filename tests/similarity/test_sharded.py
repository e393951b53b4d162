"""`Similarity` with a group: the folds and gradients of one process with all the keys, whatever the number of processes."""

import pytest
import torch

import sharded_cases


@pytest.fixture(scope="module", params=[(1, 0), (2, 0), (2, 10**6), (4, 0), (4, 10**6)], ids=str)
def results(request, processes):
    world, at_once = request.param
    return world, processes.run(world, sharded_cases.sharded, at_once)


def test_folds_and_gradients_are_those_of_the_whole(results):
    world, found = results
    truth = sharded_cases.truths(world)
    assert set(truth) == set(found[0])
    for case, (value, grads) in truth.items():
        scale = sharded_cases.KINDS[case[0]].scale
        mine = torch.cat([part[case][0] for part in found])
        torch.testing.assert_close(mine, value, rtol=1e-10, atol=1e-10 * scale, msg=lambda text: f"{case}: {text}")
        parts = [part[case][1] for part in found]
        for place, true in enumerate(grads):
            each = [part[place] for part in parts]
            ours = torch.cat(each) if true.ndim else torch.stack(each).sum()
            torch.testing.assert_close(ours, true, rtol=1e-10, atol=1e-9 * scale, msg=lambda text: f"{case}: {text}")
