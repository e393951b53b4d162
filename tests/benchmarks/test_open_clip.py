"""Memory that losses hold for the backward pass is seen, and that of the losses here is linear."""

import pytest
import torch

from benchmarks.open_clip import DIM, MIB, bench_open_clip, contestants, held_bytes, loaded_file, render, sample
from coulomb.ground.errors import InputError


class Holding(torch.autograd.Function):
    """Holds some MiB in its context, where hooks of saved tensors do not see them."""

    @staticmethod
    def forward(ctx, x, mib):
        ctx.kept = x.new_zeros(mib * MIB // 4)
        torch.empty(mib * MIB // 4)  # is freed
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(3), None


@pytest.mark.parametrize("mib", [1, 5])
def test_what_waits_for_the_backward_pass_is_counted(mib):
    x = torch.ones(3, requires_grad=True)
    assert held_bytes(lambda x: Holding.apply(x, mib), [x]) / MIB == pytest.approx(mib, abs=0.01)
    assert held_bytes(lambda x: (x.exp() + torch.ones(MIB)[:3]).sum(), [x]) < MIB / 100


@pytest.mark.slow
def test_memory_of_the_losses_here_is_linear():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for loss in contestants(None).values():
            small, large = (held_bytes(loss, sample(n)) for n in (2048, 8192))
            assert large < 4.5 * small
            assert large < 40 * 8192 * DIM * 4  # an eighth of the logits
    finally:
        torch.set_num_threads(threads)


def test_their_file_is_measured_beside(tmp_path):
    file = tmp_path / "loss.py"
    file.write_text(
        "import torch\n"
        "class ClipLoss:\n"
        "    def __call__(self, x, y, scale, bias):\n"
        "        return (x @ y.T).exp().sum()\n"
        "class SigLipLoss(ClipLoss):\n"
        "    pass\n"
    )
    result = bench_open_clip([256], file)
    assert result["mib"]["open_clip ClipLoss"][0] == pytest.approx(256 * 256 * 4 / MIB, rel=0.1)
    assert set(result["mib"]) == {
        f"{whose} {loss}" for whose in ("coulomb", "open_clip") for loss in ("ClipLoss", "SigLipLoss")
    }
    assert "256" in render(result)


def test_errors_name_the_argument(tmp_path):
    with pytest.raises(InputError, match="^rows=1"):
        bench_open_clip([1])
    with pytest.raises(InputError, match="^file=.*no such file"):
        loaded_file(tmp_path / "loss.py")
