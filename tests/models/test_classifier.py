import json

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.errors import InputError
from coulomb.models import projection_head
from coulomb.models.classifier import Classifier, load_classifier, save_classifier


def linear():
    draw = torch.Generator().manual_seed(0)
    bias = torch.tensor([0.5, -torch.inf, 2.0])
    return Classifier(torch.randn(3, 6, generator=draw), bias, how="by hand")


def cosine():
    draw = torch.Generator().manual_seed(0)
    head = projection_head(6, layers=2, out_dim=4, hidden_dim=5, batch_norm=True)
    head(torch.randn(9, 6, generator=draw))  # changes the running statistics
    options = {"layers": 2, "hidden_dim": 5, "batch_norm": True}
    return Classifier(torch.randn(3, 4, generator=draw), head=head, head_options=options, cosine=True, scale=7.0)


@pytest.mark.parametrize("make", [linear, cosine])
def test_loaded_classifier_is_equal(tmp_path, make):
    classifier, features = make().eval(), torch.randn(5, 6)
    save_classifier(classifier, tmp_path, ["a", "b", "ü"])
    loaded, names = load_classifier(tmp_path, 6)
    torch.testing.assert_close(loaded(features), classifier(features))
    assert names == ["a", "b", "ü"] and loaded.how == classifier.how
    assert not any(p.requires_grad for p in loaded.parameters() if p is loaded.weight or p is loaded.bias)


def test_classifier_formulas():
    features, flat, round_ = torch.randn(5, 6), linear(), cosine().eval()
    torch.testing.assert_close(flat(features)[:, 0], features @ flat.weight[0] + 0.5)
    assert (flat(features).argmax(1) != 1).all()  # −∞ is never predicted
    expected = 7 * normalize(round_.head(features)) @ normalize(round_.weight).T
    torch.testing.assert_close(round_(features), expected)


def test_errors_for_missing_or_damaged_files(tmp_path):
    with pytest.raises(InputError, match="has no classifier"):
        load_classifier(tmp_path, 6)
    save_classifier(linear(), tmp_path, None)
    path = tmp_path / "classifier.json"
    about = json.loads(path.read_text())
    for change, words in (
        ({"format": 9}, "format 9"),
        ({"dim": 5}, "does not match"),
        ({"classes": "x"}, "'classes' is 'x'"),
    ):
        path.write_text(json.dumps(about | change))
        with pytest.raises(InputError, match=words):
            load_classifier(tmp_path, 6)
