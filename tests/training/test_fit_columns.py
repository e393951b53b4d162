"""Runs on several columns: pictures with captions, pairs of texts; resumed, evaluated, opened again."""

import dataclasses
import json
from itertools import permutations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import linear, normalize

import coulomb
from captioned_squares import squares
from coulomb.ground.errors import InputError
from coulomb.index import Index
from coulomb.metrics.linear_map import fit_linear_map
from coulomb.models import load_encoder
from coulomb.models.pair_encoder import PairEncoder, kind_of
from coulomb.report.tables import summary_table
from coulomb.training.checkpoints import read_checkpoint
from coulomb.training.plan.column_towers import by_column
from coulomb.training.plan.given import holds_texts
from coulomb.training.plan.resolve import resolve_run
from tiny_texts import bert

OPTIONS = {
    "columns": "image,caption",
    "encoder": "image=convnet,caption=static-random",
    "embedding_dim": 16,
    "batch_size": 12,
    "epochs": 4,
    "knn_every": 2,
    "image_size": 16,
    "precision": "32",
    "workers": 0,
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("pairs") / "run"
    return coulomb.train(squares(), out=str(out), **OPTIONS)


def test_a_run_on_pictures_and_captions_has_its_files_and_figures(run):
    assert isinstance(run, coulomb.PairRun)
    lines = run.metrics
    assert {"temperature", "loss", "gradient_norm"} <= set(lines[-2] | lines[-1] | lines[1])
    measured = [line for line in lines if "recall_at_5" in line]
    assert [line["epoch"] for line in measured] == [0, 2, 4]
    assert measured[-1]["modality_gap"] >= 0
    assert set(run.evaluation["trained"]) >= {"first_to_second", "second_to_first", "mean", "intervals"}
    assert {"untrained", "chance"} <= set(run.evaluation)
    with Image.open(run.path / "views.png") as sheet:  # eight pictures, each with eight views
        assert sheet.width == pytest.approx(9 * 96, rel=0.1) and sheet.height == pytest.approx(8 * 96, rel=0.1)
    assert "Contact sheet" in (run.path / "report.html").read_text()
    described = json.loads((run.path / "towers.json").read_text())
    assert described["columns"]["caption"] == {"kind": "text", "tower": "caption"}
    assert (run.path / "towers" / "caption" / "tokenizer.json").is_file()
    split = json.loads((run.path / "split.json").read_text())
    captions = squares()["caption"]
    of = {part: {captions[int(row)] for row in split[part]} for part in ("train", "test")}
    assert of["train"] and of["test"] and not of["train"] & of["test"]  # no caption on both sides


def test_the_run_encodes_pictures_and_words_in_one_space(run, tmp_path):
    opened = coulomb.load(str(run.path))
    data = squares(1)
    path = tmp_path / "one.png"
    path.write_bytes(data["image"][0])
    words = opened.encode(["a red square", "a blue square"])
    assert words.shape == (2, 16) and opened.encode(str(path)).shape == (1, 16)
    assert opened.encode("a red square", column="caption").shape == (1, 16)
    assert opened.similarity(str(path), ["a red square", "a blue square"]).shape == (1, 2)
    torch.testing.assert_close(opened.similarity(words, words).diagonal(), torch.ones(2))
    assert isinstance(opened["image"], coulomb.ImageEncoder) and isinstance(opened["caption"], coulomb.TextEncoder)
    with pytest.raises(InputError, match=r"column='captoin'.*caption"):
        opened.encode("a red square", column="captoin")
    with pytest.raises(InputError, match="vectors"):
        opened.of_kind("vector")


def test_an_index_is_searched_by_words(run, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    data = squares(1)
    for number, image in enumerate(data["image"]):
        (folder / f"{number:02}.png").write_bytes(image)
    index = Index.build(str(folder), str(tmp_path / "photos.index"), encoder=str(run.path), progress=False)
    found = index.search(text="a large red square on the left", top=3)
    expected = run.similarity(sorted(map(str, folder.glob("*.png"))), "a large red square on the left")[:, 0]
    assert [row["id"] for row in found] == [f"{place:02}.png" for place in expected.argsort(descending=True)[:3]]
    mixed = index.search(ids="00.png", text=["red", "left"], without_text="blue", top=2)
    assert len(mixed) == 2 and "00.png" not in [row["id"] for row in mixed]
    reopened = Index.open(str(tmp_path / "photos.index"))
    assert reopened.search(text="a large red square on the left", top=3) == found
    with pytest.raises(InputError, match="text"):
        index.search()


def test_an_index_of_captions_is_searched_by_pictures(run, tmp_path):
    data = squares(1)
    index = Index.build(
        {"caption": data["caption"]}, tmp_path / "i", columns="caption", encoder=str(run.path), progress=False
    )
    path = tmp_path / "one.png"
    path.write_bytes(data["image"][0])
    found = index.search(str(path), top=3)
    expected = run.similarity(str(path), [text.strip() for text in data["caption"]])[0]
    assert found[0]["similarity"] == pytest.approx(float(expected.max()), abs=1e-3)
    assert found[0]["text"] in data["caption"]
    assert Index.open(tmp_path / "i").search(str(path), top=3) == found  # the run is found by its path
    assert index.search(text=data["caption"][0], top=1)[0]["text"] == data["caption"][0]
    with pytest.raises(InputError, match="does not exist|no such file"):
        index.search("not a picture")


def test_words_need_a_run_on_words(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(squares(1)["image"][:3]):
        (folder / f"{number}.png").write_bytes(image)
    index = Index.build(str(folder), str(tmp_path / "index"), image_size=32, progress=False)
    with pytest.raises(InputError, match="--columns image,caption"):
        index.search(text="a red square")


def test_a_run_resumes_bit_identically(tmp_path):
    whole = coulomb.train(squares(), out=str(tmp_path / "whole"), evaluate=False, **OPTIONS)
    half = coulomb.train(squares(), out=str(tmp_path / "half"), evaluate=False, **OPTIONS | {"checkpoint_every": 3})
    first = half.path / "checkpoints" / "previous.ckpt"
    (half.path / "checkpoints" / "last.ckpt").unlink()
    assert 0 < read_checkpoint(first)["global_step"] < 12
    again = coulomb.train(squares(), resume_from=str(half.path), evaluate=False, progress=False)
    for name in ("image", "caption"):
        one, other = (each.path / "towers" / name / "encoder.safetensors" for each in (whole, again))
        assert one.read_bytes() == other.read_bytes()
    losses = [[line["loss"] for line in each.metrics if "loss" in line] for each in (whole, again)]
    assert losses[0] == losses[1]


def test_frozen_towers_are_computed_once_and_give_the_features_of_the_run(tmp_path):
    options = OPTIONS | {"encoder": "image=lite0,caption=static", "image_size": 32, "epochs": 2, "cached_views": 2}
    run = coulomb.train(
        squares(1), out=str(tmp_path / "run"), evaluate=False, **options | {"tune": "image=none,caption=none"}
    )
    assert not list(run.path.glob("*.f32"))  # the cache is deleted
    start = coulomb.load("static")
    adapter = run["caption"].encoder.adapter
    texts = ["a red square", "a large blue one"]
    expected = linear(normalize(start.encode(texts), dim=1), adapter.weight, adapter.bias)
    torch.testing.assert_close(run.encode(texts), expected, rtol=1e-4, atol=1e-5)


def test_frozen_towers_begin_from_the_best_linear_map_between_them(tmp_path):
    data = squares(2)
    options = OPTIONS | {"encoder": "image=lite0,caption=static", "image_size": 32, "cached_views": 1, "epochs": 0}
    options |= {"tune": "image=none,caption=none", "embedding_dim": 512, "knn_every": 0}
    run = coulomb.train(data, out=str(tmp_path / "run"), evaluate=False, **options)
    train = [int(row) for row in json.loads((run.path / "split.json").read_text())["train"]]
    captions = [data["caption"][row] for row in train]
    paths = []
    for row in train:
        paths.append(tmp_path / f"{row}.png")
        paths[-1].write_bytes(data["image"][row])
    pictures, words = run.encode(paths), run.encode(captions)
    untouched = coulomb.ImageEncoder(load_encoder(run.path / "checkpoints" / "initial" / "image"), "lite0")
    features = untouched.with_canvas(run["image"].canvas).encode(paths)
    ids = np.array([[data["image"].index(data["image"][row]), captions.index(data["caption"][row])] for row in train])
    found = fit_linear_map(features.numpy(), coulomb.load("static").encode(captions).numpy(), ids)
    first, second = (
        torch.from_numpy(each).float() for each in found.embed(features, coulomb.load("static").encode(captions))
    )
    expected = normalize(first, dim=1) @ normalize(second, dim=1).T
    torch.testing.assert_close(normalize(pictures, dim=1) @ normalize(words, dim=1).T, expected, rtol=1e-3, atol=1e-3)


def test_pairs_of_texts_share_a_tower(tmp_path):
    data = squares(1)
    pairs = {"question": [text.replace("a ", "which ") for text in data["caption"]], "answer": data["caption"]}
    options = OPTIONS | {"columns": ["question", "answer"], "encoder": "static-random", "epochs": 1, "batch_size": 6}
    run = coulomb.train(pairs, out=str(tmp_path / "run"), **options)
    assert run["question"] is run["answer"]
    assert {"bm25", "untrained", "chance"} <= set(run.evaluation)
    assert [path.name for path in (run.path / "towers").iterdir()] == ["question"]
    assert load_encoder(run.path / "towers" / "question").adapter is None  # the space of the encoder is shared already


def test_a_frozen_tower_of_both_columns_begins_from_its_own_space(tmp_path):
    bert(tmp_path / "bert")
    texts = [" ".join(words) for words in permutations(["red", "flower", "leaf", "cat"])]
    pairs = {"question": [f"a {text}" for text in texts], "answer": [f"its {text}" for text in texts]}
    options = OPTIONS | {
        "columns": "question,answer", "encoder": str(tmp_path / "bert"), "tune": "none", "epochs": 1, "lr": 1e-12,
    }  # fmt: skip
    run = coulomb.train(pairs, out=str(tmp_path / "run"), **options)
    untouched = coulomb.TextEncoder(load_encoder(run.path / "checkpoints" / "initial" / "question"), "bert")
    expected = normalize(torch.as_tensor(untouched.encode(texts)), dim=1)
    torch.testing.assert_close(torch.as_tensor(run.encode(texts)), expected, rtol=1e-4, atol=1e-5)


def test_columns_of_negatives_are_keys(tmp_path):
    data = squares(1)
    data["wrong"] = data["caption"][::-1]
    options = OPTIONS | {"columns": "image,caption,wrong:negative", "epochs": 1, "batch_size": 6}
    run = coulomb.train(data, out=str(tmp_path / "run"), evaluate=False, **options)
    assert run.columns["wrong"]["tower"] == "caption"
    assert json.loads((run.path / "data.json").read_text())["negatives"] == ["wrong"]
    with pytest.raises(InputError, match="siglip"):
        coulomb.train(data, out=str(tmp_path / "other"), method="siglip", **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": "image,text"}, "text"),
        ({"encoder": "image=static,caption=static"}, "encoder='static'"),
        ({"encoder": "image=convnet,captions=static"}, "captions"),
        ({"encoder": "image=convnett,caption=static"}, "convnett"),
        ({"encoder": "image=convnet,caption=./nowhere"}, "nowhere"),
        ({"tune": "image=none"}, "tune='image=none'"),
        ({"method": "simclr"}, "method='simclr'"),
        ({"method": "clipp"}, "clip"),
        ({"whitening": 0.5}, "whitening=0.5"),
        ({"layer_decay": 0.75}, "layer_decay=0.75"),
        ({"preset": "paper"}, "preset='paper'"),
        ({"n_views": 2}, "n_views=2"),
        ({"head_layers": 3}, "head_layers=3"),
        ({"channels": 1}, "channels=1"),
        ({"warmup_epochs": 50.0}, "warmup_epochs=50"),
        ({"batch_size": 1000}, "batch_size=1000: larger than the .* training rows"),
        ({"encoder": "image=convnet,caption=nowhere/model"}, "'nowhere/model': there is no such folder"),
        ({"method_options": {"queue_size": -1}}, "queue_size=-1"),
        ({"method_options": {"same_cells": "maybe"}}, "same_cells='maybe'"),
        ({"method_options": {"matryoshka": "7x"}}, "matryoshka='7x'"),
        ({"method": "siglip", "method_options": {"scale": -1.0}}, "scale=-1"),
    ],
)
def test_wrong_options_are_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        coulomb.train(squares(1), out=str(tmp_path / "run"), **OPTIONS | {"batch_size": 6} | changes)
    assert not (tmp_path / "run").exists()


def test_the_options_of_a_run_can_be_given_again(run):
    """The report shows them as a command; n_views=1 was refused."""
    elsewhere = {"out": None, "data": None}
    config = dataclasses.asdict(run.config) | elsewhere
    again = resolve_run({"data": squares()} | {name: value for name, value in config.items() if value is not None})
    assert dataclasses.asdict(again.config) | elsewhere == config


@pytest.mark.parametrize("options", [{"full": True}, {"knn_k": 5}])
def test_options_of_the_evaluation_of_images_are_refused(run, options):
    """They were ignored."""
    with pytest.raises(InputError, match=f"{next(iter(options))}: has no effect on a run on columns"):
        coulomb.evaluate(run.path, data=squares(), progress=False, **options)


def test_a_run_whose_data_changed_says_so(tmp_path):
    lines = [f"question {n},answer {n}" for n in range(20)]
    (tmp_path / "qa.csv").write_text("\n".join(["q,a", *lines]))
    options = {"columns": "q,a", "encoder": "static-random", "batch_size": 16, "epochs": 1, "knn_every": 0}
    run = coulomb.train(str(tmp_path / "qa.csv"), out=str(tmp_path / "run"), evaluate=False, progress=False, **options)
    (tmp_path / "qa.csv").write_text("\n".join(["q,a", *lines[:-5]]))  # fewer rows than one batch
    for command in (coulomb.evaluate, lambda path: coulomb.train(resume_from=path, progress=False)):
        with pytest.raises(InputError, match="'.*run': the data changed since the run began"):
            command(run.path)
    (tmp_path / "qa.csv").unlink()
    with pytest.raises(InputError, match=r"'.*run': the data of the run cannot be opened: .*qa\.csv"):
        coulomb.evaluate(run.path)


def test_texts_that_are_cut_are_counted_as_texts(tmp_path, caplog):
    """They were counted once more, as images with more than 8 bits per channel."""
    data = squares(1)
    data["caption"][0] = "red " * 50
    options = OPTIONS | {"batch_size": 6, "epochs": 1, "knn_every": 0, "longest": 12}
    with caplog.at_level("INFO", "coulomb"):
        coulomb.train(data, out=str(tmp_path / "run"), evaluate=False, **options)
    said = [record.getMessage() for record in caplog.records]
    assert any("more than 12 tokens" in each for each in said) and not any("8 bits" in each for each in said)


def test_token_vectors_that_are_not_installed_are_missed_before_training(monkeypatch):
    monkeypatch.setattr("coulomb.models.wordllama.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install wordllama"):
        resolve_run({"data": squares(1), "columns": "image,caption", "batch_size": 6})


def test_a_short_run_has_a_short_warm_up(tmp_path):
    plan = resolve_run({"data": squares(1), "columns": "image,caption", "batch_size": 6, "epochs": 2})
    assert plan.config.warmup_epochs == pytest.approx(0.1) and plan.config.knn_every == 1


def test_columns_whose_folders_would_be_the_same_are_refused():
    data = {"a b": squares(1)["caption"], "a/b": squares(1)["caption"][::-1]}
    with pytest.raises(InputError, match=r"'a b' and 'a/b'"):
        resolve_run({"data": data, "columns": ["a b", "a/b"], "batch_size": 6})


def test_clip_needs_columns(tmp_path):
    with pytest.raises(InputError, match="columns"):
        coulomb.train("digits", out=str(tmp_path / "run"), method="clip", progress=False)


def test_values_by_column():
    names = ("image", "caption")
    assert by_column("tune", "image=none, caption=last:2", names) == {"image": "none", "caption": "last:2"}
    assert by_column("tune", "last:2", names) == {"image": "last:2", "caption": "last:2"}
    assert by_column("encoder", None, names) == {}
    for wrong in ("image=none,image=all", "image=none,x", "image=,caption=all", "pixels=none"):
        with pytest.raises(InputError, match="encoder="):
            by_column("encoder", wrong, names)


def test_what_holds_texts_and_what_kind_a_cell_is(tmp_path):
    assert holds_texts("notes.txt") and holds_texts(["two words", "b"])
    assert not holds_texts("photos/") and not holds_texts(["a.jpg", "b.jpg"]) and not holds_texts(np.zeros(3))
    assert [kind_of(each) for each in ("a red flower", ["x y"], "rose.jpg", [np.zeros((4, 4))], str(tmp_path))] == [
        "text", "text", "image", "image", "image",
    ]  # fmt: skip
    assert isinstance(
        resolve_run({"data": squares(1), "columns": "image,caption", "batch_size": 6}).config.encoder, str
    )
    with pytest.raises(InputError, match=r"towers\.json"):
        PairEncoder(tmp_path).columns


def test_several_seeds_are_summarized(tmp_path):
    options = OPTIONS | {"epochs": 1, "knn_every": 0}
    summary, out = coulomb.train_seeds(2, squares(), out=str(tmp_path / "seeds"), **options)
    values = [
        run.evaluation["trained"]["first_to_second"]["mrr"] for run in map(coulomb.load, (out / "seed0", out / "seed1"))
    ]
    figures = summary["figures"]["trained"]["first_to_second.mrr"]
    assert figures["values"] == values and figures["mean"] == pytest.approx(sum(values) / 2)
    table = summary_table(summary)
    assert "R@5 →" in table and "MRR ←" in table and "trained towers" in table and "untrained towers" in table
    assert f"{figures['mean']:.3f} ±" in table
