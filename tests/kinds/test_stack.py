from dataclasses import dataclass

import numpy as np
import torch

from coulomb.kinds import Stack


@dataclass
class Pairs(Stack):
    """A large tensor, and one that parameters of views are computed from."""

    on_host = ("weight",)

    values: torch.Tensor
    weight: torch.Tensor


def pairs(count=4):
    return Pairs(torch.arange(2.0 * count).view(count, 2), torch.arange(float(count)))


def test_take_copies_rows_and_put_overwrites_them():
    stack = pairs()
    taken = stack.take(np.array([2, 0, 2]))
    assert len(stack) == 4 and len(taken) == 3
    assert taken.values.tolist() == [[4, 5], [0, 1], [4, 5]] and taken.weight.tolist() == [2, 0, 2]
    taken.values.zero_()
    assert stack.values[2].tolist() == [4, 5]
    stack.put(torch.tensor([3, 1]), pairs().take(np.array([0, 2])))
    assert stack.weight.tolist() == [0, 2, 2, 0] and stack.values[1].tolist() == [4, 5]


def test_tensors_for_the_host_do_not_move():
    moved = pairs().to("meta")
    assert moved.values.is_meta and not moved.weight.is_meta


class Copied(torch.Tensor):
    """A tensor that remembers how it was copied."""

    def to(self, *place, **options):
        self.options = options
        return self


def test_copies_to_a_gpu_need_not_wait():
    stack = Pairs(torch.zeros(2, 3).as_subclass(Copied), torch.ones(2).as_subclass(Copied))
    stack.to("cuda", non_blocking=True)
    assert stack.values.options == {"non_blocking": True} and not hasattr(stack.weight, "options")
