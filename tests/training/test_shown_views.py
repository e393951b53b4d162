"""What views do to some cells of one column: tokens that are left out, dropout, values that are replaced."""

import json

import numpy as np
import torch

import coulomb
from coulomb.models.build_text import build_text_encoder
from coulomb.training.plan.preflight_columns import preflight_columns
from coulomb.training.plan.resolve import resolve_run
from coulomb.training.plan.shown_views import previewed_views, view_lines
from coulomb.training.plan.towers.text import LONGEST_SHOWN, pieces
from coulomb.training.plan.towers.tower import training_cosines

TEXTS = [f"a {color} {thing} on the {place}" for color in ("red", "blue") for thing in ("cat", "dog", "car", "bird")
         for place in ("sofa", "roof", "street")]  # fmt: skip


def plan(data=TEXTS, columns="text", **options):
    return resolve_run({"data": data, "columns": columns, "batch_size": 4} | options)


def test_pieces_cover_the_text_and_end_where_it_is_cut():
    assert pieces(
        "a red cat", [(0, 0), (0, 1), (2, 5), (6, 9), (0, 0)], np.array([True, True, False, False, True])
    ) == [
        ["a ", True],
        ["red cat", False],
    ]
    assert pieces("red cat and more", [(0, 3), (4, 7)], np.array([True, True])) == [["red cat", True], ["…", True]]
    long = "word " * 100
    spans = [(5 * place, 5 * place + 4) for place in range(100)]
    found = pieces(long, spans, np.arange(100) % 2 == 0)
    assert "".join(piece for piece, _ in found) == long[:LONGEST_SHOWN].rstrip() + "…"


def test_left_out_tokens_are_those_of_the_views():
    found = previewed_views(plan(encoder="static-random"), 8)
    assert (found["way"], found["share"], len(found["samples"])) == ("left_out", 0.5, 8)
    for row, sample in zip(found["rows"], found["samples"], strict=True):
        assert all("".join(piece for piece, _ in view) == TEXTS[row] for view in sample["views"])
        assert all(any(kept for _, kept in view) for view in sample["views"]) and -1 <= sample["cosine"] <= 1
    left = sum(not kept for sample in found["samples"] for view in sample["views"] for _, kept in view)
    assert left > 8 and found["samples"][0]["views"][0] != found["samples"][0]["views"][1]
    lines = view_lines(found)
    assert "50%" in lines[0] and any("·" in line for line in lines[1:])
    assert found == previewed_views(plan(encoder="static-random"), 8)


def test_dropout_has_no_tokens_to_show():
    found = previewed_views(plan(encoder="transformer-small"), 4)
    assert (
        found["way"] == "dropout" and found["rates"] == [0.1] and found["samples"][0]["text"] == TEXTS[found["rows"][0]]
    )
    assert all(sample["cosine"] < 0.999 for sample in found["samples"])
    assert view_lines(found)[0].count("10%") == 1 and len(view_lines(found)) == 1


def test_replaced_values_are_marked():
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    found = previewed_views(plan({name: rows[:, at] for at, name in enumerate("abcde")}, "a+b+c+d+e"), 6)
    assert (found["count"], found["of"], found["names"]) == (3, 5, list("abcde"))
    for row, sample in zip(found["rows"], found["samples"], strict=True):
        assert np.allclose(sample["values"], rows[row])
        assert np.array_equal(sample["replaced"], np.asarray(sample["values"]) != np.asarray(sample["view"]))
    assert view_lines(found)[3].count("*") == 3 and "*" not in view_lines(found)[2]
    wide = previewed_views(plan({"x": np.random.default_rng(0).normal(size=(40, 30))}, "x"), 2)
    assert len(wide["samples"][0]["values"]) == len(wide["names"]) == 12 and wide["of"] == 30


def test_the_check_and_the_run_show_them(tmp_path):
    options = {"data": TEXTS, "columns": "text", "encoder": "static-random", "batch_size": 4, "epochs": 1}
    result, text = preflight_columns(options)
    assert len(result["training"]["views"]["samples"]) == 3 and "views     each of two leaves out 50%" in text
    coulomb.train(**options, out=str(tmp_path / "run"), evaluate=False, progress=False)
    stored = json.loads((tmp_path / "run" / "views.json").read_text())
    assert stored["way"] == "left_out" and len(stored["samples"]) == 8
    pairs = {"a": TEXTS, "b": TEXTS[::-1]}
    assert preflight_columns(options | {"data": pairs, "columns": "a,b"})[0]["training"]["views"] is None


def test_the_cosines_change_nothing():
    network = build_text_encoder("transformer-small", texts=TEXTS, seed=0)
    network.eval()
    stack = network.tokenize(TEXTS[:3]).stack(np.arange(3))
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    cosines = training_cosines(network, [stack, stack], seed=0)
    assert torch.equal(torch.rand(1), expected) and not network.training and max(cosines) < 0.999
    assert cosines == training_cosines(network, [stack, stack], seed=0)
