"""The towers of a run on several columns, exported together."""

import re
import subprocess
import sys
import warnings
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from PIL import Image

import coulomb
from coulomb.export import push, to_hub, to_onnx
from coulomb.export.sentence_folder import SETTINGS
from coulomb.export.sentence_folder import write_sentence_folder as write
from coulomb.ground.errors import InputError
from coulomb.models.vector_network import build_vector_encoder
from export_cases import CODE, pair, photo, texts


def vectors(dim=5):
    network = build_vector_encoder("mlp", dim=dim, width=24)
    return network.eval()


@pytest.mark.slow
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


def test_a_run_has_no_index_to_export(tmp_path):
    pair(tmp_path / "run", {"image": "convnet", "caption": texts()})
    with pytest.raises(InputError, match=r"not an index .*coulomb index DATA --encoder .*run --out DATA\.index"):
        coulomb.Index.open(tmp_path / "run")


@pytest.mark.slow
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


PAIR_FIGURES = {
    "recall_at": {"1": 0.2, "5": 0.8, "10": 1.0},
    "mrr": 0.424,
    "median_rank": 3.0,
    "queries": 10,
    "keys": 8,
}
SENTENCE = "It is ahead of lite0 and /home/someone/my weights/minilm with hf:a/b."
PAIR_EVALUATION = {
    "columns": ["image", "caption"],
    "trained": {
        "first_to_second": PAIR_FIGURES,
        "second_to_first": PAIR_FIGURES | {"mrr": 0.5},
        "intervals": {"first_to_second_recall_at_5": [0.45, 1.0], "second_to_first_recall_at_5": [0.5, 0.9]},
    },
    "chance": {"first_to_second": PAIR_FIGURES, "second_to_first": PAIR_FIGURES},
    "verdict": {
        "level": "use_starting_point",
        "title": "Use *lite0*",
        "sentence": "It is ahead of lite0 and /home/someone/my weights/minilm with hf:a/b.",
    },
    "protocol": {"data": "/home/someone/secret/stamps.parquet", "split": "10 of 48 rows held out."},
}


def by_sentence_transformers(folder, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
        return library.SentenceTransformer(str(folder), device="cpu").encode(given)


def test_the_hub_folder_of_a_run_opens_with_coulomb_and_with_sentence_transformers(tmp_path):
    run = pair(tmp_path / "run", {"image": "convnet", "caption": texts(), "numbers": vectors()})
    result = to_hub(run, tmp_path / "hub")
    assert result["towers"] == {name: f"towers/{name}" for name in ("image", "caption", "numbers")}
    again = coulomb.load(tmp_path / "hub")
    assert isinstance(again, coulomb.PairRun)
    image, words = [photo(40, 30)], ["a red flower", "two old houses"]
    np.testing.assert_array_equal(again.encode(image), run.encode(image))
    np.testing.assert_allclose(again.similarity(image, words), run.similarity(image, words), atol=1e-5)
    np.testing.assert_array_equal(
        again.encode([[1.0] * 5], column="numbers"), run.encode([[1.0] * 5], column="numbers")
    )
    np.testing.assert_array_equal(coulomb.load(tmp_path / "hub" / "towers" / "image").encode(image), run.encode(image))
    expected = run["caption"].encode(words, normalize_embeddings=True)
    for folder in (tmp_path / "hub", tmp_path / "hub" / "towers" / "caption"):
        np.testing.assert_allclose(by_sentence_transformers(folder, words), expected, atol=1e-4)


ONE = {
    "column": "text",
    "kind": "text",
    "trained": {"knn": 0.75, "scored_pairs": {"spearman": {"value": 0.5}}, "retrieval": {"map_at_r": 0.25}},
    "protocol": {"data": "/home/someone/notes.csv"},
}


def test_a_run_on_texts_alone_opens_with_sentence_transformers(tmp_path):
    run = pair(tmp_path / "run", {"text": texts()}, evaluation=ONE)
    to_hub(run, tmp_path / "hub")
    words = ["a red flower", "two old houses"]
    expected = run.encode(words, normalize_embeddings=True)
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "hub", words), expected, atol=1e-4)
    data = huggingface_hub.ModelCard.load(tmp_path / "hub" / "README.md").data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert {(each.metric_type, each.metric_value, each.dataset_name) for each in data.eval_results} == {
        ("accuracy", 0.75, "notes.csv"), ("spearmanr", 0.5, "notes.csv"), ("map", 0.25, "notes.csv"),
    }  # fmt: skip


