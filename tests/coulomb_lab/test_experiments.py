"""The claims of every experiment on invented results, and the quantities that experiments compute."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.files import write_json
from coulomb.kinds.image.views import PRESETS
from coulomb_lab.alignment_uniformity import correlation_claim, read_other_runs
from coulomb_lab.arms import Settings
from coulomb_lab.augmentations import removable_augmentations
from coulomb_lab.experiments import EXPERIMENTS
from coulomb_lab.infonce import gradient_cosines
from coulomb_lab.negatives import gradient_shares, memory_claims
from coulomb_lab.temperature import COLD, limit_tables, temperature_limits

QUICK = Settings(quick=True)


def few(**figures):
    return {name.replace("_", "-"): {"few_5": value} for name, value in figures.items()}


def held(name, rows, settings=QUICK):
    """Whether each claim holds, by its beginning."""
    judged = EXPERIMENTS[name].summarize(rows, settings)
    return {claim["claim"]: claim["holds"] for claim in judged["claims"]}, judged


def starts(claims, text):
    (found,) = [holds for claim, holds in claims.items() if claim.startswith(text)]
    return found


def test_temperature():
    torch.manual_seed(0)
    x = normalize(torch.randn(30, 8, dtype=torch.float64), dim=1)
    rows = {
        "tau0.07": {"few_5": 0.80, "uniformity": -3.9, "tolerance": 0.04},
        "tau0.3": {"few_5": 0.90, "uniformity": -3.6, "tolerance": 0.2, "limits": temperature_limits(x, x.flip(0))},
        "tau0.7": {"few_5": 0.85, "uniformity": -3.2, "tolerance": 0.3},
        "tau1": {"few_5": 0.84, "uniformity": -3.0, "tolerance": 0.4},
        "hard-tau0.7": {"few_5": 0.86},
        "simple": {"few_5": 0.7},
        "hard-simple": {"few_5": 0.8},
    }
    claims, judged = held("temperature", rows)
    assert set(claims.values()) == {True} and len(judged["tables"]) == 2
    rows["tau1"] = {"few_5": 0.95, "uniformity": -3.3, "tolerance": 0.25}
    rows["hard-tau0.7"] = {"few_5": 0.5}
    claims, _ = held("temperature", rows)
    assert [starts(claims, text) for text in ("A low τ", "A high τ", "Accuracy", "At τ = 0.7")] == [False] * 4


def test_hard_negatives():
    rows = few(biased=0.80, debiased=0.84, beta1=0.87, beta6=0.83, beta1_plus0=0.7)
    assert set(held("hard-negatives", rows)[0].values()) == {True}
    rows |= few(beta6=0.9, debiased=0.7)
    claims, _ = held("hard-negatives", rows)
    assert starts(claims, "Too large") is False and starts(claims, "Correcting") is False


def test_the_push_of_beta_zero_is_the_softmax_and_a_large_one_the_hardest():
    x = normalize(torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(20) % 2
    weights = (x @ x.T / 0.5).fill_diagonal_(-torch.inf).softmax(1)
    same = labels[:, None] == labels
    assert gradient_shares(x, labels, 0.5, 0.0)["same_class"] == pytest.approx(float((weights * same).sum(1).mean()))
    assert gradient_shares(x, labels, 0.5, 500.0)["top1pct"] == pytest.approx(1.0, abs=1e-2)


def test_nce():
    table = [{"noise": 4**k, "nce": min(1.0, 0.3 + 0.12 * k), "infonce": min(1.0, 0.5 + 0.12 * k)} for k in range(7)]
    rows = few(nce_m1=0.7, nce_m16=0.8, nce_m256=0.89, full_softmax=0.9)
    rows["full-softmax"]["cosines"] = table
    claims, judged = held("nce", rows)
    assert set(claims.values()) == {True} and len(judged["charts"]) == 2
    rows["full-softmax"]["cosines"] = [{**row, "nce": 0.5} for row in table]
    claims, _ = held("nce", rows)
    assert starts(claims, "NCE's gradient") is False and starts(claims, "InfoNCE's gradient") is True


def test_sampled_gradients_become_the_full_softmax():
    draw = torch.Generator().manual_seed(0)
    bank = normalize(torch.randn(200, 8, dtype=torch.float64, generator=draw), dim=1)
    slots = torch.arange(20)
    query = normalize(bank[:20] + 0.3 * torch.randn(20, 8, dtype=torch.float64, generator=draw), dim=1)
    rows = gradient_cosines(query, slots, bank, 0.2)
    for which in ("nce", "infonce"):
        assert rows[0][which] < 0.9 and 0.98 < rows[-1][which] < 1


def test_imbalance(monkeypatch):
    from coulomb_lab import imbalance

    table = [
        {"what": "SupCon, each of 4 positives", "found": 0.25, "error": 0.0},
        {"what": "x", "found": 0.709, "error": 0.0},
    ]
    monkeypatch.setattr(imbalance, "optimum_table", lambda: table)
    rows = {
        "supcon": {"few": 0.5, "classifier": 0.7, "exponent": -0.5},
        "paco": {"few": 0.8, "classifier": 0.9, "exponent": 0.1},
        "paco-a1": {"few": 0.6, "classifier": 0.8},
    }
    claims, judged = held("imbalance", rows)
    assert set(claims.values()) == {True} and [s["name"] for s in judged["charts"][-1]["series"]][-1].startswith(
        "numerical"
    )
    rows["paco"] = {"few": 0.4, "classifier": 0.9, "exponent": 0.9}
    claims, _ = held("imbalance", rows)
    assert starts(claims, "SupCon's gradients") is False and starts(claims, "PaCo is better") is False


def test_augmentations():
    parts = list(removable_augmentations(PRESETS["digits"]()))
    assert parts == ["affine", "elastic", "jitter", "blur", "noise", "cutout"]
    assert list(removable_augmentations(PRESETS["small-natural"]())) == ["crop", "flip", "jitter", "gray"]
    rows = few(all=0.9, none=0.5) | {f"no-{part}": {"few_5": 0.85} for part in parts} | few(no_jitter=0.6)
    claims, judged = held("augmentations", rows)
    assert set(claims.values()) == {True} and judged["tables"][0]["rows"][0] == ["jitter", "60.0%", "−30.0"]
    rows |= few(no_blur=0.95, no_affine=0.4)
    claims, _ = held("augmentations", rows)
    assert starts(claims, "Every augmentation") is False and starts(claims, "Changes of brightness") is False


def test_batch_size_and_its_memory(monkeypatch):
    from coulomb_lab import negatives

    table = [
        {"views": 2048, "dense": 50.0, "dense_measured": 48.0, "ours": 10.0},
        {"views": 4096, "dense": 200.0, "dense_measured": 199.0, "ours": 15.0},
        {"views": 65536, "dense": 51200.0, "dense_measured": None, "ours": None},
    ]
    monkeypatch.setattr(negatives, "measure_loss_memory", lambda settings: table)
    claims, _ = held("batch-size", few(batch32=0.7, batch512=0.8))
    assert set(claims.values()) == {True}
    assert starts(held("batch-size", few(batch32=0.9, batch512=0.8))[0], "A larger batch") is False
    told = memory_claims(table)[0].measured
    assert (
        "4,096 views: 199 MB measured" in told and "51 GB for the loss alone" in told and "about 82,000 views" in told
    )
    table[1]["ours"] = 60.0
    assert memory_claims(table)[1].holds is False


def test_alignment_and_uniformity(tmp_path):
    record = {
        "asked": {"data": "digits"},
        "figures": {"uniformity": -2.0, "alignment": 0.3, "few_5": 0.8, "course": []},
    }
    write_json(tmp_path / "queue" / "m0.json", record) if (tmp_path / "queue").mkdir() is None else None
    write_json(tmp_path / "queue" / "result.json", {"rows": {}})
    assert list(read_other_runs(tmp_path, "digits")) == ["queue/m0"] and not read_other_runs(tmp_path, "cifar")
    course = [{"epoch": e, "uniformity": -float(e), "alignment": 0.1 * e} for e in range(3)]
    rows = {
        name: {"few_5": 0.6 + 0.05 * k, "uniformity": -float(k), "alignment": 0.1, "course": course}
        for k, name in enumerate(("byol", "supcon", "moco", "a", "b", "simclr"))
    }
    claims, judged = held("alignment-uniformity", rows, Settings(quick=True, out=tmp_path))
    assert set(claims.values()) == {True}
    assert judged["charts"][0]["series"][0]["points"] == [(0.0, 0.0), (-1.0, 0.1), (-2.0, 0.2)]
    assert judged["notes"][1].startswith("1 run of other experiments") and judged["notes"][1].endswith("is included.")
    _, alone = held("alignment-uniformity", rows, Settings(quick=True, out=tmp_path / "new"))
    assert not any("other experiments" in note for note in alone["notes"])
    assert correlation_claim({k: rows[k] for k in list(rows)[:3]}, "few_5", "both", "").holds is None
    turned = {name: {**row, "uniformity": -row["uniformity"]} for name, row in rows.items()}
    assert correlation_claim(turned, "few_5", "uniformity", "").holds is False


def test_two_infonce_equal_to_rounding_but_not_everywhere():
    claims, judged = held("two-infonce", {})
    assert starts(claims, "They are one function") and starts(claims, "coulomb's") and starts(claims, "Equal logits")
    assert starts(claims, "So either") is False
    assert len(judged["tables"][0]["rows"]) == 10


@pytest.fixture(scope="module")
def closed_forms():
    torch.manual_seed(0)
    queries = normalize(torch.randn(40, 6, dtype=torch.float64), dim=1)
    return temperature_limits(queries, normalize(queries + torch.randn(40, 6, dtype=torch.float64), dim=1))


def test_cold_is_the_hardest_negative_alone(closed_forms):
    assert [row["tau"] for row in closed_forms["cold"]] == list(COLD)
    for row in closed_forms["cold"]:
        assert -1e-12 <= row["error"] <= row["bound"] == pytest.approx(row["tau"] * math.log(40))
    assert (
        closed_forms["cold"][-1]["error"] < 1e-4 < closed_forms["cold"][0]["error"]
        and closed_forms["cold"][-1]["limit"] > 0.1
    )
    assert closed_forms["cold"][-1]["cosine"] > 0.999 > closed_forms["cold"][0]["cosine"]


def test_warm_is_the_simple_loss(closed_forms):
    for row in closed_forms["warm"]:
        assert 0 < row["error"] <= row["bound"] <= 0.13 / row["tau"] ** 3
    assert closed_forms["warm"][-1]["error"] < 1e-8
    assert closed_forms["warm"][-1]["cosine"] > 0.99999 > closed_forms["warm"][0]["cosine"]


def test_all_is_shown(closed_forms):
    cold, warm = limit_tables(closed_forms)
    assert len(cold["rows"]) == len(warm["rows"]) == 5 and len(cold["rows"][0]) == len(cold["head"])
