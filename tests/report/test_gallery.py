import numpy as np

from coulomb.report.gallery import draw_queries, nearest_neighbors, neighbor_agreement


def test_nearest_is_by_angle_not_by_length():
    features = np.array([[1, 0], [100, 1], [0, 1], [0.1, 5], [-1, 0]], dtype=np.float32)
    assert nearest_neighbors(features, k=1)[:4, 0].tolist() == [1, 0, 3, 2]


def test_nearest_agrees_with_a_plain_loop():
    x = np.random.default_rng(0).standard_normal((40, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for i, found in enumerate(nearest_neighbors(x, k=8)):
        others = sorted((j for j in range(40) if j != i), key=lambda j: -float(unit[i] @ unit[j]))
        assert found.tolist() == others[:8]


def test_fewer_images_than_neighbors():
    assert nearest_neighbors(np.eye(3), k=8).shape == (3, 2)


def test_queries_come_from_every_class_and_unlabeled_last():
    labels = np.array([0] * 500 + [1] * 3 + [2] * 2 + [-1] * 100)
    drawn = draw_queries(labels, 6, seed=1)
    assert sorted(labels[drawn].tolist()) == [0, 0, 1, 1, 2, 2]
    assert drawn == draw_queries(labels, 6, seed=1)
    assert drawn != draw_queries(labels, 6, seed=2)
    assert len(draw_queries(np.full(5, -1), 12)) == 5


def test_agreement_counts_only_pairs_whose_labels_are_known():
    neighbors = np.array([[1, 2], [0, 2], [0, 1]])
    found = neighbor_agreement(neighbors, np.array([0, 0, -1]))
    assert (found.share, found.pairs) == (1.0, 2)
    assert neighbor_agreement(neighbors, np.full(3, -1)) is None
