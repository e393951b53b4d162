"""CLIP and SigLIP opened as an encoder of images and texts."""

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index import Index
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.published_pair import is_published_pair

pytest.importorskip("transformers")
from pair_folders import saved_pair
from tiny_texts import bert


def photos(folder, count=5):
    folder.mkdir()
    draw = np.random.default_rng(0)
    paths = []
    for number in range(count):
        paths.append(folder / f"{number}.png")
        Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(paths[-1])
    return paths


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_both_towers_encode_as_transformers_does(kind, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model, _, processor = saved_pair(folder, kind)
    opened = coulomb.load(str(folder))
    assert isinstance(opened, PairEncoder) and list(opened.columns) == ["image", "text"]
    assert opened.temperature == pytest.approx(np.exp(-3.0)) and opened.name == str(folder.resolve())
    paths = photos(tmp_path / "photos")
    pixels = processor([Image.open(path) for path in paths], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model.get_image_features(pixels)
    torch.testing.assert_close(opened.encode(paths), getattr(expected, "pooler_output", expected), rtol=1e-4, atol=1e-4)
    words = opened.encode(["a red flower", "cat"])
    assert words.shape == (2, opened["text"].encoder.feature_dim)
    assert opened.similarity(str(paths[0]), ["a red flower", "cat"]).shape == (1, 2)
    assert opened.of_kind("image").name == opened.name


def test_an_index_is_searched_by_words_and_found_again(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    saved_pair(folder, "clip")
    paths = photos(tmp_path / "photos")
    index = Index.build(str(tmp_path / "photos"), tmp_path / "i", encoder=str(folder), progress=False)
    found = index.search(text="a red flower", top=2)
    expected = coulomb.load(str(folder)).similarity(paths, "a red flower")[:, 0]
    assert [row["id"] for row in found] == [f"{place}.png" for place in expected.argsort(descending=True)[:2]]
    assert Index.open(tmp_path / "i").search(text="a red flower", top=2) == found


def test_other_folders_are_no_pair(tmp_path):
    bert(tmp_path)
    assert not is_published_pair(str(tmp_path)) and not is_published_pair("lite0") and not is_published_pair("static")
    assert not is_published_pair("hf:clip") and not is_published_pair("timm:x@weights")
    assert isinstance(coulomb.load(str(tmp_path)), coulomb.TextEncoder)
    with pytest.raises(InputError, match="there is no file or folder"):
        coulomb.load("./nowhere")