def test_the_card_of_a_run_is_honest(tmp_path):
    to_hub(
        pair(tmp_path / "run", {"image": "convnet", "caption": texts()}, evaluation=PAIR_EVALUATION), tmp_path / "hub"
    )
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    figures = {each.metric_name: each.metric_value for each in huggingface_hub.ModelCard(card).data.eval_results}
    assert len(figures) == 8 and figures["image to caption R@1"] == 0.2 and figures["caption to image MRR"] == 0.5
    assert "| trained towers | 20.0% | 80.0% | 100.0% | 0.424 | 20.0% | 80.0% | 100.0% | 0.500 |" in card
    assert (
        "| chance | 20.0%" in card
        and "**Use \\*lite0\\*.** It is ahead of lite0 and" in card
        and "as good or better" in card
    )
    assert "image → caption: 10 queries among 8" in card and "image → caption 45.0% to 100.0%" in card
    assert "stamps: 38 training rows, 10 held out" in card and "data stamps.parquet; 10 of 48 rows held out" in card
    assert "more than 256 tokens" in card
    for path in tmp_path.glob("hub/**/*"):
        assert not path.is_file() or b"someone" not in path.read_bytes(), path
    to_hub(pair(tmp_path / "other", {"image": "convnet", "caption": texts()}), tmp_path / "unmeasured")
    card = (tmp_path / "unmeasured" / "README.md").read_text()
    assert "Not evaluated" in card and "Nothing was measured here" in card


def test_the_programs_of_the_card_run(tmp_path, monkeypatch):
    run = pair(tmp_path / "run", {"image": "convnet", "caption": texts()})
    to_hub(run, tmp_path / "hub")
    for name in ("a.jpg", "b.jpg"):
        Image.fromarray(photo(40, 30, seed=ord(name[0]))).save(tmp_path / "hub" / name, quality=95)
    monkeypatch.chdir(tmp_path / "hub")
    ours, theirs = re.findall(r"```py\n(.*?)```", (tmp_path / "hub" / "README.md").read_text(), re.S)
    found: dict = {}
    exec(ours, found)
    expected = run.similarity(["a.jpg", "b.jpg"], ["a red flower", "two old houses"])
    np.testing.assert_allclose(
        found["towers"].similarity(found["features_0"], found["features_1"]), expected, atol=1e-5
    )
    pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(theirs, found)
    images = torch.nn.functional.normalize(found["features_0"], dim=1).numpy()
    np.testing.assert_allclose(images @ found["features"].T, expected, atol=1e-4)


def test_texts_alone_have_a_folder_of_sentence_transformers(tmp_path):
    encoder = coulomb.TextEncoder(texts(), "my texts")
    result = to_hub(encoder, tmp_path / "hub")
    assert result["files"] == ["0_StaticEmbedding", "1_Dense", "README.md", SETTINGS, "modules.json"]
    expected = encoder.encode(["the old cat"], normalize_embeddings=True)
    np.testing.assert_allclose(coulomb.load(tmp_path / "hub").encode(["the old cat"]), expected, atol=1e-5)
    assert "static-random: features of texts" in (tmp_path / "hub" / "README.md").read_text()


def test_wrong_input_for_the_hub_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    run = pair(tmp_path / "run", {"term": texts(), "gloss": texts()})
    with pytest.raises(InputError, match=r"on: is for published encoders of images, and .*run is none; leave it out"):
        to_hub(run, tmp_path / "hub", on="photos")
    with pytest.raises(InputError, match="already exists"):
        to_hub(run, tmp_path / "run")
    other = texts()
    with torch.no_grad():
        other.adapter.weight += 0.1 * torch.randn_like(other.adapter.weight)
    monkeypatch.setattr("coulomb.export.towers.write_sentence_folder", lambda network, folder: write(other, folder))
    with pytest.raises(InputError, match=r"the features of its exported folder differ.*nothing was written"):
        to_hub(run, tmp_path / "hub")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


class Hub:
    """Records what would be uploaded."""

    def __init__(self, calls):
        self.calls = calls

    def create_repo(self, name, **options):
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, **options):
        self.calls.append(options["allow_patterns"])
        return SimpleNamespace(pr_url=None, commit_url="")


@pytest.mark.parametrize("alone", [True, False])
def test_push_uploads_every_file_of_the_folder_and_no_others(tmp_path, monkeypatch, alone):
    calls: list = []
    if alone:
        to_hub(coulomb.TextEncoder(texts("transformer-small", width=16, depth=1, heads=2), "t"), tmp_path / "hub")
    else:
        to_hub(pair(tmp_path / "run", {"image": "convnet", "caption": texts(), "n": vectors()}), tmp_path / "hub")
    there = [str(each.relative_to(tmp_path / "hub")) for each in (tmp_path / "hub").rglob("*") if each.is_file()]
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda token: Hub(calls))
    push(tmp_path / "hub", "me/pairs")
    kept = list(filter_repo_objects(there, allow_patterns=calls[0]))
    assert kept == there
    assert not list(filter_repo_objects(["secret.txt", "photos/a.jpg", "towers/x/secret.txt"], allow_patterns=calls[0]))
    (tmp_path / "hub" / "README.md").unlink()
    with pytest.raises(InputError, match=r"README.md missing"):
        push(tmp_path / "hub", "me/pairs")
