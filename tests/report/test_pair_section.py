"""The page of a run on two columns: figures, queries, pictures, and files that are damaged or hostile."""

import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from coulomb.evaluation.next_steps import CAUSE
from coulomb.evaluation.pairs import assess_pairs
from coulomb.report.build import render_report
from coulomb.report.collect import read_run
from coulomb.report.pair_section import Cell, cosine_text, pair_section, pictured, read_pair_samples
from pair_cases import pair_inputs


def jpeg(color, size=(40, 20)):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "JPEG")
    return buffer.getvalue()


def previews(shown, hostile=()):
    pictures = [jpeg((place % 256, 90, 160)) for place in shown[0]]
    texts = [f"caption {place}" for place in shown[1]]
    texts[: len(hostile)] = hostile
    return {
        "shown_0": shown[0],
        "pictures_0": np.frombuffer(b"".join(pictures), np.uint8),
        "ends_0": np.cumsum([len(each) for each in pictures]),
        "shown_1": shown[1],
        "texts_1": np.array(texts),
    }


@pytest.fixture(scope="module")
def assessed():
    return assess_pairs(pair_inputs(held_out=60, skill=2))


def run_with(folder, assessed, arrays=None, evaluation=None, hostile=()):
    (folder / "evaluation.json").write_text(json.dumps(assessed.evaluation | (evaluation or {})))
    (folder / "config.yaml").write_text("data: pairs.parquet\nepochs: 40\n")
    (folder / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "loss": 2.5}\n')
    for name in ("data.json", "environment.json"):
        (folder / name).write_text("{}")
    stored = assessed.samples | previews(assessed.shown, hostile) | (arrays or {})
    np.savez(folder / "samples.npz", **{name: each for name, each in stored.items() if each is not None})
    return read_run(folder)


def test_page_shows_figures_curves_queries_and_the_map(tmp_path, assessed):
    run = run_with(tmp_path, assessed)
    page = render_report(run)
    assert run.problems == []
    trained = assessed.evaluation["trained"]["first_to_second"]
    assert f"{100 * trained['recall_at']['5']:.1f}\u202f%" in page and f"{trained['mrr']:.3f}" in page
    assert page.count('class="plot ') == 3  # the loss and both directions
    assert "image → caption" in page and "caption → image" in page and "linear map" in page
    assert page.count("<circle") == 60 + 2 and page.count("<rect") == 120  # the brand has two
    assert "http" not in page.replace("http-equiv", "")


def test_queries_are_those_of_the_samples(tmp_path, assessed):
    section = pair_section(run_with(tmp_path, assessed))
    for side, direction in enumerate(section.directions):
        samples = assessed.samples
        worst = samples[f"worst_{side}"]
        assert (len(direction.worst), len(direction.others)) == (worst.sum(), (~worst).sum())
        shown = direction.worst[0]
        query = samples[f"query_{side}"][0]
        assert shown.rank == samples[f"ranks_trained_{side}"][query]
        assert shown.query.row == samples[f"rows_{side}"][query]
        assert [value for _, value, _ in shown.found] == pytest.approx(samples[f"cosine_{side}"][0, 1:])
        assert [right for *_, right in shown.found] == samples[f"right_{side}"][0].tolist()
        assert any(right for each in direction.others for *_, right in each.found)
    there, back = section.directions
    assert there.worst[0].query.picture is not None and there.worst[0].answer.text.startswith("caption ")
    assert back.worst[0].query.picture is None and back.worst[0].answer.picture is not None
    pictures = {cell.picture for d in section.directions for s in d.worst + d.others for cell in (s.query, s.answer)}
    assert section.sheets[0].count >= len(pictures - {None}) and section.sheets[1] is None
    assert (there.worst[0].query.width, there.worst[0].query.height) == (1, 0.5)  # of 40×20 pixels, without a border


def test_table_marks_the_best_and_shows_intervals(tmp_path, assessed):
    section = pair_section(run_with(tmp_path, assessed))
    assert list(section.names) == ["trained", "linear_map", "chance"]
    rows = dict(section.table[0][1])
    values = [assessed.evaluation[name]["first_to_second"]["recall_at"]["1"] for name in section.names]
    assert [best for *_, best in rows["R@1"]] == [value == max(values) for value in values]
    ranks = [assessed.evaluation[name]["first_to_second"]["median_rank"] for name in section.names]
    assert [best for *_, best in rows["median rank"]] == [value == min(ranks) for value in ranks]
    low, high = assessed.evaluation["trained"]["intervals"]["first_to_second_mrr"]
    assert rows["MRR"][0][1] == f"{low:.3f}–{high:.3f}" and rows["MRR"][2][1] == ""
    mrr = assessed.evaluation["trained"]["mean"]["mrr"]  # as in the verdict
    assert section.tiles.values["trained"].mean == mrr == assessed.evaluation["comparison"][0]["overall"]["trained"]
    page = render_report(run_with(tmp_path, assessed))
    assert f"<dt>trained towers, MRR</dt><dd>{mrr:.3f}</dd>" in page and "R@5</dt>" not in page


