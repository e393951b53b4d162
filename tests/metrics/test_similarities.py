import json

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.class_structure import neighborhood_purity, tolerance
from coulomb.metrics.hardness import hardness, temperature_sweep
from coulomb.metrics.similarities import separation, similarity_histogram, view_similarities
from metrics_oracles import cosines, normal, random_labels, two_views

CASES = [(2, 3, 0), (17, 4, 1), (60, 9, 2)]


@pytest.mark.parametrize(("n", "d", "seed"), CASES)
def test_mean_cosines_are_the_loop(n, d, seed):
    x, y = two_views(n, d, seed)
    found, table = view_similarities(x, y), cosines(x, y)
    off = ~np.eye(n, dtype=bool)
    assert found.positive == pytest.approx(np.diag(table).mean(), abs=1e-12)
    assert found.negative == pytest.approx(table[off].mean(), abs=1e-12)
    assert found.hardest == pytest.approx(np.where(off, table, -9).max(1).mean(), abs=1e-12)


@pytest.mark.parametrize(("n", "d", "seed"), CASES)
def test_histograms_match_numpy(strip, n, d, seed):
    x, y = two_views(n, d, seed)
    labels, table, off = random_labels(n, 3, seed), cosines(x, y), ~np.eye(n, dtype=bool)
    alike = (labels[:, None] == labels).numpy() & (labels >= 0).numpy()[:, None] & off
    found = similarity_histogram(x, y, labels, bins=40)
    wanted = {
        "positive": np.diag(table),
        "negative": table[off],
        "hardest": np.where(off, table, -9).max(1),
        "same_class": table[alike],
    }
    for name, values in wanted.items():
        assert getattr(found, name) == np.histogram(values, 40, (-1, 1))[0].tolist(), name
    assert found.edges == pytest.approx(np.linspace(-1, 1, 41))
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    assert similarity_histogram(x, y).same_class is None


def test_cosine_of_one_is_in_the_last_bin():
    x = torch.ones(3, 7)  # 1 + 1e-7 in fp32
    found = similarity_histogram(x, x, bins=4)
    assert (found.positive, found.negative, found.hardest) == ([0, 0, 0, 3], [0, 0, 0, 6], [0, 0, 0, 3])


@pytest.mark.parametrize(("n", "d", "seed"), CASES)
def test_separation_is_the_double_loop(strip, n, d, seed):
    x, y = two_views(n, d, seed, noise=2.0)
    table, off = cosines(x, y), ~np.eye(n, dtype=bool)
    positives, negatives = np.diag(table)[:, None], table[off][None]
    wins = (positives > negatives + 1e-6) + 0.5 * (abs(positives - negatives) <= 1e-6)
    assert separation(x, y) == pytest.approx(wins.mean(), abs=1e-12)


def test_separation_of_extreme_cases():
    x = normal(200, 16)
    assert separation(x, x) == 1.0
    assert separation(torch.eye(4), torch.eye(4).roll(1, 0)) == pytest.approx(0.5 * 8 / 12)  # positives tie, or lose
    collapsed = torch.ones(300, 5) + 1e-4 * normal(300, 5).float()  # cosines of 1, but for fp32
    assert separation(collapsed, collapsed.flip(0)) == 0.5  # rounding decides nothing
    assert separation(x, normal(200, 16, 5)) == pytest.approx(0.5, abs=0.06)


def about_labels(diagnostic):
    return lambda x: diagnostic(x, torch.arange(len(x)) % 7)


STREAMING = {
    "view_similarities": lambda x: view_similarities(x, x),
    "similarity_histogram": lambda x: similarity_histogram(x, x),
    "separation": lambda x: separation(x, x),
    "hardness": lambda x: hardness(x, 0.1),
    "temperature_sweep": lambda x: temperature_sweep(x, (0.1, 0.5)),
    "tolerance": about_labels(tolerance),
    "neighborhood_purity": about_labels(neighborhood_purity),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMING)
def test_no_matrix_of_all_pairs(name, monkeypatch):
    from torch.profiler import ProfilerActivity, profile

    monkeypatch.setattr("coulomb.metrics.cosines.STRIP", 2**16)
    x = normal(2000, 8).float()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        STREAMING[name](x)
    assert max(event.self_cpu_memory_usage for event in seen.events()) < 2000 * 2000 * 4 / 4


@pytest.mark.parametrize("diagnostic", [view_similarities, similarity_histogram, separation])
def test_bad_input(diagnostic):
    for bad in (torch.rand(1, 3), torch.rand(4), torch.zeros(4, 2, dtype=torch.long)):
        with pytest.raises(InputError, match=r"\[n, D\]"):
            diagnostic(bad, bad)
    with pytest.raises(InputError, match="other view"):
        diagnostic(torch.rand(4, 3), torch.rand(5, 3))
    with pytest.raises(InputError, match="diverged"):
        diagnostic(torch.full((3, 2), torch.nan), torch.rand(3, 2))


def test_bad_bins_and_labels():
    x = torch.rand(4, 3)
    with pytest.raises(InputError, match="bins=0"):
        similarity_histogram(x, x, bins=0)
    with pytest.raises(InputError, match="labels must be 4 integers"):
        similarity_histogram(x, x, torch.rand(4))
