import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.negatives import MemoryBank

SLOTS = torch.arange(20)


def step(bank, number, batch=6):
    draw = torch.Generator().manual_seed(number)
    bank.update(torch.randint(20, (batch,), generator=draw), torch.randn(batch, 4, generator=draw))


def test_a_mapped_bank_equals_one_in_memory(tmp_path):
    plain, mapped = MemoryBank(20, 4, seed=3), MemoryBank(20, 4, seed=3, path=tmp_path / "bank")
    for number in range(5):
        step(plain, number)
        step(mapped, number)
    assert torch.equal(plain.keys(), mapped.keys())
    assert list(mapped.state_dict()) == ["updates"]


def test_slots_never_written_take_no_space_on_disk(tmp_path):
    bank = MemoryBank(10_000_000, 64, path=tmp_path / "bank")
    draw = torch.Generator().manual_seed(0)
    index, rows = bank.sample(1000, draw), torch.randn(1000, 64, generator=draw)
    before = bank.lookup(index)
    bank.update(index, rows)
    assert torch.unique(index).numel() > 990 and int(index.max()) > 9_900_000
    moved = torch.nn.functional.normalize(before + torch.nn.functional.normalize(rows, dim=1), dim=1)
    alone = torch.tensor([(index == slot).sum() == 1 for slot in index])
    torch.testing.assert_close(bank.lookup(index)[alone], moved[alone])
    assert (tmp_path / "bank").stat().st_size == 10_000_000 * 64 * 4
    assert (tmp_path / "bank").stat().st_blocks * 512 < 20_000_000


@pytest.mark.parametrize("after", [0, 1, 7])
def test_load_state_dict_restores_the_rows_of_a_checkpoint(tmp_path, after):
    bank, plain = (MemoryBank(20, 4, path=path) for path in (tmp_path / "bank", None))
    for number in range(5):
        step(bank, number)
        step(plain, number)
    state = {name: value.clone() for name, value in bank.state_dict().items()}
    for number in range(after):
        step(bank, 100 + number)
    resumed = MemoryBank(20, 4, path=tmp_path / "bank")
    with pytest.raises(InputError, match="holds the updates of an earlier run"):
        resumed.lookup(SLOTS)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.keys(), plain.keys())
    step(resumed, 5)
    step(plain, 5)
    assert torch.equal(resumed.keys(), plain.keys())


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_last_three_checkpoints_can_be_restored(tmp_path, one_by_one):
    bank, states, truth = MemoryBank(20, 4, path=tmp_path / "bank"), [], []
    for number in range(6):
        step(bank, number, batch=15)
        states.append({name: value.clone() for name, value in bank.state_dict().items()})
        truth.append(bank.keys())
    assert len(list(tmp_path.glob("bank.undo-*"))) == 3
    with pytest.raises(InputError, match="to the states after 4 to 6 updates, not 3"):
        MemoryBank(20, 4, path=tmp_path / "bank").load_state_dict(states[2])
    steps = (5, 4, 3) if one_by_one else (3,)
    for number in steps:
        resumed = MemoryBank(20, 4, path=tmp_path / "bank")
        resumed.load_state_dict(states[number])
        assert torch.equal(resumed.keys(), truth[number])
    with pytest.raises(InputError, match="after 4 to 4 updates, not 6"):
        MemoryBank(20, 4, path=tmp_path / "bank").load_state_dict(states[5])


def test_an_incomplete_record_is_ignored(tmp_path):
    bank = MemoryBank(20, 4, path=tmp_path / "bank")
    step(bank, 0)
    state, truth = {"updates": bank.updates.clone()}, bank.keys()
    log = tmp_path / "bank.undo-0"
    whole = log.read_bytes()
    step(bank, 1)
    longer = log.read_bytes()
    for cut in range(len(whole), len(longer), 7):
        path = tmp_path / f"cut{cut}"
        step(MemoryBank(20, 4, path=path), 0)
        (tmp_path / f"cut{cut}.undo-0").write_bytes(longer[:cut])
        resumed = MemoryBank(20, 4, path=path)
        resumed.load_state_dict(state)
        assert torch.equal(resumed.keys(), truth)


def test_files_that_are_not_this_bank_are_refused(tmp_path):
    (tmp_path / "photo").write_bytes(b"not a bank")
    with pytest.raises(InputError, match="exists and is no bank"):
        MemoryBank(20, 4, path=tmp_path / "photo")
    MemoryBank(20, 4, path=tmp_path / "bank")
    with pytest.raises(InputError, match='is a bank of .*"slots": 20.* not of .*"slots": 21'):
        MemoryBank(21, 4, path=tmp_path / "bank")
    with pytest.raises(InputError, match='is a bank of .*"seed": 0'):
        MemoryBank(20, 4, path=tmp_path / "bank", seed=1)
    with pytest.raises(InputError, match="cannot be created or mapped"):
        MemoryBank(20, 4, path=tmp_path / "nowhere" / "bank")


def test_a_full_disk_raises_and_changes_nothing(tmp_path):
    bank, plain = MemoryBank(20, 4, path=tmp_path / "bank"), MemoryBank(20, 4)
    step(bank, 0)
    step(plain, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    length = (tmp_path / "bank.undo-0").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (length + 50, limits[1]))  # a record and a half
    try:
        with pytest.raises(InputError, match="its undo log cannot be written .*; is the disk full"):
            step(bank, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "bank.undo-0").stat().st_size == length
    assert torch.equal(bank.keys(), plain.keys())
    for number in (1, 2):  # with room again, updates continue and can be undone
        step(bank, number)
    bank.load_state_dict({"updates": torch.tensor(1)})
    assert torch.equal(bank.keys(), plain.keys())


def test_a_log_without_its_file_is_refused(tmp_path):
    step(MemoryBank(20, 4, path=tmp_path / "bank"), 0)
    (tmp_path / "bank").unlink()
    with pytest.raises(InputError, match="has 0 bytes instead of 320"):
        MemoryBank(20, 4, path=tmp_path / "bank")


KILLED = """
import sys, torch
from coulomb.negatives import MemoryBank
bank = MemoryBank(20, 4, path=sys.argv[1])
for number in range(10**9):
    draw = torch.Generator().manual_seed(number)
    bank.update(torch.randint(20, (6,), generator=draw), torch.randn(6, 4, generator=draw))
    if number % 50 == 49:
        torch.save(bank.state_dict(), sys.argv[1] + ".tmp")
        import os; os.replace(sys.argv[1] + ".tmp", sys.argv[1] + ".ckpt")
"""


def test_kill_and_resume_is_bit_identical(tmp_path):
    path = tmp_path / "bank"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while not (tmp_path / "bank.ckpt").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    state = torch.load(tmp_path / "bank.ckpt", weights_only=True)
    resumed, plain = MemoryBank(20, 4, path=path), MemoryBank(20, 4)
    resumed.load_state_dict(state)
    for number in range(int(state["updates"])):
        step(plain, number)
    assert torch.equal(resumed.keys(), plain.keys())
