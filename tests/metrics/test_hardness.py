import json
import math

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.hardness import hardness, hardness_at, hardness_of, temperature_sweep
from metrics_oracles import cosines, normal, random_labels, two_views

TAUS = (0.01, 0.1, 0.5, 5.0)


def oracle(table, counts, tau, alike=None, labeled=None):
    """Every figure by a loop over anchors."""
    rows = []
    for i in range(len(table)):
        s = table[i][counts[i]] / tau
        if not len(s):
            continue
        r = np.exp(s - s.max())
        r /= r.sum()
        entropy = -sum(p * math.log(p) for p in r if p > 0)
        ordered = np.sort(r)[::-1]
        top1pct, top10pct = (ordered[: math.ceil(len(r) * percent / 100)].sum() for percent in (1, 10))
        false = r[alike[i][counts[i]]].sum() if alike is not None and labeled[i] else math.nan
        rows.append([len(r), entropy, math.exp(entropy), ordered[0], top1pct, top10pct, false])
    return len(rows), np.nanmean(rows, axis=0)


def agrees(found, wanted, rel=1e-9):
    anchors, means = wanted
    assert found.anchors == anchors
    names = ("negatives", "entropy", "effective_negatives", "top1", "top1pct", "top10pct", "same_class")
    assert [getattr(found, name) for name in names] == pytest.approx(means, rel=rel)


@pytest.mark.parametrize("tau", TAUS)
def test_hardness_of_two_views(strip, tau):
    x = torch.cat(two_views(30, 6))
    ids, labels = torch.arange(30).repeat(2), random_labels(30, 3).repeat(2)
    known = labels.numpy()
    alike = (known[:, None] == known) & (known >= 0)[:, None]
    counts = (ids[:, None] != ids).numpy()
    wanted = oracle(cosines(x, x), counts, tau, alike, known >= 0)
    agrees(hardness(x, tau, ids=ids, labels=labels), wanted)
    agrees(hardness(x.float(), tau, ids=ids, labels=labels), wanted, rel=1e-3)
    found = hardness_of(torch.from_numpy(cosines(x, x)), tau, torch.from_numpy(counts), labels, labels)
    agrees(found, wanted)


def test_hardness_against_a_queue(strip):
    x, keys = normal(20, 5), normal(333, 5, 1)
    ids, key_ids = torch.arange(20), torch.arange(333) % 40 - 1  # some keys are of the queries' own images
    labels, key_labels = random_labels(20, 4), random_labels(333, 4, 1)
    alike = (labels[:, None] == key_labels).numpy() & (labels >= 0).numpy()[:, None]
    found = hardness_at(x, TAUS, keys, ids=ids, key_ids=key_ids, labels=labels, key_labels=key_labels)
    for tau, each in zip(TAUS, found, strict=True):
        wanted = oracle(cosines(x, keys), (ids[:, None] != key_ids).numpy(), tau, alike, (labels >= 0).numpy())
        agrees(each, wanted)
    plain = hardness(x, 0.2, keys)
    assert plain.negatives == 333
    assert plain.same_class is None


def test_hardness_at_extreme_temperatures():
    x = normal(50, 8)
    hot, cold = hardness(x, 1e4), hardness(x, 1e-4)
    assert hot.effective_negatives == pytest.approx(49, rel=1e-3)
    assert (hot.top1, hot.top10pct) == pytest.approx((1 / 49, 5 / 49), rel=1e-3)
    assert (cold.effective_negatives, cold.top1, cold.top10pct) == pytest.approx((1, 1, 1), abs=0.05)
    assert hardness(torch.ones(9, 4), 0.1).effective_negatives == pytest.approx(8)  # collapse: all alike
    assert hardness(x, 0.1, ids=torch.zeros(50, dtype=torch.long)) is None  # all are of one image
    assert json.dumps(hot.as_dict())


def test_single_negative_has_the_whole_share():
    found = hardness(torch.eye(2), 0.1)
    assert (found.negatives, found.effective_negatives, found.top1, found.top10pct) == (1, 1, 1, 1)


def test_suggestion_for_normal_cosines():
    """In 1,024 dimensions cosines are normal, of deviation 1/32: a tenth carries half at τ = deviation/1.2816."""
    found = temperature_sweep(normal(1500, 1024).float(), (0.02, 0.023, 0.026, 0.03))
    assert found.suggestion == pytest.approx(1 / 32 / 1.2816, rel=0.05)
    assert "tenth" in found.why
    shares = [point.top10pct for point in found.curve]
    assert shares == sorted(shares, reverse=True)
    assert json.dumps(found.as_dict())


def test_no_suggestion_outside_the_range():
    assert temperature_sweep(torch.ones(50, 4)).suggestion is None
    assert "all alike" in temperature_sweep(torch.ones(50, 4)).why
    assert "few" in temperature_sweep(normal(10, 4)).why
    pairs = normal(100, 400).repeat(2, 1)  # each has a twin among its negatives
    assert "much more similar" in temperature_sweep(pairs, (0.01, 0.02)).why


def test_bad_input():
    x = normal(5, 3)
    for tau in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="temperature"):
            hardness(x, tau)
    with pytest.raises(InputError, match="dimensions"):
        hardness(x, 0.1, normal(5, 4))
    with pytest.raises(InputError, match="both"):
        hardness(x, 0.1, x, ids=torch.arange(5))
    with pytest.raises(InputError, match="ids must be 5 integers"):
        hardness(x, 0.1, ids=torch.rand(5))
    with pytest.raises(InputError, match="ascending"):
        temperature_sweep(x, (0.2, 0.1))
