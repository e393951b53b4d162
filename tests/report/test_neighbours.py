import numpy as np
import pytest

from coulomb.report.feature_map import NEIGHBOURS_FROM, layouts
from coulomb.report.gallery import agreement, draw_queries, nearest


def test_nearest_is_by_angle_not_by_length():
    features = np.array([[1, 0], [100, 1], [0, 1], [0.1, 5], [-1, 0]], dtype=np.float32)
    assert nearest(features, k=1)[:4, 0].tolist() == [1, 0, 3, 2]


def test_nearest_agrees_with_a_plain_loop():
    x = np.random.default_rng(0).standard_normal((40, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for i, found in enumerate(nearest(x, k=8)):
        others = sorted((j for j in range(40) if j != i), key=lambda j: -float(unit[i] @ unit[j]))
        assert found.tolist() == others[:8]


def test_fewer_images_than_neighbours():
    assert nearest(np.eye(3), k=8).shape == (3, 2)


def test_queries_come_from_every_class_and_unlabelled_last():
    labels = np.array([0] * 500 + [1] * 3 + [2] * 2 + [-1] * 100)
    drawn = draw_queries(labels, 6, seed=1)
    assert sorted(labels[drawn].tolist()) == [0, 0, 1, 1, 2, 2]
    assert drawn == draw_queries(labels, 6, seed=1)
    assert drawn != draw_queries(labels, 6, seed=2)
    assert len(draw_queries(np.full(5, -1), 12)) == 5


def test_agreement_counts_only_pairs_whose_labels_are_known():
    neighbours = np.array([[1, 2], [0, 2], [0, 1]])
    found = agreement(neighbours, np.array([0, 0, -1]))
    assert (found.share, found.pairs) == (1.0, 2)
    assert agreement(neighbours, np.full(3, -1)) is None


def test_pca_keeps_distances_of_planar_data_and_is_reproducible():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi / 2, 20)
    x = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(20)])
    (pca,) = layouts(x)
    pairs = (
        np.linalg.norm(x[:, None] - x[None], axis=-1),
        np.linalg.norm(pca.places[:, None] - pca.places[None], axis=-1),
    )
    ratio = pairs[1][pairs[0] > 0.2] / pairs[0][pairs[0] > 0.2]
    assert ratio.std() / ratio.mean() < 1e-2
    assert "100%" in pca.caution
    assert np.array_equal(pca.places, layouts(x)[0].places)


def test_tsne_comes_first_where_it_is_possible_and_separates_clusters():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(10)[:3], 15, axis=0)
    maps = layouts(centres + 0.02 * rng.standard_normal(centres.shape))
    assert [found.key for found in maps] == ["tsne", "pca"]
    places = maps[0].places
    assert places.min() >= 3
    assert places.max() <= 97
    groups = places.reshape(3, 15, 2)
    middle = groups.mean(1)
    spread = np.linalg.norm(groups - middle[:, None], axis=-1).max()
    gaps = np.linalg.norm(middle[:, None] - middle[None], axis=-1)[np.triu_indices(3, 1)]
    assert gaps.min() > spread


@pytest.mark.parametrize("n", [1, 2, 3, NEIGHBOURS_FROM - 1])
def test_few_images_have_pca_alone(n):
    maps = layouts(np.random.default_rng(0).standard_normal((n, 4)))
    assert [found.key for found in maps] == (["pca"] if n > 1 else [])


def test_identical_features_have_no_map():
    assert layouts(np.ones((50, 4))) == []
