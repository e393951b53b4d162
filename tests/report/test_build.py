"""The page as text: what is on it, what degrades, what is escaped."""

import hashlib
import json
import re
from base64 import b64decode, b64encode
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.report import build_report
from coulomb.report.collect import read_run
from coulomb.report.gallery import sprite_sheet


class Page(HTMLParser):
    """Tags, their attributes, scripts and visible text of a page."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags, self.scripts, self.words, self.inside = [], [], [], None
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.inside != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def data(self):
        return json.loads(self.scripts[0][1])


@pytest.fixture
def page_of(run_folder, maker):
    def build(change=lambda folder: None):
        change(run_folder)
        return Page(build_report(run_folder))

    return build


@pytest.mark.parametrize("kind", ["labeled", "unlabeled", "partial", "stopped", "hostile", "figures", "weights"])
def test_every_kind_of_run_gives_a_page_that_asks_for_nothing(page_of, maker, kind):
    page = page_of(maker.changes[kind])
    assert len(page.source.encode()) < 8_000_000
    for tag, attributes in page.tags:
        assert tag not in {"iframe", "object", "embed", "base", "form", "audio", "video"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "srcset", "poster"):
            assert re.match(r"data:image/|data:,$|#", attributes.get(name) or "#"), (tag, attributes)
    assert re.findall(r"url\((?!\"data:image/|#arrow)", page.source) == []
    assert "@import" not in page.source
    assert len(page.scripts) == 2
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    digest = b64encode(hashlib.sha256(page.scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_a_complete_run_is_told_completely(page_of):
    page = page_of()
    for expected in (
        "The encoder learned well",
        "constant embeddings: ln(2N−1) = 6.24",
        "raw pixels 96.1 %",
        "untrained network 89.4 %",
        "5 labels per class",
        "± 1.1",
        "k = 200, σ = 0.1",
        "12 held-out images drawn at random",
        "t-SNE",
        "Stratified split",
        "--temperature 0.2",
        "2.13.0",
        "1,437 at 16×16",
    ):
        assert expected in page.text, expected
    assert "Some parts of the run could not be read" not in page.text
    assert "missing" not in {a.get("class") for _, a in page.tags}


def test_starting_weights_are_in_every_part_of_the_page(page_of, maker):
    page = page_of(maker.changes["weights"])
    for expected in (
        "Use the published weights as they are",
        "the published weights 95.5 %",
        "coulomb embed lite0 digits --image-size 96 --out features.parquet",
        "starting weights 98.5 %",  # line of the kNN chart
        "the same network with the weights that it started from, unchanged; raw pixels; and the same network with random "
        "weights. k nearest neighbors",
        "moved the features of an image by 0.48",
        "recovers 32 % of the starting features from the trained ones, and 1 % from the untrained network’s",
    ):
        assert expected in page.text, expected
    assert [a["class"] for t, a in page.tags if t == "i" and "key" in (a.get("class") or "").split()][:4] == [
        "key trained", "key starting_point", "key raw_pixels", "key random_init"]  # fmt: skip


def test_runs_from_scratch_have_no_starting_weights(page_of):
    page = page_of()
    assert (
        "starting_point" not in {a.get("class") for _, a in page.tags}
        and "the same network before training" in page.text
    )
    assert len(re.findall(r'<th scope="col"><i class="key', page.source)) == 3


def test_wrong_neighbors_are_marked_and_only_those(page_of, run_folder):
    page = page_of()
    run = read_run(run_folder)
    thumbs = [a for t, a in page.tags if "thumb" in (a.get("class") or "").split() and "aria-label" in a]
    assert len(thumbs) == 12 * 9
    name_of = dict(zip(run.samples.ids, run.samples.labels.tolist(), strict=True))
    wrong = 0
    for row in range(12):
        query, *others = thumbs[9 * row : 9 * row + 9]
        label = name_of[query["title"].split()[-1]]
        for other in others:
            differs = name_of[other["title"].split()[-1]] != label
            assert ("wrong" in other["class"].split()) == differs
            assert ("another class" in other["aria-label"]) == differs
            wrong += differs
    assert wrong > 0


def test_without_labels_nothing_is_marked_and_nothing_is_claimed(page_of, maker):
    page = page_of(maker.changes["unlabeled"])
    assert "thumb sheet wrong" not in page.source.split("<script")[0]
    assert "other view of an unseen image" in page.text
    assert "View retrieval during training" in page.text
    assert "marks another class" not in page.text
    assert page.data["map"]["classes"] == []
    assert [one["key"] for one in page.data["map"]["colorings"]] == ["cluster"]


def test_partial_labels(page_of, maker):
    page = page_of(maker.changes["partial"])
    assert -1 in page.data["map"]["colorings"][0]["of"]
    assert 'class="none"' in page.source


def test_a_run_that_was_killed(page_of, maker):
    page = page_of(maker.changes["stopped"])
    for expected in (
        "Not evaluated yet", "epoch 7", "1 line(s) cannot be read", "no neighbors and no map", "has not been evaluated yet",
    ):  # fmt: skip
        assert expected in page.text, expected


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "data.json", "metrics.jsonl", "evaluation.json", "samples.npz", "views.png", "environment.json"],
)
@pytest.mark.parametrize("damage", ["gone", "garbage", "empty", "list"])
def test_any_part_may_be_missing_or_damaged(page_of, name, damage):
    def change(folder):
        path = folder / name
        path.unlink()
        if damage != "gone":
            path.write_bytes({"garbage": b"\x80\xff{]", "empty": b"", "list": b"[1, 2]"}[damage])

    page = page_of(change)
    if (name, damage) not in {("views.png", "gone"), ("metrics.jsonl", "empty")}:
        assert "Some parts of the run could not be read" in page.text
        assert name in page.text
    assert "Reproducing the run" in page.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("thumbnails", np.zeros((120, 8, 8), np.uint8)),
        ("thumbnails", np.zeros((119, 8, 8, 3), np.uint8)),
        ("thumbnails", np.zeros((120, 8, 8, 3), np.float32)),
        ("ids", np.array([{"an": "object"}] * 120, dtype=object)),
        ("labels", np.full(120, 99)),
        ("labels", np.full(120, 0.5)),
        ("neighbors", np.full((120, 8), 120)),
        ("neighbors", np.zeros((119, 8), np.int32)),
        ("clusters", np.full(120, -1)),
        ("map_pca", np.full((120, 2), np.nan)),
        ("map_tsne", np.full((120, 2), 101.0)),
        ("thumbnails", np.zeros((120, 200, 90, 3), np.uint8)),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.shape}{value.dtype}",
)
def test_strange_samples(page_of, maker, key, value):
    page = page_of(lambda folder: maker.edit_samples(folder, **{key: value}))
    fine = (key == "labels" and value.dtype == int) or value.shape == (120, 200, 90, 3)
    assert ("samples.npz" in page.text) != fine


def test_collapsed_samples_are_called_so(page_of, maker):
    def change(folder):
        maker.edit_samples(folder, features=np.ones((120, 6), np.float16))
        maker.describe(folder)
        (folder / "evaluation.json").unlink()
        lines = [{"step": 1, "epoch": 1, "loss": 4.0, "lr": 0.1}, {"epoch": 1, "effective_rank": 1.2}]
        maker.write_lines(folder / "metrics.jsonl", lines)

    page = page_of(change)
    assert "Collapsed" in page.text
    assert "There is no map of these features" in page.text


def test_a_loss_that_is_no_number(page_of):
    def change(folder):
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 601, "epoch": 31, "loss": NaN, "lr": Infinity}\n')

    assert "Training failed The loss was no longer a finite number at step 601" in page_of(change).text


def test_hostile_names_are_text(page_of, maker):
    page = page_of(maker.changes["hostile"])
    for tag, attributes in page.tags:
        assert tag not in {"img", "script"} or "onerror" not in attributes
        assert attributes.get("src") != "x"
    assert [tag for tag, _ in page.tags].count("style") == 1
    assert "<img src=x onerror=alert(1)>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "49 {% raw" not in page.text
    block = page.scripts[0][1]
    assert not re.search("[<>\u2028\u2029]", block)
    assert "</script><script>alert(1)</script>" in page.data["map"]["classes"]
    assert not re.search("[\u202e\x00\x07\udc80-\udcff]", page.source)
    assert "\u202e" not in json.dumps(page.data, ensure_ascii=False)
    assert max(len(name) for name in page.data["map"]["ids"]) < 100


def test_unreadable_images_are_listed_by_name(page_of, maker):
    corrupt = [{"id": f"cat/{i:03d}.jpg", "reason": "truncated"} for i in range(130)]
    page = page_of(lambda folder: maker.edit_json(folder / "data.json", corrupt=corrupt))
    assert "130 images could not be decoded" in page.text
    assert "cat/007.jpg" in page.text
    assert "The first 100" in page.text
    assert "cat/101.jpg" not in page.text


def test_many_classes_share_a_mark(page_of, maker):
    def change(folder):
        maker.edit_samples(folder, labels=np.arange(120) % 60)
        maker.describe(folder)
        names = [f"species {i}" for i in range(60)]
        maker.edit_json(folder / "data.json", classes=names, class_counts=list(range(60)))

    page = page_of(change)
    assert "40 other classes" in page.text
    assert "The 40 largest of 60 classes" in page.text
    shown = page.data["map"]
    assert shown["classes"][shown["class"][shown["labels"].index(55)]] == "species 55"


@pytest.mark.slow
def test_a_full_run_stays_small(page_of, maker):
    rng = np.random.default_rng(0)
    n = 1500

    def change(folder):
        np.savez(
            folder / "samples.npz",
            thumbnails=rng.integers(0, 255, (n, 64, 64, 3), dtype=np.uint8),  # noise: the worst there is
            neighbors=rng.integers(0, n, (n, 8)),
            map_tsne=rng.uniform(0, 100, (n, 2)),
            labels=np.zeros(n, np.int64),
            ids=np.array(["x" * 400] * n),
        )
        maker.write_lines(
            folder / "metrics.jsonl", [{"step": i, "epoch": 1, "loss": 3.0 + i % 7, "lr": 0.1} for i in range(100_000)]
        )

    assert len(page_of(change).source.encode()) < 8_000_000


def test_sprite_sheet_holds_each_thumbnail_in_its_cell():
    thumbnails = np.random.default_rng(0).integers(0, 255, (7, 6, 4, 3), dtype=np.uint8)
    sheet = sprite_sheet(thumbnails)
    assert (sheet.columns, sheet.cell) == (3, 6)
    pixels = np.asarray(Image.open(BytesIO(b64decode(sheet.uri.split(",")[1]))))
    for i, thumbnail in enumerate(thumbnails):
        row, column = divmod(i, 3)
        assert np.array_equal(pixels[row * 6 : row * 6 + 6, column * 6 + 1 : column * 6 + 5], thumbnail)


def test_the_file_is_replaced_in_one_step_or_not_at_all(run_folder, monkeypatch):
    (run_folder / "report.html").write_text("old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(InputError, match=r"report\.html: cannot be written \(disk full"):
        build_report(run_folder)
    assert (run_folder / "report.html").read_text() == "old"
    assert not list(run_folder.glob(".report*"))


def test_the_same_run_gives_the_same_page(run_folder):
    assert build_report(run_folder).read_bytes() == build_report(run_folder).read_bytes()


def test_folders_that_are_no_run_are_refused(tmp_path):
    with pytest.raises(InputError, match="run: .*nothing"):
        build_report(tmp_path / "nothing")
    with pytest.raises(InputError, match=f"run: '{tmp_path}'"):
        build_report(tmp_path)


def test_all_figures_of_a_run_are_shown(page_of, maker):
    page = page_of(maker.changes["figures"])
    for expected in (
        "The doctor found 1 problem and 1 warning",
        "effective rank of embeddings: 1.3 (below the threshold 5, at epoch 20)",
        "Raise the learning rate",
        "Temperature 0.2: few negatives count",
        "1 not checked",
        "Spectrum of the embeddings",
        "all 510",
        "Gradient shares",
        "queue age mean",
        "in 98.0 % of cases",
        "negatives of the same class",
        "minimum: 1.47",
        "many 1 class",
        "few 1 class",
        "3 of 36",
    ):
        assert expected in page.text, expected
    assert page.text.index("The doctor found") < page.text.index("Training loss")
    shown = page.data["map"]
    assert [one["key"] for one in shown["colorings"]] == ["class", "cluster", "neighbors", "split"]
    split = shown["colorings"][3]
    assert [mark[3] for mark in split["marks"]] == [120, 40]
    assert all(max(row) < 120 for row in shown["neighbors"])  # held-out ones alone
    assert len(page.data["similarity"]) == 11


def test_a_doctor_who_looked_before_the_end_says_so(page_of, maker):
    def change(folder):
        maker.changes["figures"](folder)
        maker.edit_json(folder / "doctor.json", step=100)

    assert "This diagnosis is from step 100; the run has reached step 600 since" in page_of(change).text


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"verdicts": 7}', '{"verdicts": [7, {}], "checked": 1, "suggestions": 2}', "{"]
)
def test_a_strange_doctor_does_not_stop_the_page(page_of, content):
    page = page_of(lambda folder: (folder / "doctor.json").write_text(content))
    assert "Reproducing the run" in page.text