def test_charts_speak_of_pairs_and_their_columns(tmp_path, assessed):
    run = run_with(tmp_path, assessed)
    lines = [
        {"epoch": n, "recall_at_1": 0.1 + n / 100, "recall_at_5": 0.4, "recall_at_10": 0.6, "separation": 0.84}
        for n in (0, 1)
    ]
    lines[1] |= {"embedding_rank": 40, "second_rank": 30, "modality_gap": 0.2, "positive_similarity": 0.3}
    run.measures += lines
    run.training[0] |= {"temperature": 0.07, "images_per_second": 900.0}
    page = render_report(run)
    assert "Retrieval during training" in page and "Pairs should be closer than negatives." in page
    for words in ("pairs per second", "Modality gap", "Temperature", "R@1 from 10.0", "image from 40.0 to 40.0"):
        assert words in page, words
    for words in ("two views", "images per second", "Other metrics", "training views", "View retrieval"):
        assert words not in page, words


def test_the_doctor_on_the_page_is_not_also_a_next_step(tmp_path, assessed):
    evaluation = {"verdict": assessed.evaluation["verdict"] | {"next": [CAUSE, "Train longer."]}}
    run = run_with(tmp_path, assessed, evaluation=evaluation)
    assert "Look for the cause" in render_report(run)
    (tmp_path / "doctor.json").write_text('{"verdicts": [], "checked": []}')
    page = render_report(read_run(tmp_path))
    assert "Look for the cause" not in page and "Train longer." in page


def test_a_remedy_that_stands_beside_the_verdict_is_not_repeated(tmp_path, assessed):
    evaluation = {"verdict": assessed.evaluation["verdict"] | {"next": [CAUSE, "Train longer.", "Use more."]}}
    for remedy, shown in (("Train longer. Use more.", False), ("Train longer. Lower it.", True)):
        run_with(tmp_path, assessed, evaluation=evaluation)
        found = {"name": "nothing-learned", "severity": "warning", "title": "Nothing.", "remedy": remedy}
        (tmp_path / "doctor.json").write_text(json.dumps({"verdicts": [found], "checked": []}))
        assert ("Remedy." in render_report(read_run(tmp_path))) == shown


def test_texts_are_escaped_and_columns_named(tmp_path, assessed):
    hostile = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\u202egpj"]
    evaluation = {"columns": ["<b>image", "caption"]}
    page = render_report(run_with(tmp_path, assessed, evaluation=evaluation, hostile=hostile * 20))
    assert "<img src=x" not in page and "<script>alert" not in page and "\u202e" not in page and "<b>image" not in page
    assert "&lt;img src=x" in page


def test_run_without_previews_or_samples_still_has_its_figures(tmp_path, assessed):
    nothing = dict.fromkeys(("shown_0", "pictures_0", "ends_0", "shown_1", "texts_1"))
    section = pair_section(run_with(tmp_path, assessed, nothing))
    assert section.directions[0].worst[0].query == Cell(section.directions[0].worst[0].query.row)
    (tmp_path / "samples.npz").unlink()
    run = read_run(tmp_path)
    page = render_report(run)
    assert ["samples.npz does not exist" in each for each in run.problems] == [True]
    assert "This run folder has no samples." in page and "R@10" in page


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ranks_trained_0", lambda x: x * 0),
        ("ranks_trained_0", lambda x: x[:-1]),
        ("found_1", lambda x: x + 1000),
        ("found_1", lambda x: x[:, :1]),
        ("query_0", lambda x: x - 1000),
        ("cosine_0", lambda x: x[:2]),
        ("mapped_1", lambda x: x + 1000),
        ("rows_0", lambda x: x.astype(float)),
        ("answer_0", lambda x: None),
        ("ends_0", lambda x: x[:, None]),
        ("right_0", lambda x: x[:1]),
    ],
)
def test_damaged_samples_are_named(tmp_path, assessed, name, change):
    stored = (assessed.samples | previews(assessed.shown))[name]
    run = run_with(tmp_path, assessed, {name: change(stored)})
    assert pair_section(run).directions == []
    assert len(run.problems) == 1 and run.problems[0].startswith("samples.npz cannot be read")


