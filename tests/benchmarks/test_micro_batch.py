import json
import re

import pytest

from benchmarks import micro_batch
from benchmarks.micro_batch import bench_micro_batch, render
from coulomb.ground.errors import InputError


def test_times_and_memory_are_measured(monkeypatch):
    commands = []

    class Done:
        stdout = '{"before": 300.0, "peak": 1800.4, "seconds": 2.0}'

    def run(command, **options):
        commands.append(command[-3:])
        return Done()

    monkeypatch.setattr(micro_batch.subprocess, "run", run)
    said = []
    result = bench_micro_batch("convnet", 8, 4, 32, 2, said.append)
    assert commands == [["convnet", "8", "0"], ["convnet", "8", "4"], ["convnet", "32", "4"]] and len(said) == 4
    assert json.loads(json.dumps(result)) == result
    assert result["ratio"] == result["seconds"]["cached"] / result["seconds"]["plain"] > 0
    assert result["processor_ratio"] > 0 and result["processor_seconds"].keys() == result["seconds"].keys()
    text = render(result)
    assert re.search(r"32 images, micro-batch 4 +300 MiB +1800 MiB +2\.0 s", text) and "4 views" in text
    assert list(bench_micro_batch("convnet", 8, 4, 0, 1)["memory"]) == ["8 images", "8 images, micro-batch 4"]


def test_the_peak_of_a_process(capsys):
    micro_batch.main(["convnet", "16", "4"])
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
