"""Model objects of transformers and timm are encoders as they are."""

import numpy as np
import pytest
import torch
from torch import nn

import coulomb
from coulomb.ground.errors import InputError
from coulomb.models import wrap_encoder

IMAGES = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def resnet(transformers, kind="ResNetModel"):
    shape = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return getattr(transformers, kind)(transformers.ResNetConfig(**shape)).eval()


def test_models_of_transformers_give_their_pooled_features():
    transformers = pytest.importorskip("transformers")
    for kind in ("ResNetModel", "ResNetForImageClassification"):
        model = resnet(transformers, kind)
        encoder = wrap_encoder(model, channels=3, image_size=16).eval()
        assert (encoder.name, encoder.feature_dim) == (kind, 16)
        expected = getattr(model, "resnet", model)(pixel_values=IMAGES).pooler_output.flatten(1)
        torch.testing.assert_close(encoder(IMAGES), expected)


def test_a_model_of_texts_is_no_encoder_of_images():
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertModel(transformers.BertConfig(**shape))
    with pytest.raises(InputError, match="BertModel"):
        wrap_encoder(model, channels=3, image_size=16)


class LikeTimm(nn.Module):
    """The two methods that all models of timm have."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 5, 3), nn.Linear(5, 7)

    def forward_features(self, x):
        return self.stem(x)

    def forward_head(self, x, pre_logits=False):
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.head(pooled)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


def test_a_model_with_the_methods_of_timm_is_used_without_its_head():
    model = LikeTimm().eval()
    encoder = wrap_encoder(model, channels=3, image_size=16).eval()
    assert encoder.feature_dim == 5
    torch.testing.assert_close(encoder(IMAGES), model.stem(IMAGES).mean((2, 3)))


def test_models_of_timm():
    try:
        timm = pytest.importorskip("timm")
    except RuntimeError as error:  # a torchvision of another torch
        pytest.skip(str(error))
    model = timm.create_model("resnet18", num_classes=10).eval()
    encoder = wrap_encoder(model, channels=3, image_size=32).eval()
    assert encoder.feature_dim == 512


@pytest.mark.slow
def test_a_run_with_a_model_object_is_opened_with_another_instance(tmp_path):
    transformers = pytest.importorskip("transformers")
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
    model = resnet(transformers, "ResNetForImageClassification")
    options = {"epochs": 1, "batch_size": 8, "image_size": 16, "knn_every": 0, "evaluate": False, "progress": False}
    run = coulomb.train(images, encoder=model, out=tmp_path / "run", **options)
    again = coulomb.load(tmp_path / "run", module=resnet(transformers, "ResNetForImageClassification"))
    torch.testing.assert_close(again.encode(images), run.encode(images))
    assert run.config.encoder == "custom:ResNetForImageClassification"
