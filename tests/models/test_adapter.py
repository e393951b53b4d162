import copy
import json

import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder, wrap_encoder
from coulomb.models.adapter import set_whitening

WHITENING = {"kind": "whitening", "in": 16, "out": 6}
LINEAR = {"kind": "linear", "in": 16, "out": 16}
ALL = (WHITENING, LINEAR)


def small(seed=3):
    """Returns a ConvNet with 16 features and running statistics that are not the initial ones."""
    encoder = build_encoder("convnet", channels=3, image_size=8, seed=seed, width=2)
    encoder(torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    return encoder


WEIGHT, BIAS = (torch.randn(*size, generator=torch.Generator().manual_seed(1)).double() for size in ((6, 16), (6,)))


def adapted(description, encoder=None):
    encoder = encoder or small()
    encoder.attach_adapter(description)
    if description["out"] == 6:
        set_whitening(encoder.adapter, WEIGHT, BIAS)
    return encoder


def test_without_adapter_nothing_changes():
    encoder = small()
    assert encoder.adapter is None and "adapter" not in encoder.config
    assert not any(name.startswith("adapter") for name in encoder.state_dict())


@pytest.mark.parametrize("description", ALL)
def test_an_adapter_maps_the_features_of_the_backbone(description):
    plain, encoder = small().eval(), adapted(description).eval()
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(encoder.backbone_features(images), plain(images))
    assert torch.equal(encoder(images), encoder.adapter(plain(images)))
    assert encoder.feature_dim == description["out"] == encoder(images).shape[1]


def test_whitening_is_the_map_it_is_given():
    features = torch.randn(5, 16)
    torch.testing.assert_close(adapted(WHITENING).adapter(features), features @ WEIGHT.float().T + BIAS.float())


def test_a_linear_adapter_begins_as_the_identity_bit_for_bit():
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(adapted(LINEAR).eval()(images), small().eval()(images))


@pytest.mark.parametrize("description", ALL)
def test_adapters_are_saved_with_the_encoder(description, tmp_path):
    encoder = adapted(description)
    encoder(torch.rand(8, 3, 8, 8))
    save_encoder(encoder.eval(), tmp_path)
    assert json.loads((tmp_path / "encoder.json").read_text())["adapter"] == description
    loaded = load_encoder(tmp_path)
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(loaded(images), encoder(images))
    assert loaded.feature_dim == description["out"] and not loaded.frozen
    assert all(parameter.device.type == "cpu" for parameter in loaded.parameters())


def test_adapters_of_own_modules_are_loaded(tmp_path):
    def module():
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 16))

    encoder = adapted(WHITENING, wrap_encoder(module(), channels=3, image_size=4))
    encoder(torch.rand(8, 3, 4, 4))
    save_encoder(encoder.eval(), tmp_path)
    images = torch.rand(4, 3, 4, 4)
    assert torch.equal(load_encoder(tmp_path, module=module())(images), encoder(images))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "pickle"}, "must be one of whitening"),
        ({"in": 17}, "adapter of 17 features: convnet has 16"),
        ({"out": 0}, "out_dim=0"),
        ({"out": 7}, "6 features, but convnet has 7"),
        ({"out": 10**12}, "at most"),
        ({"out": -1}, "'adapter' is"),
        ({"out": True}, "'adapter' is"),
        ({"more": 1}, "'adapter' is"),
    ],
)
def test_damaged_descriptions_are_refused_by_file(change, message, tmp_path):
    save_encoder(adapted(WHITENING), tmp_path)
    path = tmp_path / "encoder.json"
    description = json.loads(path.read_text())
    description["adapter"] |= change
    path.write_text(json.dumps(description))
    with pytest.raises(InputError, match=message) as raised:
        load_encoder(tmp_path)
    assert "encoder.json" in str(raised.value)


@pytest.mark.parametrize("there", [WHITENING, None])
def test_files_that_disagree_about_the_adapter_are_refused(there, tmp_path):
    encoder = small() if there is None else adapted(there)
    save_encoder(encoder, tmp_path)
    path = tmp_path / "encoder.json"
    description = json.loads(path.read_text())
    description |= {"adapter": None, "feature_dim": 16} if there else {"adapter": WHITENING, "feature_dim": 6}
    path.write_text(json.dumps(description))
    with pytest.raises(InputError, match="2 unknown" if there else "2 missing"):
        load_encoder(tmp_path)


def test_a_second_adapter_is_refused():
    with pytest.raises(InputError, match="already an adapter"):
        adapted(WHITENING | {"in": 6}, adapted(WHITENING))


def test_a_frozen_backbone_stays_bit_identical_while_the_adapter_learns():
    encoder = adapted(LINEAR)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.freeze()
    encoder.train()
    optimizer = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        encoder(torch.rand(8, 3, 8, 8)).square().sum().backward()
        optimizer.step()
    changed = {name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"adapter.weight"} and encoder.training
    assert not any(part.training for part in encoder.backbone.modules())


def test_an_encoder_that_reads_features_applies_the_adapter_alone():
    encoder = adapted(LINEAR).eval()
    images = torch.rand(4, 3, 8, 8)
    features = encoder.backbone_features(images).detach()
    with pytest.raises(InputError, match="takes"):
        encoder(features)
    expected = encoder(images)
    encoder.cached = True
    assert torch.equal(encoder(features), expected) and copy.deepcopy(encoder).cached
    with encoder.without_adapter():
        assert torch.equal(encoder(images), features)


@pytest.mark.parametrize("out", [6, 24])
def test_a_linear_adapter_of_another_width_begins_orthonormal_from_its_seed(out):
    description = {"kind": "linear", "in": 16, "out": out}
    first, again, other = (small() for _ in range(3))
    state = torch.get_rng_state()
    first.attach_adapter(description, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    again.attach_adapter(description, seed=1)
    other.attach_adapter(description, seed=2)
    weight = first.adapter.weight.detach()
    assert weight.shape == (out, 16) and first.feature_dim == out and first.adapter.bias is None
    assert torch.equal(weight, again.adapter.weight) and not torch.equal(weight, other.adapter.weight)
    short = weight if out < 16 else weight.T
    torch.testing.assert_close(short @ short.T, torch.eye(min(out, 16)), rtol=0, atol=1e-5)


def test_a_linear_adapter_of_another_width_is_saved(tmp_path):
    encoder = small().eval()
    encoder.attach_adapter({"kind": "linear", "in": 16, "out": 6}, seed=1)
    save_encoder(encoder, tmp_path)
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(load_encoder(tmp_path)(images), encoder(images))
