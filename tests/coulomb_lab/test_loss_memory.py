import pytest
import torch

from coulomb.losses import NTXentLoss
from coulomb_lab import loss_memory


def test_both_engines_compute_the_same_loss():
    views = torch.randn(2, 12, 8)
    torch.testing.assert_close(loss_memory.stored_ntxent(*views), NTXentLoss(loss_memory.TEMPERATURE)(*views))


@pytest.mark.slow
@pytest.mark.skipif(not loss_memory.STATUS.exists(), reason="needs /proc")
def test_the_stored_matrix_is_seen_in_the_peak():
    matrix = 4096 * 4096 * 4 / 2**20
    stored, streamed = (loss_memory.peak_of_fresh_process(engine, 4096) for engine in ("stored", "streamed"))
    assert stored > 2 * matrix > streamed > 0


def test_a_process_that_fails_has_no_peak():
    assert loss_memory.peak_of_fresh_process("streamed", -2) is None
