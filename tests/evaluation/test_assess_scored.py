"""Encoders of texts and vectors on scored pairs: runs on one column, towers of pairs, published weights."""

import json

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import coulomb
from coulomb.evaluation.assess_scored import assess_scored
from coulomb.ground.errors import InputError
from coulomb.report import build_report
from coulomb.report.tables import evaluation_table
from tiny_texts import bert, sentence_layout, words
from tower_cases import tiny_run

TEXTS = [f"a {a} {b}" for a in ("red", "green", "blue") for b in ("cat", "dog", "bird", "car")]
PAIRS = [(TEXTS[i], TEXTS[j], float((i % 4 == j % 4) + (i // 4 == j // 4))) for i in range(12) for j in range(i)]


def scored_csv(path, pairs=PAIRS, head="first,second,score"):
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in pairs)]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored") / "texts"
    coulomb.train(
        TEXTS * 2, columns="text", encoder="static-random", epochs=1, batch_size=8, out=str(folder), evaluate=False,
        progress=False,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def pair_run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("pair") / "run")


def expected(encoder, pairs=PAIRS):
    first, second = (np.asarray(encoder.encode([row[side] for row in pairs]), np.float64) for side in (0, 1))
    cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    scores = [row[2] for row in pairs]
    return spearmanr(cosine.round(6), scores).statistic, pearsonr(cosine, scores).statistic


def test_a_run_on_texts_is_measured_beside_its_start_and_bm25(run, tmp_path):
    data = scored_csv(tmp_path / "sts.csv", [*PAIRS, ("", "a red cat", 1.0), ("a cat", "a dog", "")])
    found = coulomb.evaluate(run, pairs=data, progress=False)
    spearman, pearson = expected(coulomb.load(str(run)))
    figures = found["trained"]["scored_pairs"]
    assert figures["spearman"]["value"] == pytest.approx(spearman, abs=1e-4)
    assert figures["pearson"]["value"] == pytest.approx(pearson, abs=1e-4)
    assert figures["spearman"]["low"] < spearman < figures["spearman"]["high"]
    assert {"trained", "random_init", "bm25"} <= set(found)
    assert {each["against"] for each in found["comparison"]} == {"untrained", "bm25"}
    protocol = found["protocol"]
    assert (protocol["pairs_measured"], protocol["pairs_left_out"]) == (len(PAIRS), 2)
    assert json.loads((run / "transfer" / "sts.csv.json").read_text()) == json.loads(json.dumps(found))
    text = evaluation_table(found)
    assert f"{spearman:.3f}" in text and "66 pairs of sts.csv" in text and "2 left out" in text
    assert "trained encoder over BM25" in text


def test_pairs_are_in_the_report_of_the_run(pair_run, tmp_path):
    found = coulomb.evaluate(pair_run, pairs=scored_csv(tmp_path / "sts.csv"), progress=False)
    evaluation = {"columns": ["image", "caption"], "trained": {}, "protocol": {}}
    (pair_run / "evaluation.json").write_text(json.dumps(evaluation))
    value = f"{found['trained']['scored_pairs']['spearman']['value']:.3f}"
    for single in (False, True):
        if single:
            (pair_run / "evaluation.json").write_text(json.dumps({"column": "caption", "kind": "text", "trained": {}}))
        page = build_report(pair_run).read_text()
        assert "other scored pairs" in page and f"<td>{value}" in page and "66 pairs" in page


def test_the_text_tower_of_a_run_on_pairs_in_the_shared_space(pair_run, tmp_path):
    found = coulomb.evaluate(pair_run, pairs=scored_csv(tmp_path / "sts.csv"), progress=False)
    assert found["column"] == "caption" and "columns share" in found["protocol"]["similarity"]
    spearman, _ = expected(coulomb.load(str(pair_run))["caption"])
    assert found["trained"]["scored_pairs"]["spearman"]["value"] == pytest.approx(spearman, abs=1e-4)
    assert coulomb.evaluate(pair_run, pairs=PAIRS, tower="caption", progress=False)["trained"] == found["trained"]


def test_published_weights_write_only_to_out(tmp_path):
    folder = tmp_path / "bert"
    bert(folder)
    sentence_layout(folder)
    pairs = [("a red flower", "a flower", 3), ("cat", "a sofa", 1), ("a cat", "cat", 4), ("leaf", "cat and leaf", 2)]
    out = tmp_path / "found.json"
    found = coulomb.evaluate(str(folder), pairs=pairs, out=out, progress=False)
    spearman, _ = expected(coulomb.load(str(folder)), pairs)
    assert found["starting_point"]["scored_pairs"]["spearman"]["value"] == pytest.approx(spearman, abs=1e-4)
    assert "trained" not in found and found["comparison"] == []
    assert json.loads(out.read_text())["starting_point"] == json.loads(json.dumps(found["starting_point"]))
    assert "published weights" in evaluation_table(found)
    with pytest.raises(InputError, match="out=.*already exists"):
        coulomb.evaluate(str(folder), pairs=pairs, out=out, progress=False)


def test_vectors_are_measured_beside_their_raw_values(tmp_path):
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(40, 3)).astype(np.float32)
    coulomb.train(
        {"x": rows}, columns="x", epochs=1, batch_size=8, out=str(tmp_path / "run"), evaluate=False, progress=False
    )
    pairs = {"a": rows[:20], "b": rows[20:], "score": np.arange(20.0)}
    found = coulomb.evaluate(tmp_path / "run", pairs=pairs, progress=False)
    assert {"trained", "random_init", "raw_values"} <= set(found) and "bm25" not in found
    wide = {"a": np.ones((5, 4)), "b": np.eye(5, 4), "score": np.arange(5.0)}
    with pytest.raises(InputError, match="vectors of 4 values"):
        coulomb.evaluate(tmp_path / "run", pairs=wide, progress=False)


def test_texts_without_tokens_are_left_out_and_counted(tmp_path):
    bert(tmp_path)
    tokenizer = words("$A")
    tokenizer.normalizer = pytest.importorskip("tokenizers").normalizers.Replace("?", "")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    pairs = [("a red flower", "a flower", 3), ("cat", "a sofa", 1), ("?", "cat", 4), ("leaf", "cat and leaf", 2)]
    found = coulomb.evaluate(str(tmp_path), pairs=pairs, progress=False)
    assert (found["protocol"]["pairs_measured"], found["protocol"]["pairs_left_out"]) == (3, 1)
    kept = coulomb.evaluate(str(tmp_path), pairs=[pairs[0], pairs[1], pairs[3]], progress=False)
    assert found["starting_point"]["scored_pairs"] == kept["starting_point"]["scored_pairs"]
    with pytest.raises(InputError, match="only 2 pairs have texts with known tokens"):
        coulomb.evaluate(str(tmp_path), pairs=pairs[1:], progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": [(a, b, 3.0) for a, b, _ in PAIRS]}, "all scores are 3"),
        ({"pairs": [(a, b, "high") for a, b, _ in PAIRS]}, "'high' is no number"),
        ({"pairs": [("a cat", "a cat", score) for score in range(5)]}, "cosines of all 5 pairs are equal"),
        ({"pairs": PAIRS[:2]}, "2 scored pairs"),
        ({"pairs": {"a": TEXTS, "b": TEXTS}}, "no column of scores.*FIRST,SECOND,SCORE"),
        ({"pairs": PAIRS, "columns": "first,second"}, "three columns"),
        ({"pairs": PAIRS, "columns": "first,secnd,score"}, "no column 'secnd'.*did you mean 'second'"),
        ({"pairs": PAIRS, "tower": "image"}, "tower='image': takes images"),
        ({"pairs": PAIRS, "tower": "captoin"}, "tower='captoin'.*did you mean 'caption'"),
        ({"pairs": PAIRS, "on": "photos"}, "on: is not for scored pairs"),
        ({"pairs": PAIRS, "knn_k": 5}, "knn_k: is not for scored pairs"),
        ({"pairs": PAIRS, "full": True}, "full: is not for scored pairs"),
        ({"pairs": PAIRS, "out": "found.json"}, "out: is for encoders by name"),
        ({"columns": "a,b,c"}, "columns: is for scored pairs"),
        ({"tower": "caption"}, "tower: is for scored pairs"),
    ],
)
def test_wrong_arguments_are_one_sentence(pair_run, options, message):
    with pytest.raises(InputError, match=message):
        coulomb.evaluate(pair_run, progress=False, **options)


def test_encoders_of_images_are_refused(tmp_path):
    with pytest.raises(InputError, match="lite0.*takes images"):
        assess_scored("lite0", PAIRS, progress=False)
    with pytest.raises(InputError, match="images alone"):
        coulomb.evaluate(tiny_run(tmp_path / "images", texts=False), pairs=PAIRS, progress=False)
