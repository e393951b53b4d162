import json
import shutil

import numpy as np
import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.report.tables import summary_table
from coulomb.training.record.seeds import figures, save_seeds, summarize

QUICK = {"epochs": 1, "batch_size": 8, "encoder": "convnet", "encoder_width": 4, "image_size": 16, "workers": 0}


def evaluation(knn, few):
    row = {"knn": knn, "linear": None, "few_shot": {"5": {"mean": few, "std": 9.0}}, "protocol": {"seed": 3}}
    return {"trained": row | {"per_class": [], "clustering": {"nmi": few}}, "protocol": {"data": "digits", "epochs": 2}}


def folders(out, runs, test="null"):
    save_seeds(out, range(len(runs)), {"epochs": 2})
    for seed, found in enumerate(runs):
        (out / f"seed{seed}").mkdir()
        (out / f"seed{seed}" / "evaluation.json").write_text(json.dumps(found))
        (out / f"seed{seed}" / "config.yaml").write_text(f"data: digits\ntest: {test}\n")


def test_mean_and_deviation_of_every_number(tmp_path):
    values = [0.9, 0.95, 0.94]
    folders(tmp_path / "out", [evaluation(value, value / 2) for value in values])
    summary = summarize(tmp_path / "out")
    knn = summary["figures"]["trained"]["knn"]
    assert knn["mean"] == pytest.approx(np.mean(values)) and knn["std"] == pytest.approx(np.std(values, ddof=1))
    assert knn["values"] == values
    assert summary["figures"]["trained"].keys() == {"knn", "few_shot.5", "clustering.nmi"}
    assert "split" in summary["protocol"]["varies"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    text = summary_table(summary)
    assert "93.0% ±2.6%" in text and "seeds 0, 1, 2" in text


def test_a_number_that_one_run_lacks_is_left_out(tmp_path):
    folders(tmp_path / "out", [evaluation(0.9, 0.5), evaluation(None, 0.5)], test="x.parquet")
    summary = summarize(tmp_path / "out")
    assert "knn" not in summary["figures"]["trained"] and "split" not in summary["protocol"]["varies"]


def test_numbers_by_dotted_names():
    assert dict(figures({"a": 1, "b": {"c": 0.5, "protocol": {"d": 1}}, "e": None, "f": True})) == {
        "a": 1.0,
        "b.c": 0.5,
    }


@pytest.mark.slow
def test_seeds_are_ordinary_runs_that_can_be_resumed(tmp_path, digit_tree):
    out = tmp_path / "out"
    summary, folder = coulomb.train_seeds(2, digit_tree, out=out, seed=4, progress=False, **QUICK)
    assert folder == out and summary["runs"] == ["seed4", "seed5"]
    assert [coulomb.load(out / name).config.seed for name in summary["runs"]] == [4, 5]
    evaluations = [coulomb.load(out / name).evaluation for name in summary["runs"]]
    assert summary["figures"]["trained"]["linear"]["values"] == [found["trained"]["linear"] for found in evaluations]
    # Stopped after the first: the second begins anew with the options that were written down; the first is kept.
    shutil.rmtree(out / "seed5")
    kept = (out / "seed4" / "evaluation.json").stat().st_mtime_ns
    assert coulomb.train_seeds(resume_from=out, progress=False)[0] == summary
    assert (out / "seed4" / "evaluation.json").stat().st_mtime_ns == kept
    # Measured again: each of them, and the mean.
    again = coulomb.evaluate(out, knn_k=1, progress=False)
    assert coulomb.load(out / "seed5").evaluation["trained"]["protocol"]["knn"]["k"] == 1
    assert again["figures"]["trained"]["linear"] == summary["figures"]["trained"]["linear"]
    with pytest.raises(InputError, match="several runs"):
        coulomb.evaluate(out, on="digits", progress=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"seeds": 1}, "seeds=1"), ({"devices": 2}, "one by one"), ({"num_nodes": 2}, "one by one")],
)
def test_refused(tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        coulomb.train_seeds(**{"seeds": 2, "data": "digits"} | options, out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_kept(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match="already exists"):
        coulomb.train_seeds(2, "digits", out=tmp_path, progress=False)
