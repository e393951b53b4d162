"""A folder for the hub opens with coulomb and, by the code of its card, without it."""

import json
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image

import coulomb
from coulomb.export import push, to_hub
from coulomb.ground.errors import InputError
from export_cases import by_the_card, fake_hub, pair, photo, published, run, texts

FIGURES = {
    "knn": 0.6,
    "linear": 0.7,
    "few_shot": {"5": {"mean": 0.5, "std": 0.02}},
    "protocol": {"test": 20, "knn": {"k": 20, "sigma": 0.1}},
}
EVALUATION = {
    "trained": FIGURES
    | {
        "per_class": [
            {"label": 0, "class": "<b>cat|</b>", "train": 4, "knn": 0.1},
            {"label": 1, "class": "dog", "train": 4, "knn": 0.9},
        ]
    },
    "raw_pixels": FIGURES,
    "verdict": {"level": "use_starting_point", "title": "Use the published weights", "sentence": "They are ahead."},
    "protocol": {"data": "/home/someone/secret/zoo", "split": "20 of 100 images held out."},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("convnet", {"width": 8, "channels": 1, "adapter": "linear"}),
        ("resnet10", {"width": 8, "adapter": "linear"}),
        ("resnet10", {"width": 8, "norm": "group"}),
        ("convnet", {"width": 8, "norm": "group"}),
        ("vit", {"width": 32, "depth": 2, "heads": 2, "size": 30}),
        ("lite0-random", {"adapter": "whitening"}),
        ("lite0-stages-random", {}),
    ],
    ids=str,
)
def test_the_folder_of_a_run_gives_its_features_with_and_without_coulomb(tmp_path, name, options):
    paths = []
    for number, size in enumerate(((61, 45), (32, 32), (48, 48))):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(photo(*size, seed=number)).save(paths[-1])
    loaded = run(tmp_path / "run", name, **options)
    result = to_hub(loaded, tmp_path / "hub")
    assert (
        result["files"] == ["README.md", "config.json", "encoder.json", "encoder.safetensors"] and result["plain_code"]
    )
    expected = loaded.encode(paths).numpy()
    again = coulomb.load(tmp_path / "hub")
    assert again.canvas == loaded.canvas
    np.testing.assert_array_equal(again.encode(paths), expected)
    np.testing.assert_allclose(by_the_card(tmp_path / "hub", paths), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_published_weights_keep_their_preprocessing(tmp_path):
    Image.fromarray(photo(61, 45)).save(tmp_path / "a.png")
    loaded = published("resnet10", width=8)
    to_hub(loaded, tmp_path / "hub")
    expected = loaded.encode(tmp_path / "a.png").numpy()
    np.testing.assert_array_equal(coulomb.load(tmp_path / "hub").encode(tmp_path / "a.png"), expected)
    np.testing.assert_allclose(by_the_card(tmp_path / "hub", [tmp_path / "a.png"]), expected, rtol=1e-4, atol=1e-5)
    assert "Not evaluated" in (tmp_path / "hub" / "README.md").read_text()


def test_the_card_is_honest(tmp_path):
    to_hub(run(tmp_path / "run", "convnet", width=8, evaluation=EVALUATION), tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: coulomb\n")
    assert "| this encoder | 60.0% | 70.0% | – | 50.0% ± 2.0% | – |" in card and "| raw pixels | 60.0%" in card
    assert "**Use the published weights.** They are ahead." in card and "as good or better" in card
    assert "20 of 100 images held out" in card and "k=20" in card and "20 held-out images of one data set" in card
    assert "recognizes worst: &lt;b&gt;cat|&lt;/b&gt; (10%), dog (90%)" in card, (
        "class names have no effect on the page"
    )
    assert "someone" not in card and "someone" not in (tmp_path / "hub" / "config.json").read_text()


def test_the_head_of_the_card_has_the_figures_as_the_hub_reads_them(tmp_path):
    to_hub(run(tmp_path / "run", "convnet", width=8, evaluation=EVALUATION), tmp_path / "hub")
    data = huggingface_hub.ModelCard.load(tmp_path / "hub" / "README.md").data
    assert {(each.metric_type, each.metric_name, each.metric_value) for each in data.eval_results} == {
        ("accuracy", "kNN", 0.6), ("accuracy", "linear probe", 0.7), ("accuracy", "5 labels per class", 0.5),
    }  # fmt: skip
    assert {each.dataset_name for each in data.eval_results} == {"zoo"} and data.model_name == "convnet"
    assert {each.task_type for each in data.eval_results} == {"image-feature-extraction"}
    assert data.library_name == "coulomb" and data.tags == ["feature-extraction", "contrastive-learning"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return fake_hub(tmp_path / "huggingface", monkeypatch)


@pytest.mark.parametrize("kind", ["image", "text", "pair"])
def test_what_is_pushed_is_loaded_by_its_name(tmp_path, hub, kind):
    image, words = photo(40, 30), ["a red flower"]
    if kind == "image":
        encoder, cells = run(tmp_path / "run", "convnet", width=8), image
    elif kind == "text":
        encoder, cells = coulomb.TextEncoder(texts(), "mine"), words
    else:
        encoder, cells = pair(tmp_path / "run", {"image": "convnet", "caption": texts()}), words
        (tmp_path / "run" / "config.yaml").write_text("{}")
    assert push(encoder if kind != "pair" else tmp_path / "run", "me/mine")["repository"] == "me/mine"
    (hub.path / "me" / "mine" / "code.py").write_text("raise SystemExit")
    again = coulomb.load("hf:me/mine")
    expected = encoder.encode(cells) if kind == "image" else encoder.encode(cells, normalize_embeddings=True)
    found = again.encode(cells) if kind == "image" else again.encode(cells, normalize_embeddings=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not list((hub.path / "cache").rglob("*.py"))  # nothing that could run is downloaded


def test_repositories_of_others_are_not_taken_for_ours(hub):
    (hub.path / "me" / "vit").mkdir(parents=True)
    (hub.path / "me" / "vit" / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(InputError, match=r"hf:me/vit': has random weights; give hf:me/vit@weights"):
        coulomb.load("hf:me/vit")
    (hub.path / "me" / "none").mkdir()
    with pytest.raises(InputError, match=r"hf:me/none.*has random weights"):
        coulomb.load("hf:me/none")


def test_a_hub_that_is_not_reached_is_one_sentence(monkeypatch):
    def fails(*arguments):
        raise LocalEntryNotFoundError("no connection\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    with pytest.raises(InputError, match=r"hf:me/mine.*was not reached \(LocalEntryNotFoundError: no connection\)"):
        coulomb.load("hf:me/mine")


def test_without_an_evaluation_the_head_has_no_figures(tmp_path):
    to_hub(published("resnet10", width=8), tmp_path / "hub")
    assert "model-index" not in (tmp_path / "hub" / "README.md").read_text()


@pytest.mark.parametrize(
    ("counts", "said"), [([3, 0, 4, 1, 5], "8 training images, 4 classes"), (None, "8 training images, no labels")]
)
def test_the_card_counts_classes_without_names(tmp_path, counts, said):
    loaded = run(tmp_path / "run", "convnet", width=8)
    about = json.loads((tmp_path / "run" / "data.json").read_text())
    (tmp_path / "run" / "data.json").write_text(json.dumps(about | {"classes": None, "class_counts": counts}))
    to_hub(loaded, tmp_path / "hub")
    assert said in (tmp_path / "hub" / "README.md").read_text()


def test_a_classifier_goes_along(tmp_path):
    import torch

    from coulomb.models.classifier import Classifier, save_classifier

    loaded = run(tmp_path / "run", "convnet", width=8)
    save_classifier(
        Classifier(torch.randn(2, loaded.encoder.feature_dim), how="linear"), tmp_path / "run", ["cat", "dog"]
    )
    to_hub(loaded, tmp_path / "hub")
    image = photo(40, 40)
    np.testing.assert_array_equal(
        coulomb.load(tmp_path / "hub").classify([image]).probabilities, loaded.classify([image]).probabilities
    )


def test_existing_folders_and_figures_of_other_data_are_refused(tmp_path):
    loaded = run(tmp_path / "run", "convnet", width=8)
    with pytest.raises(InputError, match="already exists"):
        to_hub(loaded, tmp_path / "run")
    with pytest.raises(InputError, match="the run's evaluation"):
        to_hub(loaded, tmp_path / "hub", on="digits")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run"]


class Hub:
    """Records what would be uploaded."""

    calls: list = []  # noqa: RUF012

    def __init__(self, token=None):
        assert token is None

    def create_repo(self, name, **options):
        if "/" not in name:
            raise ValueError("Repo id must be user/name\nand so on")
        self.calls.append((name, options))
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, **options):
        self.calls.append(options)
        return SimpleNamespace(pr_url=None, commit_url="https://hub/commit/1")


def test_push_uploads_the_files_of_the_folder_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    to_hub(run(tmp_path / "run", "convnet", width=8), tmp_path / "hub")
    assert push(tmp_path / "hub", "me/birds", private=True)["repository"] == "me/birds"
    (name, options), uploaded = Hub.calls
    assert name == "me/birds" and options["private"] and uploaded["folder_path"] == str(tmp_path / "hub")
    assert "README.md" in uploaded["allow_patterns"] and "*" not in "".join(uploaded["allow_patterns"])
    with pytest.raises(InputError, match=r"name='birds': the hub refused .*Repo id must be user/name\)"):
        push(tmp_path / "hub", "birds")
    with pytest.raises(InputError, match="was not written by coulomb export"):
        push(tmp_path / "run", "me/birds")
    (tmp_path / "hub" / "README.md").unlink()
    with pytest.raises(InputError, match=r"README.md missing"):
        push(tmp_path / "hub", "me/birds")
