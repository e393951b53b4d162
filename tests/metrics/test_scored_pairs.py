"""Correlations of cosines with scores, compared with SciPy."""

import json

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from coulomb.ground.errors import InputError
from coulomb.metrics.scored_pairs import score_correlations, scored_pairs, spearman_differences


def cases(n=300, noise=0.3, seed=0):
    draw = np.random.default_rng(seed)
    first, second = draw.normal(size=(2, n, 6))
    cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    scores = np.round(5 * np.clip(cosine**3 + noise * draw.normal(size=n), -1, 1))  # with ties
    return first.astype(np.float32), second.astype(np.float32), scores, cosine


def test_correlations_are_those_of_scipy():
    first, second, scores, cosine = cases()
    found = scored_pairs(first, 3 * second, scores)
    assert found["spearman"]["value"] == pytest.approx(spearmanr(cosine, scores).statistic, abs=1e-5)
    assert found["pearson"]["value"] == pytest.approx(pearsonr(cosine, scores).statistic, abs=1e-5)
    for name in ("spearman", "pearson"):
        row = found[name]
        assert row["low"] < row["value"] < row["high"]
    # Fisher's interval of Pearson's correlation of normal values is about as wide.
    half = 1.96 / np.sqrt(len(scores) - 3)
    center = np.arctanh(found["pearson"]["value"])
    width = np.tanh(center + half) - np.tanh(center - half)
    assert 0.5 * width < found["pearson"]["high"] - found["pearson"]["low"] < 1.5 * width
    assert json.loads(json.dumps(found)) == found == scored_pairs(first, 3 * second, scores)


def test_intervals_cover_the_correlation_of_many_pairs():
    *_, scores, cosine = cases(200_000)
    truth = pearsonr(cosine, scores).statistic
    found = [scored_pairs(*cases(80, seed=seed)[:3])["pearson"] for seed in range(1, 41)]
    assert sum(row["low"] <= truth <= row["high"] for row in found) >= 33


def test_pairs_without_a_score_are_left_out_and_counted():
    first, second, scores, _ = cases()
    scores[:20] = np.nan
    found = scored_pairs(first, second, scores)
    assert found["pairs"] == 280 and found["pairs_left_out"] == 20
    assert found["spearman"]["value"] == scored_pairs(first[20:], second[20:], scores[20:])["spearman"]["value"]


def test_what_has_no_correlation_is_refused():
    first, second, scores, _ = cases(10)
    with pytest.raises(InputError, match="scores: all are equal"):
        scored_pairs(first, second, np.ones(10))
    with pytest.raises(InputError, match="cosines: all are equal"):
        scored_pairs(first, first, scores)
    with pytest.raises(InputError, match="2 are known"):
        scored_pairs(first[:2], second[:2], scores[:2])
    with pytest.raises(InputError, match=r"scores \[9\]"):
        scored_pairs(first, second, scores[:9])


def test_similarities_of_any_kind_are_correlated():
    *_, scores, cosine = cases()
    found = score_correlations(7 + 3 * cosine, scores)
    assert found["spearman"]["value"] == pytest.approx(spearmanr(cosine, scores).statistic, abs=1e-9)
    with pytest.raises(InputError, match="similarities: all are equal"):
        score_correlations(np.ones(300), scores)


def test_differences_are_paired():
    *_, scores, cosine = cases()
    draw = np.random.default_rng(1)
    worse = cosine + 0.3 * draw.normal(size=len(cosine))
    ours, theirs, differences = spearman_differences(cosine, worse, scores)
    assert ours == pytest.approx(spearmanr(cosine, scores).statistic, abs=1e-9)
    assert theirs == pytest.approx(spearmanr(worse, scores).statistic, abs=1e-9)
    assert differences.shape == (2000,) and differences.mean() == pytest.approx(ours - theirs, abs=0.01)
    apart = [score_correlations(each, scores)["spearman"] for each in (cosine, worse)]
    unpaired = np.hypot(*(row["high"] - row["low"] for row in apart)) / (2 * 1.96)
    assert differences.std() < 0.8 * unpaired  # because both rise and fall with the same pairs
    assert np.abs(spearman_differences(cosine, 2 * cosine, scores)[2]).max() < 1e-12
