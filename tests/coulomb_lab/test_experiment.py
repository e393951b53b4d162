"""The lab from the command line down, on runs of a second, and its page."""

import json

import pytest
from typer.testing import CliRunner

from coulomb.cli.every import app
from coulomb.ground.errors import InputError
from coulomb.methods import METHODS
from coulomb_lab import imbalance as imbalance_module
from coulomb_lab.arms import Settings
from coulomb_lab.experiment import perform
from coulomb_lab.experiments import EXPERIMENTS, find_experiment, listing
from coulomb_lab.imbalance import optimum_table
from coulomb_lab.page import conclusion, render_html, render_text

UNTRAINED = {"two-infonce"}  # nothing is trained for them
TINY = {"epochs": 1, "encoder": "convnet", "encoder_width": 4, "embedding_dim": 8, "knn_every": 1}


@pytest.fixture(scope="module")
def table():
    return optimum_table(positives=(4,))


def test_the_optimum_is_within_one_percent(table):
    assert [row["formula"] for row in table] == ["1/K", "1/(1+αK)", "α/(1+αK)", "1/(1+a)"]
    assert max(row["error"] for row in table) < 0.01
    assert round(table[-1]["found"], 3) == 0.709


def test_every_experiment_names_its_runs():
    asked = "temperature two-infonce hard-negatives batch-size queue collapse alignment-uniformity imbalance nce augmentations"
    assert set(EXPERIMENTS) >= {*asked.split(), "methods", "longtail"}
    for made in EXPERIMENTS.values():
        for settings in (Settings(), Settings(quick=True), Settings(data="photos/")):
            names = [arm.name for arm in made.arms(settings)]
            assert len(set(names)) == len(names) and (len(names) > 2 or made.name in UNTRAINED)
        assert made.name in listing() and made.question in listing()
    assert [arm.name for arm in EXPERIMENTS["methods"].arms(Settings())].count("simclr") == 1
    assert {arm.name for arm in EXPERIMENTS["methods"].arms(Settings())} == set(METHODS)
    with pytest.raises(InputError, match="'nothing'.*longtail"):
        find_experiment("nothing")


def test_nothing_is_judged_without_a_run(table, monkeypatch):
    monkeypatch.setattr(imbalance_module, "optimum_table", lambda: table)
    for made in EXPERIMENTS.values():
        if made.name in UNTRAINED:
            continue
        judged = made.summarize({}, Settings())
        by_theory = ("free logits", "L_extra")
        claims = [claim for claim in judged["claims"] if not any(text in claim["claim"] for text in by_theory)]
        assert all(claim["holds"] is None for claim in claims) and claims
    assert conclusion([]) == "None of the claims can be checked with these runs."
    assert conclusion([{"holds": True}, {"holds": None}]) == "All 1 claims hold here."
    assert conclusion([{"holds": True}, {"holds": False}]) == "1 of 2 claims hold here."
    told = conclusion([{"holds": True, "chance": True}, {"holds": False}])
    assert told == "1 of 2 claims hold here; 1 of the results may be chance."


@pytest.fixture(scope="module")
def longtail(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("lab")
    settings = Settings(out=out, quick=True, only=("softmax", "paco"), long_tail="step:10", options=TINY)
    with pytest.MonkeyPatch.context() as once:
        once.setattr(imbalance_module, "optimum_table", lambda: table)
        return perform(EXPERIMENTS["longtail"], settings, ["coulomb", "lab", "longtail"]), settings


@pytest.mark.slow
def test_a_long_tail_is_measured_by_frequency_and_by_gradient(longtail):
    result, settings = longtail
    assert (result["counts"][0], result["counts"][-1]) == (142, 14)
    for name in ("softmax", "paco"):
        row = result["rows"][name]
        assert row["epochs"] == 1 and 0 <= row["classifier"] <= 1 and len(row["gradients"]) == 10
        assert row["many"] is not None and row["few"] is not None
    assert set(result["rows"]) == {"softmax", "paco", "untrained", "raw_pixels"}
    assert result["rows"]["raw_pixels"]["knn"] > 0.5
    held = {claim["claim"].split()[0]: claim["holds"] for claim in result["claims"]}
    assert held["PaCo"] is None  # beside SupCon, which was not asked for
    assert json.loads((settings.out / "longtail" / "result.json").read_text())["rows"].keys() == result["rows"].keys()


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    settings = Settings(out=tmp_path_factory.mktemp("lab"), quick=True, seeds=2, only=("tau0.3",), options=TINY)
    return perform(EXPERIMENTS["temperature"], settings), settings


@pytest.mark.slow
def test_several_seeds_have_a_mean_and_a_deviation(seeds):
    result, settings = seeds
    folder = settings.out / "temperature"
    first, second = (json.loads((folder / f"tau0.3{end}.json").read_text())["figures"] for end in ("", "-seed1"))
    row = result["rows"]["tau0.3"]
    assert row["uniformity"] == pytest.approx((first["uniformity"] + second["uniformity"]) / 2)
    assert row["uniformity_std"] == pytest.approx(abs(first["uniformity"] - second["uniformity"]) / 2**0.5)
    assert (result["seeds"], row["seeds"]) == ([0, 1], 2) and first["uniformity"] != second["uniformity"]
    assert "±" in render_text(result) and "±" in render_html(result)
    assert len(row["limits"]["cold"]) == 5
    again = perform(EXPERIMENTS["temperature"], settings)
    assert again["rows"] == result["rows"]


def test_an_experiment_without_runs_has_a_page(tmp_path):
    result = perform(EXPERIMENTS["two-infonce"], Settings(out=tmp_path))
    text, page = render_text(result), render_html(result)
    assert "All intermediate tensors" in text and "All intermediate tensors" in page and "<h2>Runs" not in page


def test_text_and_page_say_the_same(longtail):
    result, _ = longtail
    text, page = render_text(result), render_html(result)
    for said in ("raw pixels", "untrained encoder", "gradient b", "PaCo raises few-shot accuracy", "α/(1+αK)"):
        assert said in text and said in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script") == 2 and "script-src 'sha256-" in page
    failed = result | {"rows": {"<b>": {"failed": "the loss became <i>"}}}
    assert "failed: the loss became <i>" in render_text(failed)
    assert "&lt;b&gt;" in render_html(failed) and "became &lt;i&gt;" in render_html(failed)


def test_the_command_lists_and_refuses(tmp_path):
    assert "longtail" in CliRunner().invoke(app, ["lab"]).output
    for arguments in (["nothing"], ["queue", "--only", "x"], ["longtail", "--long-tail", "steep"]):
        found = CliRunner().invoke(app, ["lab", *arguments, "--out", str(tmp_path)])
        assert isinstance(found.exception, InputError)
