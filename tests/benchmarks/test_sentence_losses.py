import json

import pytest

from benchmarks import sentence_losses
from benchmarks.sentence_losses import GROWTH, bench_stage, bench_steps, print_stage, render
from coulomb.ground.errors import InputError
from sentence_models import REASON, tiny_model


def test_contestants_take_turns(monkeypatch):
    asked = []

    def fresh(name, n, dim):
        asked.append(name)
        return {"seconds": 1.0 * len(asked), "processor": 1.0, "peak_mib": n / 1024, "loss": 2.0, "gradient": 0.5}

    monkeypatch.setattr(sentence_losses, "_fresh", fresh)
    rows = bench_stage(repeats=3)
    assert asked[:6] == ["ours", "theirs"] * 3
    assert [row["seconds"] for row in rows[:2]] == [3.0, 4.0]  # medians
    assert len(rows) == 2 + sum(map(len, GROWTH.values()))
    step = {"seconds": 2.0, "processor": 1.5, "stage": 0.5, "loss": 3.25}
    text = render(
        {"machine": machine(), "dim": 384, "batch": 2048, "steps": {"ours": [step], "theirs": [step]}, "stages": rows}
    )
    assert text.count("3.250000") == 2
    assert "1.0" in text.splitlines()[-1]  # KiB per pair


def machine():
    return {"processor": "P", "threads": 1, "torch": "2", "date": "today"}


@pytest.mark.parametrize("name", ["ours", "theirs", "theirs, not cached"])
def test_stages_compute_the_same_loss(name, capsys):
    pytest.importorskip("sentence_transformers", minversion="6.2", reason=REASON)
    found = []
    for each in ("ours", name):
        print_stage(each, "200")
        found.append(json.loads(capsys.readouterr().out))
    for key in ("loss", "gradient"):
        assert found[1][key] == pytest.approx(found[0][key], rel=1e-4)
    assert found[0]["peak_mib"] >= 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_steps_of_both_losses_have_the_same_curve(tmp_path, monkeypatch):
    model = tiny_model(tmp_path / "bert", dropout=0.1)
    model.save_pretrained(str(tmp_path / "saved"))
    import pyarrow
    import pyarrow.parquet

    words = ["red", "flower", "cat", "leaf", "sofa"]
    terms = [f"{one} {other}" for one in words for other in words]
    pairs = pyarrow.table({"term": terms, "gloss": [f"a {term}" for term in terms]})
    pyarrow.parquet.write_table(pairs, tmp_path / "pairs.parquet")
    monkeypatch.setattr(sentence_losses, "MINI_BATCH", 5)
    found = bench_steps(tmp_path / "saved", tmp_path / "pairs.parquet", 2, batch=12)
    assert [step["loss"] for step in found["ours"]] == pytest.approx(
        [step["loss"] for step in found["theirs"]], abs=1e-5
    )
    assert all(0 < step["stage"] < step["processor"] for each in found.values() for step in each)
    with pytest.raises(InputError, match="25 pairs, 3 steps of 12 need more"):
        bench_steps(tmp_path / "saved", tmp_path / "pairs.parquet", 3, batch=12)
