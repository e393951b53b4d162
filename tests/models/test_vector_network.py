import json

import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.models import build_vector_encoder, load_encoder, save_encoder
from coulomb.models.saving import random_encoder
from coulomb.models.tuning import Tune

VECTORS = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))


def test_standardization_is_inside():
    mean, std = [float(each) for each in range(7)], [0.5 + each for each in range(7)]
    network = build_vector_encoder("identity", dim=7, mean=mean, std=std)
    torch.testing.assert_close(network(VECTORS), (VECTORS - torch.tensor(mean)) / torch.tensor(std))
    assert network.feature_dim == 7 and network.column == "vector"


def test_seeded_weights_without_changing_the_global_generator():
    state = torch.get_rng_state()
    first, again, other = (build_vector_encoder("mlp", dim=7, width=16, seed=seed)(VECTORS) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.shape == (6, 16) and torch.equal(first, again) and not torch.allclose(first, other)


@pytest.mark.parametrize("name", ["mlp", "identity"])
def test_saving_and_loading_is_exact(name, tmp_path):
    network = build_vector_encoder(name, dim=7, width=16, mean=VECTORS.mean(0).tolist(), std=VECTORS.std(0).tolist())
    network.attach_adapter({"kind": "linear", "in": network.feature_dim, "out": 3})
    save_encoder(network, tmp_path)
    loaded = load_encoder(tmp_path)
    assert torch.equal(loaded(VECTORS), network.eval()(VECTORS)) and loaded.config == network.config
    assert torch.equal(random_encoder(tmp_path, seed=4).standardize.std, network.standardize.std)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 6}, "shape"),
        ({"std": [0.0] * 7}, "std is"),
        ({"mean": [1.0] * 7}, "mean is"),
        ({"options": {}}, "'width'"),
        ({"name": "tree"}, "must be one of mlp, identity"),
        ({"options": {"width": 10**9}}, "width=1000000000"),
    ],
)
def test_damaged_descriptions_are_refused(change, message, tmp_path):
    save_encoder(build_vector_encoder("mlp", dim=7, width=16), tmp_path)
    path = tmp_path / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


@pytest.mark.parametrize("cells", [VECTORS[:, :5], VECTORS[0], VECTORS.numpy(), "text"])
def test_something_else_than_vectors_is_refused(cells):
    with pytest.raises(InputError, match=r"mlp takes a tensor \[B, 7\]"):
        build_vector_encoder("mlp", dim=7)(cells)


def test_tuning():
    network = build_vector_encoder("mlp", dim=7, width=16)
    Tune.parse("none").apply(network)
    assert network.frozen and not any(parameter.requires_grad for parameter in network.backbone.parameters())
