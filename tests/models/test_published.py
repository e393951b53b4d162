"""Encoders of transformers and timm, with fakes of these libraries, and with the libraries if they are installed."""

import importlib
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import coulomb
from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, published, save_encoder

BUILT: list[dict] = []


class FakeNet(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.layer = nn.Linear(channels, dim)
        self.register_buffer("position", torch.arange(3.0), persistent=False)  # must not be on the meta device

    def embed(self, images):
        return self.layer(images.mean((2, 3))) + 0 * self.position.sum()


class FakeTimmNet(FakeNet):
    def forward(self, images):
        return self.embed(images)


class FakeConfig:
    def __init__(self, model_type="tiny", dim=6, image_size=224, num_channels=3):
        self.model_type, self.dim, self.image_size, self.num_channels = model_type, dim, image_size, num_channels

    def to_json_string(self, use_diff):
        assert not use_diff
        return json.dumps(vars(self))


class FakeHFNet(FakeNet):
    def __init__(self, config, add_pooling_layer=True):
        super().__init__(config.num_channels, config.dim)
        self.pooling = add_pooling_layer

    def forward(self, pixel_values, interpolate_pos_encoding=False):
        assert interpolate_pos_encoding and not self.pooling
        return SimpleNamespace(last_hidden_state=torch.stack([self.embed(pixel_values)] * 4, dim=1), pooler_output=None)


@pytest.fixture
def timm(monkeypatch):
    fake = ModuleType("timm")
    fake.__version__ = "1.0"
    fake.is_model = lambda name: name in ("tiny", "tiny_vit")
    fake.list_models = lambda: ["tiny", "tiny_vit"]
    fake.get_pretrained_cfg = lambda name: SimpleNamespace(fixed_input_size=name == "tiny_vit")

    def create_model(name, pretrained, num_classes, in_chans, **options):
        BUILT.append({"name": name, "pretrained": pretrained, "num_classes": num_classes, **options})
        if pretrained:
            raise OSError("no network")
        return FakeTimmNet(in_chans, 5)

    fake.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", fake)
    BUILT.clear()


@pytest.fixture
def transformers(monkeypatch):
    fake, auto = ModuleType("transformers"), ModuleType("transformers.models.auto.modeling_auto")
    fake.CONFIG_MAPPING = {"tiny": FakeConfig}

    def from_pretrained(name, config=None, **extra):
        if name != "org/tiny":
            raise OSError(f"{name} is not a local folder\nand more lines")
        return FakeConfig(dim=7) if config is None else FakeHFNet(config, **extra)

    fake.AutoConfig = SimpleNamespace(
        for_model=lambda model_type, **values: FakeConfig(model_type, **values), from_pretrained=from_pretrained
    )
    fake.AutoModel = SimpleNamespace(from_config=FakeHFNet, from_pretrained=from_pretrained)
    auto.MODEL_MAPPING = {FakeConfig: FakeHFNet}
    for name, module in {"transformers": fake, auto.__name__: auto}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("transformers.models", "transformers.models.auto"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


@pytest.mark.parametrize(("name", "dim"), [("timm:tiny", 5), ("hf:tiny", 6), ("hf:org/tiny", 7)])
def test_build_save_and_load(timm, transformers, tmp_path, name, dim):
    channels = 1
    encoder = build_encoder(name, channels=channels, image_size=16, mean=[0.5] * channels, std=[0.25] * channels).eval()
    images = torch.rand(3, channels, 16, 16)
    assert encoder(images).shape == (3, dim) and encoder.feature_dim == dim and encoder.name == name
    save_encoder(encoder, tmp_path)
    loaded = load_encoder(tmp_path)
    assert torch.equal(loaded(images), encoder(images))
    assert all(not buffer.is_meta for buffer in loaded.buffers())


def test_weights_come_from_the_seed(timm):
    first, again, other = (build_encoder("timm:tiny", channels=1, image_size=8, seed=seed) for seed in (0, 0, 1))
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(first(images), again(images)) and not torch.equal(first(images), other(images))


def test_fixed_input_size_is_set_to_the_image_size(timm):
    for name in ("tiny", "tiny_vit"):
        build_encoder(f"timm:{name}", channels=1, image_size=16)
    assert [built.get("img_size") for built in BUILT] == [None, 16]
    assert all(built["num_classes"] == 0 and not built["pretrained"] for built in BUILT)


def test_size_and_channels_of_the_run_are_configured(transformers):
    encoder = build_encoder("hf:org/tiny", channels=1, image_size=16)
    result = encoder.config["options"]["architecture"]
    assert (result["image_size"], result["num_channels"]) == (16, 1)
    with pytest.raises(InputError, match="3 channels and the images have 1; give --channels 3"):
        build_encoder("hf:org/tiny@weights", channels=1, image_size=16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:tiny_vitt", "did you mean 'timm:tiny_vit'"),
        ("timm:tiny@weights", "weights could not be downloaded or loaded.*no network"),
        ("timm:", "must be timm:NAME"),
        ("hf:org/none", "no such configuration.*org/none is not a local folder"),
        ("hf:tiny@weights", "is a model type and has no weights"),
    ],
)
def test_unavailable_encoders_raise(timm, transformers, name, message):
    with pytest.raises(InputError, match=message):
        build_encoder(name, channels=3, image_size=16)
    with pytest.raises(InputError, match="width=8.*timm:tiny takes no options"):
        build_encoder("timm:tiny", channels=3, image_size=16, width=8)


@pytest.mark.parametrize(("kind", "library"), [("hf", "transformers"), ("timm", "timm")])
def test_missing_library_error_has_the_install_command(monkeypatch, kind, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(published, "import_module", _missing(library))
    with pytest.raises(InputError, match=rf"needs {library}: pip install 'coulomb\[{kind}\]'"):
        build_encoder(f"{kind}:resnet", channels=3, image_size=16)


def _missing(library):
    def refuse(name):
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    return refuse


def test_broken_library_has_another_error_than_a_missing_one(monkeypatch):
    def fail(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(published, "import_module", fail)
    with pytest.raises(InputError, match=r"timm is installed but cannot be imported.*torchvision that matches this"):
        build_encoder("timm:resnet18", channels=3, image_size=16)


@pytest.mark.parametrize("name", ["timm:resnet18", "nosuch"])
def test_missing_library_is_an_error_before_a_run_begins(name, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "import_module", _missing("timm"))
    with pytest.raises(InputError, match="encoder="):
        coulomb.train("digits", encoder=name, epochs=1, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["hf:resnet", "timm:resnet18"])
def test_the_real_library(name, tmp_path):
    library = {"hf": "transformers", "timm": "timm"}[name.partition(":")[0]]
    try:
        importlib.import_module(library)
    except Exception as error:
        pytest.skip(f"{library}: {error}")
    encoder = build_encoder(name, channels=1, image_size=32).eval()
    save_encoder(encoder, tmp_path)
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(load_encoder(tmp_path)(images), encoder(images))
