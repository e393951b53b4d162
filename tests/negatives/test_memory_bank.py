import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import negatives_cases
from coulomb.ground.errors import CoulombWarning
from coulomb.negatives import MemoryBank

SLOTS = torch.arange(11)


def drawn(count, dim=3, seed=0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def numpy_update(bank, index, rows, momentum):
    """One slot after the other, in float64."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for slot in set(index.tolist()):
        moved = momentum * bank[slot] + (1 - momentum) * rows[index == slot].mean(0)
        bank[slot] = moved / np.linalg.norm(moved)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 10), max_size=14), max_size=5),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
)
def test_updates_match_numpy(batches, momentum):
    bank = MemoryBank(11, 3, momentum=momentum, seed=2)
    oracle = bank.lookup(SLOTS).double().numpy()
    for number, index in enumerate(batches):
        rows = drawn(len(index), seed=number)
        bank.update(torch.tensor(index, dtype=torch.long), rows)
        numpy_update(oracle, np.array(index, dtype=int), rows.double().numpy(), momentum)
    torch.testing.assert_close(bank.keys().double(), torch.from_numpy(oracle), rtol=0, atol=2e-6)


def test_initial_rows_are_random_unit_vectors():
    first, again, other = (MemoryBank(5000, 8, seed=seed).keys() for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.testing.assert_close(first.norm(dim=1), torch.ones(5000))
    assert float(first.mean(0).norm()) < 4 / math.sqrt(5000)  # isotropic
    torch.testing.assert_close(first.T @ first / 5000, torch.eye(8) / 8, rtol=0, atol=0.01)
    assert len(torch.unique(first, dim=0)) == 5000


def test_a_slot_is_unchanged_if_vectors_cancel_or_are_zero():
    bank = MemoryBank(2, 3)
    before = bank.lookup(torch.arange(2))
    bank.update(torch.tensor([0]), -before[:1])
    with pytest.warns(CoulombWarning, match="1 of 1 rows of rows are zero vectors"):
        bank.update(torch.tensor([1]), torch.zeros(1, 3))
    assert torch.equal(bank.lookup(torch.arange(2)), before)


def test_lookup_returns_a_copy_of_any_shape():
    bank = MemoryBank(11, 3)
    found = bank.lookup(torch.tensor([[0, 5], [5, 10]]))
    assert found.shape == (2, 2, 3) and torch.equal(found[0, 1], found[1, 0])
    found.zero_()
    assert float(bank.lookup(torch.tensor([5])).norm()) == pytest.approx(1)


def test_uniform_noise_is_uniform_and_seeded():
    bank, draw = MemoryBank(11, 3), lambda seed: torch.Generator().manual_seed(seed)
    slots = bank.sample((200, 100), draw(0))
    assert torch.equal(slots, bank.sample((200, 100), draw(0))) and not torch.equal(
        slots, bank.sample((200, 100), draw(1))
    )
    counts = torch.bincount(slots.flatten(), minlength=11)
    expected = 20_000 / 11
    assert float(((counts - expected) ** 2 / expected).sum()) < 35  # χ² with 10 degrees of freedom: p = 1e-4


def test_weighted_noise_follows_its_distribution():
    bank = MemoryBank(11, 3)
    weights = torch.tensor([0, 1, 2, 3, 4, 0, 5, 6, 7, 8, 0], dtype=torch.float64)
    slots = bank.sample(40_000, torch.Generator().manual_seed(0), weights.log() + 700)  # unnormalized, large
    counts = torch.bincount(slots, minlength=11).double()
    assert counts[weights == 0].sum() == 0
    expected = (40_000 * weights / weights.sum())[weights > 0]
    assert float(((counts[weights > 0] - expected) ** 2 / expected).sum()) < 30  # 7 degrees of freedom: p = 1e-4


def test_the_state_dict_contains_the_bank():
    bank = MemoryBank(11, 3)
    bank.update(SLOTS, drawn(11))
    other = MemoryBank(11, 3, seed=9)
    other.load_state_dict(bank.state_dict())
    assert torch.equal(other.keys(), bank.keys()) and int(other.updates) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MemoryBank(0, 3), "num_instances must be at least 1"),
        (lambda: MemoryBank(3, 3, momentum=1.5), "momentum must be from 0 to 1"),
        (lambda: MemoryBank(3, 3).lookup(torch.tensor([-1])), "index must be from 0 to 2, got -1"),
        (lambda: MemoryBank(3, 3).update(torch.tensor([3]), torch.ones(1, 3)), "index must be from 0 to 2, got 3"),
        (lambda: MemoryBank(3, 3).update(torch.tensor([0, 1]), torch.ones(1, 3)), r"index must have shape \[1\]"),
        (lambda: MemoryBank(3, 3).update(torch.tensor([0]), torch.full((1, 3), torch.inf)), "rows has 1 of 1 rows"),
        (lambda: MemoryBank(3, 3).sample(2, torch.Generator(), torch.zeros(4)), r"log_prob must have shape \[3\]"),
        (lambda: MemoryBank(3, 3).sample(2, torch.Generator(), torch.full((3,), -torch.inf)), "log_prob must be log"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("counts", [[4, 4], [6, 1], [0, 3]], ids=str)
def test_banks_of_several_processes_equal_one_bank(processes, tmp_path, counts, mapped):
    found = processes.run(2, negatives_cases.banked, counts, str(tmp_path / "bank") if mapped else None)
    alone = MemoryBank(11, 3)
    for step in range(3):
        parts = [negatives_cases.batch(step, rank, count) for rank, count in enumerate(counts)]
        alone.update(torch.cat([ids for *_, ids in parts]), torch.cat([rows for rows, *_ in parts]))
        for seen, updates in found:
            assert torch.equal(seen[step], alone.keys())
            assert updates == 3
