import json

import pytest

from benchmarks import memory
from coulomb.ground.errors import InputError


def test_both_arms_are_measured(monkeypatch):
    monkeypatch.setattr(memory, "CASES", {"inference, 256 images": (256, False)})
    arms = []

    class Done:
        stdout = "[2.0, 100.0]"

    def run(command, env, **options):
        arms.append(env["COULOMB_KEEP_MEMORY"])
        return Done()

    monkeypatch.setattr(memory.subprocess, "run", run)
    result = memory.bench_memory(repeats=2)
    assert arms == ["0", "1", "0", "1"]
    assert json.loads(json.dumps(result)) == result
    assert "inference, 256 images" in memory.render(result)
    assert "1.00×" in memory.render(result)


@pytest.mark.parametrize("training", [False, True])
def test_a_step_is_measured(training):
    taken, mib = memory.measure(2, training, repeats=1)
    assert taken > 0
    assert mib > 100


def test_no_repeats():
    with pytest.raises(InputError, match="repeats=0"):
        memory.bench_memory(repeats=0)
