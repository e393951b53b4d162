"""ONNX files of texts and vectors give the features of PyTorch, with nothing but their tokenizer."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch

from coulomb.export import to_onnx
from coulomb.export.text_onnx import vector_to_onnx
from coulomb.ground.errors import InputError
from coulomb.models.build_text import build_text_encoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.vector_network import build_vector_encoder
from export_cases import CAPTIONS, texts
from tiny_texts import bert, sentence_layout

LONG = " ".join(CAPTIONS * 40)
GIVEN = [*CAPTIONS, "  cat ", LONG]


def features(folder, given):
    """Features by onnxruntime and tokenizers alone."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    encodings = tokenizer.encode_batch(given)
    inputs = {
        "input_ids": np.array([each.ids for each in encodings], np.int64),
        "attention_mask": np.array([each.attention_mask for each in encodings], np.int64),
    }
    return onnxruntime.InferenceSession(folder / "m.onnx").run(["features"], inputs)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("static-random", {"width": 16, "longest": 20}),
        ("transformer-small", {"width": 16, "depth": 2, "heads": 2, "longest": 24}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*were cut there")
def test_features_are_those_of_encode(tmp_path, name, options):
    encoder = TextEncoder(texts(name, **options), name)
    result = to_onnx(encoder, tmp_path / "m.onnx")
    assert result["check"]["cosine"] >= 0.99999 and result["longest"] == options["longest"] and result["features"] == 24
    with pytest.warns(match="cut"):
        expected = encoder.encode(GIVEN)
    np.testing.assert_allclose(features(tmp_path, GIVEN), expected, atol=1e-5)
    for place, text in enumerate(GIVEN):
        np.testing.assert_allclose(features(tmp_path, [text])[0], expected[place], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "pooling_mode_mean_tokens"), ("bert", "pooling_mode_lasttoken"), ("clip_text_model", None)],
)
@pytest.mark.slow
def test_published_texts_keep_their_pooling(tmp_path, kind, pooling):
    bert(tmp_path / "published", kind, **({"eos_token_id": 3, "pad_token_id": 0} if pooling is None else {}))
    if pooling is not None:
        sentence_layout(tmp_path / "published", ("Transformer", "Pooling", "Normalize"), {pooling: True})
    encoder = TextEncoder(build_text_encoder(str(tmp_path / "published")), "published")
    result = to_onnx(encoder, tmp_path / "m.onnx", unit=True)
    assert result["unit"] and result["longest"] == 16
    given = ["a red flower", "cat", "a cat and its sofa"]
    expected = encoder.encode(given, normalize_embeddings=True)
    np.testing.assert_allclose(features(tmp_path, given), expected, atol=1e-5)


def test_the_script_needs_neither_coulomb_nor_torch(tmp_path):
    encoder = TextEncoder(texts(), "texts")
    to_onnx(encoder, tmp_path / "it's.onnx")
    blocked = (
        "import sys; sys.modules['coulomb'] = sys.modules['torch'] = None; sys.argv = sys.argv[1:]; import runpy; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-I", "-c", blocked, tmp_path / "it's.py", "the old cat"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = np.array(printed.removeprefix("'the old cat'").split(), float)
    np.testing.assert_allclose(found, encoder.encode("the old cat")[0], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_vectors_are_standardized_in_the_file(tmp_path):
    network = build_vector_encoder("mlp", dim=5, width=8, mean=[3.0, 0, 0, 1, 2], std=[2.0, 1, 1, 4, 5]).eval()
    result = vector_to_onnx(network, tmp_path / "m.onnx")
    vectors = torch.randn(7, 5)
    found = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(["features"], {"vectors": vectors.numpy()})[0]
    with torch.no_grad():
        np.testing.assert_allclose(found, network(vectors), atol=1e-5)
    command = [sys.executable, "-I", result["script"], "1,2,3,4,5"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with torch.no_grad():
        expected = network(torch.tensor([[1.0, 2, 3, 4, 5]]))[0]
    np.testing.assert_allclose(np.array(printed.split(), float), expected, atol=1e-5)


@pytest.mark.slow
def test_nothing_is_written_if_features_differ(tmp_path, monkeypatch):
    from coulomb.export.text_graph import text_graph as graph

    other = texts()
    with torch.no_grad():
        other.adapter.weight += 0.1 * torch.randn_like(other.adapter.weight)
    monkeypatch.setattr("coulomb.export.text_onnx.text_graph", lambda network, unit: graph(other, unit))
    with pytest.raises(InputError, match=r"smallest cosine 0\.\d{7}, required 0.99999.*nothing was written"):
        to_onnx(TextEncoder(texts(), "texts"), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_tokenizer_that_does_not_cut_is_noticed(tmp_path, monkeypatch):
    from coulomb.export.tokenizer_file import complete_tokenizer

    monkeypatch.setattr(
        "coulomb.export.text_onnx.complete_tokenizer", lambda network: complete_tokenizer(network, cut=False)
    )
    network = texts(longest=12)
    with pytest.raises(InputError, match="nothing was written"):
        to_onnx(TextEncoder(network, "texts"), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_wrong_input_is_one_sentence(tmp_path):
    encoder = TextEncoder(texts(), "static")
    (tmp_path / "tokenizer.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match=r"tokenizer.json.*: already exists"):
        to_onnx(encoder, tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"must end in .onnx"):
        to_onnx(encoder, tmp_path / "m.bin")
    with pytest.raises(InputError, match="int8: is for encoders of images, and static has none; leave it out"):
        to_onnx(encoder, tmp_path / "m.onnx", int8=True)
