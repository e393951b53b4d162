"""Losses with a guide or a teacher, on tiny problems."""

import re

import torch

from benchmarks import teachers


def test_the_dense_losses_equal_ours():
    torch.manual_seed(0)
    values = {name: float(loss().detach()) for name, loss in teachers.losses(40, 8).items()}
    assert abs(values["guide"] - values["guide, dense"]) < 1e-5
    assert abs(values["distillation"] - values["distillation, dense"]) < 1e-5


def test_each_is_measured(run):
    code, said = run(teachers, "--repeats", 1, "--n", 64, "--dim", 8)
    machine, *lines = said.out.splitlines()
    assert code == 0 and "threads, torch" in machine
    assert [re.split(r"  +", line)[0] for line in lines] == [*teachers.losses(4, 4)]
