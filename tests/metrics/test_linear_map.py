"""The linear map between two feature sets, compared with scikit-learn and with its definition."""

import json

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from coulomb.ground.errors import InputError
from coulomb.metrics import linear_map as module
from coulomb.metrics.linear_map import STRENGTHS, WAYS, fit_linear_map, unit_features
from coulomb.metrics.matching import pair_retrieval
from pair_cases import two_views


def mean_mrr(first, second):
    rows = np.arange(len(first))
    return pair_retrieval(first, second, (rows, rows))["mean"]["mrr"]


def centered(x):
    unit = unit_features(x)
    return unit - unit.mean(0), unit.mean(0)


def test_unseen_pairs_are_retrieved_by_the_map():
    (x, y), _ = two_views(700)
    fitted = fit_linear_map(x[:500], y[:500])
    mapped = fitted.embed(x[500:], y[500:])
    width = min(x.shape[1], y.shape[1])
    assert mean_mrr(*mapped) > 0.7
    assert mean_mrr(x[500:, :width], y[500:, :width]) < 0.1
    scores = fitted.scores
    assert set(scores) == set(WAYS) and set(scores[WAYS[0]]) == {f"{each:g}" for each in STRENGTHS}
    assert scores[fitted.way][f"{fitted.strength:g}"] == max(max(row.values()) for row in scores.values())
    assert fitted.rows == 500 and fitted.left_out == 0
    json.dumps(fitted.protocol())


@pytest.mark.parametrize("rows", [200, 12])  # more rows than features, and fewer
@pytest.mark.parametrize("way", WAYS[:2])
def test_ridge_is_that_of_scikit_learn(monkeypatch, rows, way):
    (x, y), _ = two_views(rows, widths=(20, 15))
    monkeypatch.setattr(module, "_choose", lambda *_: ((way, 0.1), {}))
    fitted = fit_linear_map(x, y)
    source, target = (x, y) if way == WAYS[0] else (y, x)
    (a, mean), (b, other) = centered(source), centered(target)
    ridge = Ridge(alpha=0.1 * (a**2).sum() / a.shape[1], fit_intercept=False, solver="svd").fit(a, b)
    (new_x, new_y), _ = two_views(30, widths=(20, 15), seed=5)
    sides = fitted.embed(new_x, new_y) if way == WAYS[0] else fitted.embed(new_x, new_y)[::-1]
    new_source, new_target = (new_x, new_y) if way == WAYS[0] else (new_y, new_x)
    np.testing.assert_allclose(sides[0], ridge.predict(unit_features(new_source) - mean), atol=1e-9)
    np.testing.assert_allclose(sides[1], unit_features(new_target) - other, atol=1e-12)


@pytest.mark.parametrize("rows", [300, 12])
def test_canonical_correlations_are_the_definition(monkeypatch, rows):
    (x, y), _ = two_views(rows)
    monkeypatch.setattr(module, "_choose", lambda *_: ((WAYS[2], 0.05), {}))
    a, b = fit_linear_map(x, y).embed(x, y)
    whitened = []
    for side in (x, y):
        rows_, _ = centered(side)
        gram = rows_.T @ rows_ + 0.05 * (rows_**2).sum() / rows_.shape[1] * np.eye(rows_.shape[1])
        values, axes = np.linalg.eigh(gram)
        whitened.append(rows_ @ (axes / np.sqrt(values)) @ axes.T)
    u, s, vt = np.linalg.svd(whitened[0].T @ whitened[1], full_matrices=False)
    expected = whitened[0] @ u * s, whitened[1] @ vt.T * s
    np.testing.assert_allclose(a @ b.T, expected[0] @ expected[1].T, atol=1e-9)  # up to the signs of dimensions
    np.testing.assert_allclose(a.T @ b, np.diag(s[: a.shape[1]] ** 3), atol=1e-9)


def test_lengths_do_not_matter_and_more_features_than_rows_are_stable():
    (x, y), _ = two_views(60, widths=(300, 200))
    x[:, 7], x[3] = 0, 0  # a constant feature and a row of zeros
    fitted = fit_linear_map(x, y)
    sides = fitted.embed(x, y)
    assert all(np.isfinite(each).all() for each in sides)
    scaled = fit_linear_map(8 * x, y / 4).embed(8 * x, y / 4)
    for one, other in zip(sides, scaled, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    constant = fit_linear_map(np.ones((20, 4), np.float32), y[:20])
    assert all(np.isfinite(each).all() for each in constant.embed(np.ones((5, 4), np.float32), y[:5]))


def test_choice_holds_whole_groups_out(monkeypatch):
    """Five rows per picture: the held-out rows share no picture with the rows of the fit."""
    (x, y), _ = two_views(40)
    of = np.repeat(np.arange(40), 5)
    ids = np.stack([of, np.arange(200)], axis=1)
    seen = []
    moments = module._moments
    monkeypatch.setattr(module, "_moments", lambda a, b, rows: seen.append(rows) or moments(a, b, rows))
    fit_linear_map(x[of], np.repeat(y, 5, axis=0), ids)
    fit, everything = seen
    assert len(everything) == 200 and len(fit) == 160
    assert len(set(of[fit])) == 32  # whole pictures
    seen.clear()
    fit_linear_map(np.repeat(y, 5, axis=0), x[of], ids[:, ::-1])
    assert len(set(of[seen[0]])) == 32


def test_few_and_many_rows(monkeypatch):
    (x, y), _ = two_views(120)
    few = fit_linear_map(x[:6], y[:6])
    assert few.scores == {} and few.protocol()["chosen_on"].startswith("nothing")
    one_caption = fit_linear_map(x[:20], y[:20], np.stack([np.arange(20), np.zeros(20, int)], axis=1))
    assert one_caption.scores == {}
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    many = fit_linear_map(x, y)
    assert (many.rows, many.left_out) == (50, 70)
    same = fit_linear_map(x, y).embed(x, y)[0]
    assert np.array_equal(many.embed(x, y)[0], same)


def test_rows_that_do_not_match_are_refused():
    (x, y), _ = two_views(30)
    with pytest.raises(InputError, match=r"second \[29, 15\]"):
        fit_linear_map(x, y[:29])
    with pytest.raises(InputError, match="NaN"):
        fit_linear_map(x * np.nan, y)
