import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import coulomb
from coulomb.ground.errors import CoulombWarning, InputError
from coulomb.models import build_encoder, build_text_encoder, save_encoder
from coulomb.models.build_text import takes_texts
from coulomb.models.text_encoder import TextEncoder

pytest.importorskip("tokenizers")
INSTALLED = pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="no wordllama")

TEXTS = ["a red flower and its leaves", "two cats on a sofa", "the sofa is red", "a cat", "leaves of a tree in autumn"]


@pytest.fixture(scope="module")
def encoder():
    network = build_text_encoder("transformer-small", texts=TEXTS * 3, width=16, depth=2, heads=2, longest=64)
    return TextEncoder(network, "mine")


def test_features_do_not_depend_on_the_batch(encoder):
    features = encoder.encode(TEXTS)
    assert features.shape == (5, 16) and features.dtype == torch.float32 and not features.requires_grad
    torch.testing.assert_close(encoder.encode(TEXTS, batch_size=2), features, rtol=0, atol=1e-5)
    for text, row in zip(TEXTS, features, strict=True):
        torch.testing.assert_close(encoder.encode(text), row[None], rtol=0, atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)


@pytest.mark.parametrize("kind", [tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_sequences_of_strings(kind, encoder):
    assert torch.equal(encoder.encode(kind(TEXTS)), encoder.encode(TEXTS))


def test_arrays_and_unit_length(encoder):
    features = encoder.encode(TEXTS, convert_to_numpy=True, normalize_embeddings=True)
    assert isinstance(features, np.ndarray)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)


def test_similarity_of_texts_and_features(encoder):
    features = encoder.encode(TEXTS)
    unit = torch.nn.functional.normalize(features, dim=1)
    for a, b in ((TEXTS, TEXTS), (features, TEXTS), (features.numpy(), features), (np.array(TEXTS), features)):
        torch.testing.assert_close(encoder.similarity(a, b), unit @ unit.T, rtol=0, atol=1e-5)
    assert encoder.similarity(TEXTS[0], features[1]).shape == (1, 1)
    with pytest.raises(InputError, match="b: features have values that are NaN"):
        encoder.similarity(TEXTS, torch.full((2, 16), torch.nan))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "texts: .* NoneType"),
        (b"a cat", r"texts: .* bytes; decode it"),
        (7, "texts: .* int"),
        (Path("a.txt"), "read the file first"),
        ({"a": 1}, "texts: .* dict"),
        (torch.zeros(2, 3), "texts: .* Tensor"),
        (np.array([["a"], ["b"]]), r"shape \[2, 1\]"),
        ("", r"texts\[0\]: the text is empty"),
        (["a", None, "", 3], r"texts\[1\]: no text \(and 2 more of 4 texts\)"),
        (["a", "\t \n"], r"texts\[1\]: the text is empty"),
        (["a", b"b"], r"texts\[1\]: bytes"),
        (["a", 2.5], r"texts\[1\]: a float instead"),
        (["a", "b\ud800"], r"texts\[1\].*no Unicode"),
        (["a", ["b", "c"]], r"texts\[1\]: a list instead"),
    ],
)
def test_what_is_no_text_is_one_sentence(texts, message, encoder):
    with pytest.raises(InputError, match=message) as raised:
        encoder.encode(texts)
    assert "\n" not in str(raised.value)