def test_pictures_that_cannot_be_decoded_and_other_maps(tmp_path, assessed):
    pictures = previews(assessed.shown)["pictures_0"].copy()
    run = run_with(tmp_path, assessed, {"pictures_0": pictures * 0, "map_tsne": np.full((3, 2), 50.0)})
    section = pair_section(run)
    assert section.directions[0].worst[0].query.text == "unreadable picture" and section.sheets == (None, None)
    assert section.map.layout.key == "pca"
    problems = []
    assert read_pair_samples(tmp_path / "config.yaml", problems) is None and problems


def test_evaluations_of_images_have_no_such_section(tmp_path, assessed):
    for columns in (None, ["image"], ["image", 3], "ab"):
        run = run_with(tmp_path, assessed, evaluation={"columns": columns})
        assert run.columns == [] and pair_section(run) is None


def test_towers_alone_and_bm25(tmp_path):
    inputs = pair_inputs(held_out=40, skill=2)
    texts = ["a cat"] * 80, [f"dog {number}" for number in range(80)]
    found = assess_pairs(dataclasses.replace(inputs, texts=texts))
    evaluation = {"towers": {"image": {"knn": {"trained": {"accuracy": 0.5}}}, "odd": 3}}
    section = pair_section(run_with(tmp_path, found, evaluation=evaluation))
    assert section.towers == [("image", "50.0\u202f%", "–"), ("odd", "–", "–")]
    assert "bm25" in section.names and len(section.directions[0].curve.curves) == 4


@pytest.mark.parametrize(
    ("config", "kinds", "sentence"),
    [
        ("tune: image=none,caption=none\ncached_views: 4\n", {"image": "image"}, "as it is, and of 3 random views."),
        ("tune: none\ncached_views: 2\n", {"image": "image"}, "as it is, and of 1 random view."),
        ("tune: image=none,caption=last:2\ncached_views: 1\n", {"image": "image"}, "computed once, as it is."),
        (
            "tune: image=last:2,caption=none\n",
            {"image": "image", "caption": "text"},
            "a new random view of each picture.",
        ),
        ("tune: none\n", {"question": "text", "answer": "text"}, ""),
        ("tune: none\n", "no object", ""),
    ],
)
def test_views_of_pictures_are_shown_with_what_training_sees(tmp_path, assessed, config, kinds, sentence):
    run_with(tmp_path, assessed)
    (tmp_path / "config.yaml").write_text(f"data: pairs.parquet\nepochs: 40\n{config}")
    (tmp_path / "data.json").write_text(json.dumps({"columns": kinds}))
    Image.new("RGB", (90, 60), "red").save(tmp_path / "views.png")
    run = read_run(tmp_path)
    assert pictured(run).endswith(sentence) and bool(pictured(run)) == bool(sentence)
    page = render_report(run)
    assert ('alt="Contact sheet' in page) == ('href="#views"' in page) == bool(sentence)
    if sentence:
        assert sentence in page
        (tmp_path / "views.png").write_text("no picture")
        run = read_run(tmp_path)
        assert "no contact sheet of views" in render_report(run)
        assert run.problems[-1] == "views.png is not a readable picture."


def test_negative_cosines_have_a_minus_sign():
    assert (cosine_text(-0.154), cosine_text(0.2), cosine_text(-0.001)) == ("−0.15", "0.20", "0.00")


def test_results_on_other_data_are_shown(tmp_path, assessed):
    (tmp_path / "transfer").mkdir()
    zero = {
        "top": {"1": 0.625, "5": 1.0}, "balanced_accuracy": 0.5, "classes": ["cat", "dog", "<b>"],
        "chance": {"top": {"1": 1 / 3, "5": 1.0}, "balanced_accuracy": 1 / 3},
        "protocol": {"prompts": ["a photo of a {}", "<i>{}"]},
    }  # fmt: skip
    figures = {"knn": 0.81, "linear": 0.8765, "few_shot": None}
    found = {
        "zero_shot": zero, "trained": figures, "starting_point": figures | {"knn": 0.75}, "protocol": {"name": "rooms"},
    }  # fmt: skip
    (tmp_path / "transfer" / "rooms.json").write_text(json.dumps(found))
    (tmp_path / "transfer" / "other.json").write_text(
        json.dumps({"protocol": {}, "zero_shot": {"top": 3}, "trained": 5})
    )
    run = run_with(tmp_path, assessed)
    section = pair_section(run)
    rooms = next(each for each in section.transfers if each.name == "rooms")
    assert rooms.words[0] == ("top-1", "62.5\u202f%", "33.3\u202f%") and [row[0] for row in rooms.words] == [
        "top-1",
        "balanced accuracy",
    ]
    assert rooms.rows[0].values["starting_point"].mean == 0.75
    page = render_report(run)
    assert "rooms" in page and "62.5\u202f%" in page and "87.6" in page and "a photo of a {}" in page
    assert "<i>{}" not in page and run.problems == []
