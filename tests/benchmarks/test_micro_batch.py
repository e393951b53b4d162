import json
import re

import pytest

from benchmarks.micro_batch import bench_micro_batch, print_memory, render
from coulomb.ground.errors import InputError


@pytest.mark.slow
def test_times_and_memory_are_measured():
    said = []
    result = bench_micro_batch("convnet", 8, 4, 16, 1, said.append)
    assert json.loads(json.dumps(result)) == result and len(said) == 4
    assert result["ratio"] == result["seconds"]["cached"] / result["seconds"]["plain"] > 0
    assert result["processor_ratio"] > 0 and result["processor_seconds"].keys() == result["seconds"].keys()
    assert list(result["memory"]) == ["8 images", "8 images, micro-batch 4", "16 images, micro-batch 4"]
    for case in result["memory"].values():
        assert case["peak"] >= case["before"] > 100 and case["seconds"] > 0
    assert re.search(r"16 images, micro-batch 4 +\d+ MiB +\d+ MiB", render(result))


def test_the_peak_of_a_process(capsys):
    print_memory("convnet", "16", "4")
    found = json.loads(capsys.readouterr().out)
    assert found["peak"] >= found["before"] > 100 and found["seconds"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 1}, "batch=1: must be at least 2"),
        ({"micro_batch": 1}, "micro_batch=1: must be at least 2"),
        ({"repeats": 0}, "repeats=0: must be at least 1"),
        ({"large": 5}, "large=5: must be at least batch=256"),
        ({"encoder": "resnet"}, "encoder='resnet' is unknown"),
    ],
)
def test_wrong_input(options, message):
    with pytest.raises(InputError, match=message):
        bench_micro_batch(**options)
