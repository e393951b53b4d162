import json

import pytest

from benchmarks.walks import WALKS, bench_walks, render


def test_a_walk_goes_from_the_loss_to_the_engine():
    result = bench_walks(["loss"])
    assert json.loads(json.dumps(result)) == json.loads(json.dumps(bench_walks(["loss"])))  # counts, not times
    walk = result["loss"]
    assert next(iter(walk["walk"])) == "losses/ntxent.py"
    assert walk["walk"]["similarity/matrix.py"]["from"] == ["losses/negatives.py", "losses/ntxent.py"]
    assert "similarity/matrix.py" in walk["doors"]
    assert "similarity/tiles.py" not in walk["doors"]  # files of its own folder call it
    assert not any(name.startswith("ground/") for name in walk["walk"])
    assert "NTXentLoss.forward" in render(result, files=True)
    order = render(result, order=True).splitlines()
    assert order.index("  NTXentLoss.forward  losses/ntxent.py") < order.index("    scale_of  losses/temperature.py")
    assert walk["returns"]["similarity/tiles.py"] > 1 and "losses/ntxent.py" not in walk["returns"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_arrives(name):
    """It enters few files, passes its last one, and imports are not part of it."""
    (walk,) = bench_walks([name]).values()
    last = {
        "photos": "training/module.py",
        "step": "similarity/stored.py",
        "loss": "similarity/engine.py",
        "search": "models/features.py",
        "pairs": "losses/infonce.py",
    }
    assert last[name] in walk["walk"]
    assert "<module>" not in {function for each in walk["walk"].values() for function in each["functions"]}
    assert walk["files"] == len(walk["walk"]) < 120
