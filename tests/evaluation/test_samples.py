"""The sampled images of a run: neighbors, clusters, maps and queries."""

import json

import numpy as np

from coulomb.evaluation.samples import (
    describe_samples,
    draw_queries,
    find_clusters,
    nearest_neighbors,
    neighbor_agreement,
)


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
    assert len(draw_queries(np.full(5, -1), 12, seed=0)) == 5


def test_agreement_counts_only_pairs_whose_labels_are_known():
    neighbors = np.array([[1, 2], [0, 2], [0, 1]])
    assert neighbor_agreement(neighbors, np.array([0, 0, -1])) == 1.0
    assert neighbor_agreement(neighbors, np.array([0, 1, 1])) == 1 / 3
    assert neighbor_agreement(neighbors, np.full(3, -1)) is None


def three_blobs(n=30):
    rng = np.random.default_rng(0)
    return np.repeat(np.eye(3, 8), n // 3, axis=0) + 0.05 * rng.standard_normal((n, 8))


def test_clusters_are_the_blobs_the_largest_first():
    x = three_blobs()[4:]
    found = find_clusters(x, np.repeat([0, 1, 2], 10)[4:], seed=0)
    assert found[:6].tolist() == [2] * 6
    assert set(found[6:16]) | set(found[16:]) == {0, 1} and len(set(found[6:16])) == len(set(found[16:])) == 1


def test_equal_features_have_no_clusters():
    assert find_clusters(np.ones((30, 8)), np.full(30, -1), seed=0) is None


def test_a_description_is_json_and_its_arrays_fit():
    arrays, description = describe_samples(three_blobs(60), np.repeat([0, 1, 2], 20), held_out=40, seed=3)
    assert json.loads(json.dumps(description)) == description
    assert (description["images"], description["held_out"], description["agreement"]) == (60, 40, 1.0)
    assert 1 < description["effective_rank"] < 8
    assert arrays["neighbors"].shape == (60, 8) and arrays["neighbors"].max() < 40  # held-out images only
    assert max(description["queries"]) < 40
    for each in description["maps"]:
        assert arrays[f"map_{each['key']}"].shape == (60, 2)


def test_a_single_held_out_image_has_no_neighbors():
    assert describe_samples(np.eye(3), np.zeros(3), held_out=1, seed=0) == ({}, {"images": 3, "held_out": 1})
