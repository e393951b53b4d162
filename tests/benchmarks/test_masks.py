"""The ways to mask tiles, on tiny problems."""

import re

from benchmarks import masks


def test_each_is_measured(run):
    code, said = run(masks, "--repeats", 1, "--size", 8, "--batch", 80)
    machine, *lines = said.out.splitlines()
    assert code == 0 and "threads, torch" in machine
    assert [re.split(r"  +", line)[0] for line in lines] == [
        "tile 8 x 8, ids",
        "lse over negatives by ids, 80",
        "HardSimpleLoss, top 64, 80",
    ]
