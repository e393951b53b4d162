"""Folders of texts open with sentence-transformers and with coulomb, and give the same features."""

import json
import warnings

import numpy as np
import pytest
import torch

import coulomb
from coulomb.export.sentence_folder import write_sentence_folder
from coulomb.ground.errors import InputError
from coulomb.models import load_encoder, save_encoder
from coulomb.models.build_text import build_text_encoder
from coulomb.models.text_encoder import TextEncoder
from export_cases import CAPTIONS, texts
from tiny_texts import bert, sentence_layout

GIVEN = [*CAPTIONS, "  cat\n", " ".join(CAPTIONS * 40), "a red flower and its leaf"]


def by_sentence_transformers(folder, given=GIVEN):
    """Features by sentence-transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
        return library.SentenceTransformer(str(folder), device="cpu").encode(given)


def encoded(network, given=GIVEN):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TextEncoder(network, "texts").encode(given, normalize_embeddings=True).numpy()


@pytest.mark.parametrize("adapter", [None, 24])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("static-random", {"width": 16, "longest": 20}),
        ("transformer-small", {"width": 16, "depth": 2, "heads": 2, "longest": 24}),
    ],
    ids=str,
)
def test_built_in_texts(tmp_path, name, options, adapter):
    network = texts(name, adapter, **options)
    write_sentence_folder(network, tmp_path / "st")
    expected = encoded(network)
    np.testing.assert_allclose(encoded(build_text_encoder(str(tmp_path / "st")).eval()), expected, atol=1e-5)
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "st"), expected, atol=1e-4)


def test_an_adapter_of_unit_features_follows_a_normalization(tmp_path):
    network = texts("static-random", None, width=16, longest=20)
    network.attach_adapter({"kind": "unit", "in": 16, "out": 8}, seed=1)
    torch.nn.init.normal_(network.adapter.bias, generator=torch.Generator().manual_seed(0))
    listed = write_sentence_folder(network, tmp_path / "st")
    kinds = [each["type"].rpartition(".")[2] for each in listed]
    assert kinds == ["StaticEmbedding", "Normalize", "Dense", "Normalize"]
    expected = encoded(network)
    np.testing.assert_allclose(encoded(build_text_encoder(str(tmp_path / "st")).eval()), expected, atol=1e-5)
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "st"), expected, atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "max_tokens", "lasttoken"])
def test_published_texts_keep_their_pooling_and_get_an_adapter(tmp_path, pooling):
    bert(tmp_path / "published", "roberta" if pooling == "lasttoken" else "bert", pad_token_id=0)
    sentence_layout(tmp_path / "published", ("Transformer", "Pooling", "Normalize"), {f"pooling_mode_{pooling}": True})
    network = build_text_encoder(str(tmp_path / "published")).eval()
    network.attach_adapter({"kind": "linear", "in": 32, "out": 24}, seed=1)
    listed = write_sentence_folder(network, tmp_path / "st")
    kinds = [each["type"].rpartition(".")[2] for each in listed]
    assert kinds == ["Transformer", "Pooling", "Normalize", "Dense", "Normalize"]
    assert json.loads((tmp_path / "st" / "3_Dense" / "config.json").read_text()) == {
        "in_features": 32,
        "out_features": 24,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    expected = encoded(network)
    again = build_text_encoder(str(tmp_path / "st")).eval()
    np.testing.assert_allclose(encoded(again), expected, atol=1e-5)
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "st"), expected, atol=1e-4)
    save_encoder(again, tmp_path / "saved")
    np.testing.assert_array_equal(encoded(load_encoder(tmp_path / "saved")), encoded(again))


def test_the_export_of_an_export_is_the_same(tmp_path):
    network = texts()
    write_sentence_folder(network, tmp_path / "st")
    again = coulomb.load(str(tmp_path / "st")).encoder
    again.attach_adapter({"kind": "linear", "in": 24, "out": 8}, seed=2)
    write_sentence_folder(again, tmp_path / "again")
    save_encoder(again, tmp_path / "saved")
    np.testing.assert_array_equal(encoded(load_encoder(tmp_path / "saved")), encoded(again))
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "again"), encoded(again), atol=1e-4)


def test_what_sentence_transformers_cannot_do_is_one_sentence(tmp_path):
    bert(tmp_path / "published", "clip_text_model", eos_token_id=3, pad_token_id=0)
    with pytest.raises(InputError, match=r"pools in a way of its own.*export it with --to onnx"):
        write_sentence_folder(build_text_encoder(str(tmp_path / "published")), tmp_path / "st")
