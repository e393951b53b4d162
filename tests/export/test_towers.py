"""The towers of a run on several columns, exported together."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from coulomb.export import to_onnx
from coulomb.ground.errors import InputError
from coulomb.models.vector_network import build_vector_encoder
from export_cases import CODE, pair, photo, texts


def vectors(dim=5):
    network = build_vector_encoder("mlp", dim=dim, width=24)
    return network.eval()


def test_the_readme_compares_pictures_and_words_without_coulomb(tmp_path):
    run = pair(tmp_path / "run", {"image": "convnet", "it's a *caption*": texts()})
    result = to_onnx(run, tmp_path / "onnx")
    assert list(result["towers"]) == ["image", "it's a *caption*"]
    for name in ("a.jpg", "b.jpg"):
        Image.fromarray(photo(40, 30, seed=ord(name[0]))).save(tmp_path / "onnx" / name, quality=95)
    (code,) = CODE.findall((tmp_path / "onnx" / "README.md").read_text())
    program = "import sys; sys.modules['coulomb'] = sys.modules['torch'] = None\n" + code
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", program],
        cwd=tmp_path / "onnx", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.array(done.stdout.replace("[", " ").replace("]", " ").split(), float).reshape(2, 2)
    files = [str(tmp_path / "onnx" / name) for name in ("a.jpg", "b.jpg")]
    np.testing.assert_allclose(found, run.similarity(files, ["a red flower", "two old houses"]), atol=1e-3)
    assert "\\*caption\\*" in (tmp_path / "onnx" / "README.md").read_text()


def test_columns_that_share_a_tower_share_its_file_and_vectors_have_one(tmp_path):
    run = pair(tmp_path / "run", {"term": texts(), "numbers": vectors()})
    run.description["columns"]["gloss"] = {"kind": "text", "tower": "term"}
    result = to_onnx(run, tmp_path / "onnx", unit=True)
    assert list(result["towers"]) == ["term", "numbers"] and result["towers"]["numbers"]["check"]["cosine"] > 0.99999
    assert "| `term/` | term, gloss | texts | 24 |" in (tmp_path / "onnx" / "README.md").read_text()
    torch.testing.assert_close(result["towers"]["term"]["features"], 24)


def test_wrong_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    run = pair(tmp_path / "run", {"term": texts(), "gloss": texts()})
    with pytest.raises(InputError, match=r"on: is for encoders of images, and .*run has none; leave it out"):
        to_onnx(run, tmp_path / "onnx", on="photos")
    with pytest.raises(InputError, match=r"m.onnx'.*2 towers, each of which is a file; give the name of a folder"):
        to_onnx(run, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="already exists"):
        to_onnx(run, tmp_path / "run")
    with pytest.raises(InputError, match="there is no folder"):
        to_onnx(run, tmp_path / "nowhere" / "onnx")

    def fails(*arguments, **options):
        raise InputError("differs")

    monkeypatch.setattr("coulomb.export.text_onnx.check_texts", fails)
    with pytest.raises(InputError, match="differs"):
        to_onnx(run, tmp_path / "onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
