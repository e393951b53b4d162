import json

import pytest
import torch

import coulomb
from coulomb.metrics.rank import lidar
from coulomb.training.watching.live_evaluation import view_geometry

FIGURES = {
    "alignment", "uniformity", "embedding_rank", "embedding_std", "embedding_norm", "view_retrieval", "lidar",
    "positive_similarity", "negative_similarity", "hardest_similarity", "separation", "spectrum", "similarity_histogram",
}  # fmt: skip
BY_LABEL = {"tolerance", "purity", "false_negative_rate"}


def test_live_lines_have_all_values(digit_tree, quick, tmp_path):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, knn_every=1, **quick)
    looked = [line for line in run.metrics if "alignment" in line]
    assert [line["epoch"] for line in looked] == [0, 1, 2, 3]
    for line in looked:
        assert line.keys() >= FIGURES | BY_LABEL
        histogram = line["similarity_histogram"]
        n = sum(histogram["positive"])
        assert sum(histogram["hardest"]) == n
        assert sum(histogram["negative"]) == n * (n - 1)
        assert sum(histogram["same_class"]) / sum(histogram["negative"]) == pytest.approx(line["false_negative_rate"])
        assert [len(histogram[name]) for name in ("edges", "positive", "same_class")] == [41, 40, 40]
        assert line["positive_similarity"] == pytest.approx(1 - line["alignment"] / 2, abs=1e-5)
        assert line["negative_similarity"] < line["hardest_similarity"]
        assert line["spectrum"][0] == 1


def test_without_labels(digit_tree, quick, tmp_path):
    options = quick | {"labels": "none", "epochs": 1, "knn_every": 1}
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **options)
    line = next(line for line in run.metrics if "alignment" in line)
    assert line.keys() >= FIGURES
    assert not line.keys() & BY_LABEL
    assert line["similarity_histogram"]["same_class"] is None


def test_norms_are_of_the_heads_output():
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    found = view_geometry(x, 3 * x, None)
    assert found["embedding_norm"] == pytest.approx((5 + 1 + 15 + 3) / 4)
    assert found["positive_similarity"] == pytest.approx(1)
    assert json.dumps(found)


def test_lidar_is_of_the_heads_output_with_two_views():
    x, y = torch.randn(2, 20, 5, generator=torch.Generator().manual_seed(0))
    assert view_geometry(x, y, None)["lidar"] == lidar(torch.stack([x, y], 1)) != lidar(torch.stack([2 * x, 2 * y], 1))


def test_one_image_has_no_geometry():
    assert view_geometry(torch.rand(1, 4), torch.rand(1, 4), None) == {}
