import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from coulomb.ground.errors import InputError
from coulomb.index import cluster
from coulomb.index.cluster import hdbscan, kmeans
from curation_cases import classes_of, cosine_table, normal


@pytest.mark.parametrize("find", [lambda x: kmeans(x, 4), lambda x: hdbscan(x, 10)], ids=["kmeans", "hdbscan"])
def test_separate_classes_are_found_largest_first(find):
    x, y = classes_of(300, 4, noise=0.1)
    found = find(x)
    assert adjusted_rand_score(y, found.cluster) > 0.99
    counts = np.bincount(found.cluster[found.cluster >= 0])
    assert len(counts) == len(found.centers) == 4 and (np.diff(counts) <= 0).all()
    own = cosine_table(x, found.centers)[np.arange(300), found.cluster]
    inside = found.cluster >= 0
    np.testing.assert_allclose(found.similarity[inside], own[inside], atol=1e-5)
    typical = found.typical(0, 5)
    assert found.similarity[typical[0]] == found.similarity[found.cluster == 0].max()


def test_every_row_belongs_to_the_nearest_center_also_if_it_was_not_drawn(monkeypatch):
    monkeypatch.setattr(cluster, "FITTED_ROWS", 50)
    x = normal(300, 6)
    found = kmeans(x, 5)
    np.testing.assert_array_equal(found.cluster, cosine_table(x, found.centers).argmax(1))


def test_hdbscan_leaves_most_strangers_out():
    x, _ = classes_of(200, 3, dim=48, noise=0.1)
    x[:5] = normal(5, 48, seed=8) / 7
    found = hdbscan(x)
    assert (found.cluster[:5] == -1).sum() >= 3 and (found.cluster[5:] >= 0).mean() > 0.8
    assert (found.similarity[found.cluster < 0] == 0).all()


def test_fewer_different_rows_than_clusters():
    found = kmeans(np.repeat(np.eye(3, dtype=np.float32), 4, 0), 6)
    assert len(found.centers) == 3 and set(found.cluster.tolist()) == {0, 1, 2}


def test_the_same_seed_gives_the_same_clusters():
    x = normal(200, 6)
    np.testing.assert_array_equal(kmeans(x, 7, seed=2).cluster, kmeans(x, 7, seed=2).cluster)


def test_bad_input(monkeypatch):
    x = normal(20, 3)
    for number in (0, 21):
        with pytest.raises(InputError, match=f"number={number}"):
            kmeans(x, number)
    for least in (1, 21):
        with pytest.raises(InputError, match=f"least={least}"):
            hdbscan(x, least)
    monkeypatch.setattr(cluster, "MOST_HDBSCAN", 19)
    with pytest.raises(InputError, match="give a number"):
        hdbscan(x)
