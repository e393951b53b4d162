import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder, wrap_encoder

SMALL = {
    "convnet": {"width": 4},
    "resnet10": {"width": 4, "small_stem": False},
    "resnet50": {"width": 2},
    "vit": {"width": 12, "depth": 1, "patch": 4},
}


def trained(name="convnet"):
    """Returns an encoder with running statistics that are not the initial ones."""
    encoder = build_encoder(name, channels=3, image_size=16, mean=[0.1, 0.2, 0.3], std=[0.3] * 3, seed=9, **SMALL[name])
    encoder(torch.rand(8, 3, 16, 16))
    return encoder.eval()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_round_trip_is_bit_identical(name, layout, tmp_path):
    encoder = trained(name).to(memory_format=layout)
    images = torch.rand(4, 3, 16, 16)
    save_encoder(encoder, tmp_path / "made" / "on the way")
    state = torch.get_rng_state()
    loaded = load_encoder(tmp_path / "made" / "on the way")
    assert torch.equal(state, torch.get_rng_state())
    assert not loaded.training
    assert loaded.config == encoder.config and loaded.feature_dim == encoder.feature_dim
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in encoder.state_dict().items())
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in encoder.parameters()]
    assert torch.equal(loaded.to(memory_format=layout)(images), encoder(images))
    loaded.train()(images).sum().backward()
    torch.optim.SGD(loaded.parameters(), lr=0.1).step()


class Tied(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.first = nn.Linear(48, width)
        self.second = nn.Linear(48, width)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.first(x.flatten(1)) + self.second(x.flatten(1))


def test_own_module_must_be_passed(tmp_path):
    encoder = wrap_encoder(Tied(), channels=3, image_size=4, mean=[0.5] * 3, std=[0.1] * 3)
    save_encoder(encoder, tmp_path)
    with pytest.raises(InputError, match=r"your module 'Tied'.*load_encoder\(folder, module=Tied"):
        load_encoder(tmp_path)
    module = Tied()
    loaded = load_encoder(tmp_path, module=module)
    images = torch.rand(4, 3, 4, 4)
    assert torch.equal(loaded(images), encoder(images))
    assert module.second.weight is module.first.weight
    with pytest.raises(InputError, match="5 features, but Tied has 6"):
        load_encoder(tmp_path, module=Tied(6))
    with pytest.raises(InputError, match="unknown"):
        load_encoder(tmp_path, module=nn.Sequential(nn.Flatten(), nn.Linear(48, 5)))


def test_built_in_takes_no_module(tmp_path):
    save_encoder(trained(), tmp_path)
    with pytest.raises(InputError, match="omit module"):
        load_encoder(tmp_path, module=Tied())


def rewrite(tmp_path, **changes):
    path = tmp_path / "encoder.json"
    description = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in description.items() if value is not ...}))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 2}, "format 2"),
        ({"format": ...}, "format None"),
        ({"name": "os.system"}, "'os.system' is unknown"),
        ({"name": ...}, "'name' is missing"),
        ({"channels": "3"}, "'channels' is '3'"),
        ({"channels": True}, "'channels' is True"),
        ({"mean": [1, "x", 2]}, "'mean' is .* must be a list, each item a number"),
        ({"mean": [0.0, 0.0, 0.0]}, "mean is .* in encoder.json"),
        ({"options": {"width": 8}}, "32 features, but convnet has 64"),
        (
            {"options": {"width": 65536}},
            "features",
        ),  # built on the meta device, so it is refused without allocating memory
        ({"options": {"stages": 60}}, "from 1 to 8"),
        ({"image_size": 10**12}, "must be from 1 to 65536"),
        ({"options": {"exec": 1}}, "exec=1: convnet has no such option"),
        ({"options": None}, "'options' is None"),
        ({"options": {"width": 4, "stages": 2}}, "features"),
        ({"name": "resnet10", "options": {"width": 4}}, "missing .*unknown"),
        ({"image_size": 64}, "layers"),
    ],
)
def test_errors_for_a_tampered_description(changes, message, tmp_path):
    save_encoder(trained(), tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\x00"])
def test_description_that_is_no_json_object(text, tmp_path):
    save_encoder(trained(), tmp_path)
    (tmp_path / "encoder.json").write_text(text)
    with pytest.raises(InputError, match="JSON"):
        load_encoder(tmp_path)


def test_errors_for_tampered_weights(tmp_path):
    save_encoder(trained(), tmp_path)
    path = tmp_path / "encoder.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"", pickle.dumps({"a": 1})):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged or not a safetensors"):
            load_encoder(tmp_path)
    path.write_bytes(whole)
    tensors = load_file(path)
    key = "backbone.layers.0.weight"
    save_file({**tensors, key: tensors[key][:2].contiguous()}, path)
    with pytest.raises(InputError, match=r"layers.0.weight.*\[2, 3, 3, 3\].*\[4, 3, 3, 3\]"):
        load_encoder(tmp_path)
    save_file({**tensors, key: tensors[key].half()}, path)
    with pytest.raises(InputError, match="float16"):
        load_encoder(tmp_path)
    del tensors[key]
    save_file(tensors, path)
    with pytest.raises(InputError, match=r"1 missing \(first 'backbone.layers.0.weight'\)"):
        load_encoder(tmp_path)


def test_missing_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_encoder(tmp_path)
    save_encoder(trained(), tmp_path)
    (tmp_path / "encoder.safetensors").unlink()
    with pytest.raises(InputError, match="does not exist"):
        load_encoder(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    save_encoder(trained(), tmp_path)
    before = (tmp_path / "encoder.safetensors").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"encoder\.safetensors: cannot be written \(No space"):
        save_encoder(trained("vit"), tmp_path)
    assert (tmp_path / "encoder.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.json", "encoder.safetensors"]


def test_open_reader_keeps_the_old_file(tmp_path):
    save_encoder(trained(), tmp_path)
    before = (tmp_path / "encoder.safetensors").read_bytes()
    with (tmp_path / "encoder.safetensors").open("rb") as reader:
        save_encoder(trained("vit"), tmp_path)
        assert reader.read() == before