def test_paths_of_images_are_refused_where_they_are_files(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = Path("cat.jpg")
    assert encoder.encode([str(picture)]).shape == (1, 16)
    picture.write_bytes(b"")
    with pytest.raises(InputError, match=r"texts\[1\]=.*path of an image"):
        encoder.encode(["a cat", str(picture)])


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_batch_sizes(size, encoder):
    with pytest.raises(InputError, match=f"batch_size={size}"):
        encoder.encode(TEXTS, batch_size=size)


def test_long_texts_are_cut_with_one_warning_a_call(encoder):
    long = "red cat " * 500
    with pytest.warns(CoulombWarning, match="mine: 2 texts of 7 had more than 64 tokens and were cut there") as caught:
        features = encoder.encode([*TEXTS, long, long + "x"], batch_size=1)
    assert len(caught) == 1
    torch.testing.assert_close(features[:5], encoder.encode(TEXTS), rtol=0, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(TEXTS)


def test_embedding_writes_the_features_of_encode(encoder, tmp_path):
    out = tmp_path / "features.parquet"
    assert encoder.embed(TEXTS, out, progress=False) == {"rows": 5, "features": 16, "cut": 0, "notes": []}
    written = pq.read_table(out)
    assert written.column("text").to_pylist() == TEXTS
    features = torch.tensor(written.column("features").to_pylist())
    torch.testing.assert_close(features, encoder.encode(TEXTS), rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="already exists"):
        encoder.embed(TEXTS, out)
    for wrong in ({"out": tmp_path / "f.csv"}, {"workers": 2}, {"batch_size": 0}):
        with pytest.raises(InputError, match="=".join([next(iter(wrong)), ""])):
            encoder.embed(TEXTS, **{"out": tmp_path / "new.parquet"} | wrong)
    assert [each.name for each in tmp_path.iterdir()] == ["features.parquet"]


def test_embedding_reads_files_and_counts_what_is_cut_or_left_out(encoder, tmp_path):
    (tmp_path / "texts.csv").write_text("number,caption\n1,a cat\n2,\n3," + "red cat " * 100 + "\n4,a sofa\n")
    with pytest.warns(CoulombWarning, match="1 text of 3 had more than 64 tokens"):
        result = encoder.embed(tmp_path / "texts.csv", tmp_path / "out.parquet", column="caption", progress=False)
    assert (result["rows"], result["cut"]) == (3, 1) and "left out" in " ".join(result["notes"])


def test_a_folder_is_opened_by_its_path(encoder, tmp_path):
    save_encoder(encoder.encoder, tmp_path)
    opened = coulomb.load(tmp_path)
    assert isinstance(opened, coulomb.TextEncoder) and repr(opened) == f"TextEncoder({str(tmp_path)!r})"
    assert torch.equal(opened.encode(TEXTS), encoder.encode(TEXTS))
    assert torch.equal(coulomb.load(f"run:{tmp_path}").encode(TEXTS), encoder.encode(TEXTS))
    with pytest.raises(InputError, match="image_size=32: .* takes texts"):
        coulomb.load(tmp_path, image_size=32)


@INSTALLED
def test_static_is_opened_by_its_name():
    opened = coulomb.load("static", device="cpu")
    similar = opened.similarity("a red flower", ["a red rose", "the stock exchange"])[0]
    assert similar[0] > similar[1]


def test_random_vectors_are_no_encoder_to_load():
    with pytest.raises(InputError, match="static-random"):
        coulomb.load("static-random")


def test_model_types_are_named_as_what_they_read():
    pytest.importorskip("transformers")
    assert takes_texts("hf:bert") and takes_texts("hf:qwen3")
    assert not any(
        takes_texts(name) for name in ("hf:resnet", "hf:clip", "hf:vit", "timm:resnet18", "lite0", "nothing")
    )
    with pytest.raises(InputError, match="'bert' is a model type and has no weights"):
        coulomb.load("hf:bert@weights")


def test_published_folders_are_opened_as_what_they_read(tmp_path):
    pytest.importorskip("transformers")
    from tiny_texts import bert, sentence_layout

    bert(tmp_path / "texts")
    sentence_layout(tmp_path / "texts", ("Transformer", "Pooling", "Normalize"))
    opened = coulomb.load(tmp_path / "texts")
    assert isinstance(opened, TextEncoder)
    assert torch.allclose(opened.encode(["a red cat", "leaf"]).norm(dim=1), torch.ones(2))
    save_encoder(build_encoder("convnet", channels=3, image_size=8, width=2), tmp_path / "images")
    assert isinstance(coulomb.load(tmp_path / "images"), coulomb.ImageEncoder)


def test_an_index_of_images_refuses_an_encoder_of_texts(encoder, tmp_path):
    save_encoder(encoder.encoder, tmp_path / "texts")
    with pytest.raises(InputError, match="takes texts; an encoder of images is needed"):
        coulomb.Index.build(np.zeros((4, 8, 8, 3), np.uint8), tmp_path / "index", encoder=str(tmp_path / "texts"))
