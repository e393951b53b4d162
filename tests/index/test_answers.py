"""Duplicates, outliers, label errors, choosing, clusters and classes of an index, and the files of these lists."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import coulomb
import forked
from coulomb.export import to_csv
from coulomb.ground.errors import InputError
from coulomb.index.copies import copy_into_folders
from coulomb.index.given_labels import read_given_labels
from coulomb.index.lists import list_rows, write_list, write_script
from coulomb.tables.sources import open_source
from coulomb.tables.sources.files import read_columns
from curation_cases import classes_of, photo
from index_cases import folder, picture, tiny

N = 60


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An index of 60 images in two folders, of which two are exact copies of a/00.png."""
    photos = folder(tmp_path_factory.mktemp("answers") / "photos", N - 2)
    shutil.copy(photos / "a/00.png", photos / "a/zz-copy.png")
    shutil.copy(photos / "a/00.png", photos / "b/zz-copy.png")
    return coulomb.Index.build(photos, photos.parent / "i", encoder=tiny(), workers=0, progress=False).path


@pytest.fixture
def index(built):
    """The index, with features in the two classes of its folders."""
    opened = coulomb.Index.open(built)
    x, y = classes_of(400, 2)
    places = [iter(np.flatnonzero(y == number)) for number in range(2)]
    opened.features = x[[next(places[label == "b"]) for label in opened.labels]].astype(np.float16)
    return opened


def test_duplicates_name_the_best_file_and_list_exact_copies_apart(index):
    copies = [index.position(name) for name in ("a/00.png", "a/zz-copy.png", "b/zz-copy.png")]
    index.features[copies] = index.features[copies[0]]
    index.features[index.position("a/04.png")] = index.features[copies[0]]
    answer = json.loads(json.dumps(index.duplicates(0.9999)))
    (copy,) = answer["copies"]
    assert copy["keep"] == "a/00.png" and copy["path"] == index.paths[copies[0]]
    assert [(m["id"], m["similarity"]) for m in copy["members"]] == [("a/zz-copy.png", 1.0), ("b/zz-copy.png", 1.0)]
    (group,) = answer["groups"]
    assert {group["keep"], *(m["id"] for m in group["members"])} == {"a/00.png", "a/04.png"}
    assert group["members"][0]["similarity"] == 1.0


def test_the_larger_image_is_kept(tmp_path):
    photos = folder(tmp_path / "p", 4)
    picture(9, 60, 50).save(photos / "b/zz-large.png")
    found = coulomb.Index.build(photos, tmp_path / "i", encoder=tiny(), workers=0, progress=False)
    found.features = np.ones_like(found.features)
    (group,) = found.duplicates()["groups"]
    assert group["keep"] == "b/zz-large.png" and group["reason"] == "more pixels" and len(group["members"]) == 4
    assert {(m["keep"], m["like"], m["reason"]) for m in group["members"]} == {(False, group["keep"], "more pixels")}


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """An index of six photos, of one also a crop, a copy of low resolution and an exact copy, with unlike features."""
    folder = tmp_path_factory.mktemp("edited") / "it's a folder"
    folder.mkdir()
    for seed in range(6):
        photo(seed, 240, 180).save(folder / f"{seed}.jpg", quality=90)
    first = Image.open(folder / "0.jpg")
    first.crop((12, 9, 228, 171)).save(folder / "crop.jpg", quality=95)
    first.resize((120, 90)).save(folder / "small $(touch ran).jpg", quality=90)
    shutil.copy(folder / "0.jpg", folder / "0 copy.jpg")
    return coulomb.Index.build(folder, folder.parent / "i", encoder=tiny(), workers=0, progress=False).path


@pytest.fixture
def unlike(edited):
    """The index with the same cosine, .7, between all images."""
    index = coulomb.Index.open(edited)
    rows = np.sqrt(0.3) * np.eye(len(index), 32) + np.sqrt(0.7) * np.eye(32)[-1]
    index.features = rows.astype(np.float32)
    return index


def test_crops_and_small_copies_are_found_by_their_pixels(unlike, monkeypatch):
    monkeypatch.setattr("coulomb.index.crops.NEAREST", 8)
    assert unlike.duplicates(crops=False)["groups"] == []
    answer = unlike.duplicates()
    (group,) = answer["groups"]
    assert (group["keep"], group["reason"]) == ("0.jpg", "more pixels")
    assert {m["id"] for m in group["members"]} == {"crop.jpg", "small $(touch ran).jpg"}
    assert all(m["reason"].endswith(" (crop or edited copy)") and not m["keep"] for m in group["members"])
    (copies,) = answer["copies"]
    assert copies["keep"] == "0.jpg" and [m["id"] for m in copies["members"]] == ["0 copy.jpg"]


def test_the_script_deletes_what_is_not_kept_and_nothing_before_it_is_run(unlike, monkeypatch, tmp_path):
    monkeypatch.setattr("coulomb.index.crops.NEAREST", 8)
    out = tmp_path / "drop.sh"
    before = sorted(path.name for path in unlike.root.iterdir())
    assert write_script(out, unlike.duplicates()) == 3
    assert sorted(path.name for path in unlike.root.iterdir()) == before
    assert not out.stat().st_mode & 0o111
    text = out.read_text()
    assert "# keep 0.jpg: more pixels" in text and "crop or edited copy" in text
    copy = shutil.copytree(unlike.root, tmp_path / "it's a folder")
    out.write_text(text.replace(str(unlike.root).replace("'", "'\"'\"'"), str(copy).replace("'", "'\"'\"'")))
    subprocess.run(["sh", str(out)], check=True, cwd=tmp_path)
    assert sorted(path.name for path in copy.iterdir()) == [f"{n}.jpg" for n in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drop.sh", "it's a folder"]
    shutil.copy(copy / "1.jpg", copy / "crop.jpg")
    (copy / "0.jpg").unlink()
    done = subprocess.run(["sh", str(out)], check=True, capture_output=True, text=True)
    assert "not deleted" in done.stderr and (copy / "crop.jpg").exists()  # what it resembles is gone


def test_a_script_needs_files(index, tmp_path):
    answer = {"groups": [], "copies": [{"keep": "a", "path": None, "reason": "", "members": []}]}
    answer["copies"][0]["members"] = [
        {"id": "b", "path": None, "like": "a", "keep": False, "similarity": 1.0, "reason": "the same file"}
    ]
    with pytest.raises(InputError, match="not files"):
        write_script(tmp_path / "drop.sh", answer)


def test_answers_become_tables_of_pandas(index, monkeypatch):
    pytest.importorskip("pandas")
    for answer in (
        index.duplicates(0.5),
        index.outliers(),
        index.label_errors(),
        index.cluster(2),
        index.search(ids="a/00.png"),
    ):
        frame = answer.to_pandas()
        assert frame["id"].tolist() == [row["id"] for row in list_rows(answer)]
    frame = index.classify({"a/00.png": "a", "b/01.png": "b"}).to_pandas()
    assert {"id", "label", "p(a)", "p(b)"} <= set(frame.columns) and len(frame) == N - 2
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        index.outliers().to_pandas()


def test_leaks_into_another_index(index, built):
    other = coulomb.Index.open(built)
    other.features = index.features[::-1].copy()
    (leak, *_) = index.duplicates(0.99999, against=other)["groups"]
    assert other.ids[N - 1 - index.position(leak["members"][0]["id"])] == leak["keep"]
    other.info = other.info | {"encoder": other.info["encoder"] | {"fingerprint": "another"}}
    with pytest.raises(InputError, match="another encoder"):
        index.duplicates(against=other)


def test_outliers_have_a_reason(index):
    index.features[7] = np.eye(index.features.shape[1])[3]
    (first, *rest) = index.outliers(top=5)
    assert first["id"] == index.ids[7] and len(rest) == 4
    assert {"id", "path", "score", "similarity", "nearest", "reason", "label"} == set(first)
    assert len(index.outliers(None)) == N


def test_label_errors_of_the_index_and_of_given_labels(index, tmp_path):
    wrong = index.position("a/04.png")
    index.features[wrong] = index.features[index.position("b/05.png")]
    (found, *_) = index.label_errors()
    assert (found["id"], found["label"], found["suggested"]) == ("a/04.png", "a", "b")
    assert "nearest labeled images" in found["reason"]
    given = dict(zip(index.ids, index.labels, strict=True)) | {"a/04.png": "b", "b/07.png": "a"}
    (found, *_) = index.label_errors(given, top=1)
    assert (found["id"], found["label"], found["suggested"]) == ("b/07.png", "a", "b")


def test_label_errors_are_listed_from_a_cutoff(index, monkeypatch):
    wrong = [index.position(f"a/{number:02}.png") for number in (4, 8, 12, 16)]
    index.features[wrong] = index.features[[index.position(f"b/{number:02}.png") for number in (5, 7, 9, 11)]]
    everything = index.label_errors(cutoff=0)
    confidence = [row["confidence"] for row in everything]
    monkeypatch.setattr("coulomb.index.label_errors._cutoff", lambda *_: confidence[1] - 1e-4)
    found = index.label_errors()
    assert found == everything[:2]
    assert f"2 of {N} labels are listed" in found.note and "2 more are less certain" in found.note
    assert (
        index.label_errors(top=3) == everything[:3]
        and index.label_errors(cutoff=confidence[2] - 1e-4) == everything[:3]
    )
    monkeypatch.setattr("coulomb.index.label_errors._cutoff", lambda *_: pytest.fail("no cut-off was asked for"))
    assert index.label_errors(top=1) == everything[:1] and index.label_errors(cutoff=0) == everything
    note = index.label_errors(top=1).note
    assert note.startswith(f"1 of {N} labels") and "3 more are less certain" in note and "cutoff" not in note


def test_accuracy_out_of_range_is_named_as_the_option_is(index):
    for accuracy in (0, 1.5):
        with pytest.raises(InputError, match=f"accuracy={accuracy}"):
            index.classify(accuracy=accuracy)


def test_clusters_by_default_leave_no_image_out(index):
    rows = index.cluster()
    assert {row["cluster"] for row in rows} == set(range(5)) and len(rows) == N  # √(60/2)
    assert {row["cluster"] for row in index.cluster(least=10)} <= {-1, 0, 1}
    with pytest.raises(InputError, match="leave out number or least"):
        index.cluster(3, least=10)


def test_outliers_say_what_is_unusual(edited):
    index = coulomb.Index.open(edited)
    narrow = index.root / "narrow.jpg"
    Image.new("CMYK", (300, 40), (0, 0, 0, 250)).save(narrow)
    index = coulomb.Index.build(index.root, edited.parent / "again", encoder=tiny(), workers=0, progress=False)
    reason = {row["id"]: row["reason"] for row in index.outliers()}
    assert reason["narrow.jpg"].endswith("; dark; flat; odd aspect ratio; CMYK")
    narrow.unlink()
    assert "odd aspect ratio" in {row["id"]: row["reason"] for row in index.outliers()}["narrow.jpg"]


def test_choosing_leaves_out_what_has_a_label(index):
    with pytest.raises(InputError, match="every image has a label"):
        index.choose(1)
    index.labels = [None] * N
    given = dict.fromkeys(index.ids[:20], "x")
    chosen = [row["id"] for row in index.choose(10, labels=given)]
    assert len(set(chosen)) == 10 and not set(chosen) & set(given)


def test_clusters_have_their_typical_images_first(index):
    rows = index.cluster(2)
    assert [row["cluster"] for row in rows] == sorted(row["cluster"] for row in rows) and len(rows) == N
    for number in range(2):
        similarities = [row["similarity"] for row in rows if row["cluster"] == number]
        assert similarities == sorted(similarities, reverse=True)


def test_classes_from_a_few_labels(index):
    given = {id_: label for id_, label in zip(index.ids, index.labels, strict=True) if id_[2:4] < "12"}
    answer = json.loads(json.dumps(index.classify(given)))
    assert len(answer["images"]) == N - len(given) and answer["classes"] == ["a", "b"]
    truth = dict(zip(index.ids, index.labels, strict=True))
    assert all(row["label"] == truth[row["id"]] for row in answer["images"])
    margins = [row["margin"] for row in answer["images"]]
    assert margins == sorted(margins, reverse=True)


def test_labels_that_do_not_fit_are_refused(index):
    for labels, reason in (
        ({"a/0.png": "a"}, "1 of 1 ids are not in .*a/0.png"),
        ({"a/00.png": "a", "a/02.png": "a"}, "1 different classes"),
        ({}, "0 different classes"),
        ({"a/00.png": None, "a/02.png": "nan"}, "0 different classes"),
    ):
        with pytest.raises(InputError, match=reason):
            index.classify(labels)
    index.labels = [None] * N
    with pytest.raises(InputError, match="has no labels to check"):
        index.label_errors()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no column id"),
        ("name,label\na,1\n", "no column id"),
        ("id,color\na,1\n", "no column label"),
        ("id,label\n", "has no rows"),
        ("id,label\na,1\na,2\n", "has two labels"),
        ("id,label\na\n", "line 2"),
    ],
)
def test_files_of_labels_that_cannot_be_read_are_refused(content, reason, tmp_path):
    file = tmp_path / "few.csv"
    file.write_text(content)
    with pytest.raises(InputError, match=reason):
        read_given_labels(file)
    for path, text in ((tmp_path / "none.csv", "no such file"), (tmp_path, "no such file")):
        with pytest.raises(InputError, match=text):
            read_given_labels(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_lists_can_be_read_as_data_sets_and_as_labels(index, tmp_path, ending):
    for name, answer in (
        ("duplicates", index.duplicates(0.5)),
        ("outliers", index.outliers()),
        ("cluster", index.cluster(3)),
        ("classify", index.classify({"a/00.png": "a", "b/01.png": "b"})),
    ):
        out = tmp_path / f"{name}.{ending}"
        rows = list_rows(answer)
        write_list(out, rows, list(rows[0]))
        source = open_source(out, root=index.root)
        assert len(source) == len(rows) and source.item_id(0) == rows[0]["id"]
        source.image(0)
    assert read_given_labels(out)[rows[0]["id"]] == rows[0]["label"]
    assert {"p(a)", "p(b)", "unsure"} <= set(rows[0])
    found = [row for row in list_rows(index.duplicates(0.5)) if row["keep"]]
    assert len({row["group"] for row in found}) == len(found)


def test_copies_go_to_new_folders_and_the_originals_stay(index, tmp_path):
    before = sorted(path.name for path in index.root.rglob("*"))
    rows = index.cluster(2)
    assert copy_into_folders(rows, tmp_path / "sorted") == (N, 0)
    assert sorted(path.name for path in index.root.rglob("*")) == before
    copied = sorted((tmp_path / "sorted" / "cluster-000").iterdir())
    assert copied[0].read_bytes() == Path(rows[0]["path"]).read_bytes()
    with pytest.raises(InputError, match="already exists"):
        copy_into_folders(rows, tmp_path / "sorted")
    with pytest.raises(InputError, match="not files"):
        copy_into_folders([{"cluster": 0, "path": None}], tmp_path / "new")
    assert copy_into_folders([{"cluster": -1, "path": "/none.png"}, rows[0]], tmp_path / "two") == (1, 1)


@pytest.mark.slow
def test_commands_print_what_python_returns(built, tmp_path):
    index = coulomb.Index.open(built)
    (tmp_path / "few.csv").write_text("id,label\na/00.png,x\nb/01.png,y\n")
    commands = {
        ("duplicates", built, "--above", "0.9"): index.duplicates(0.9),
        ("outliers", built, "--top", "5"): index.outliers(5),
        ("label-errors", built): index.label_errors(),
        ("cluster", built, "--number", "3"): index.cluster(3),
        ("classify", built, "--labels", "few.csv"): index.classify(tmp_path / "few.csv")["images"],
    }
    for command, expected in commands.items():
        done = forked.coulomb(*command, "--json", "--out", f"{command[0]}.csv", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads(json.dumps(expected))
        rows = list(csv.DictReader((tmp_path / f"{command[0]}.csv").read_text().splitlines()))
        assert [row["id"] for row in rows] == [row["id"] for row in list_rows(expected)]
    text = forked.coulomb("duplicates", built, cwd=tmp_path)
    assert "sets of exact copies: 2 images" in text.stdout, text.stderr


def test_wrong_commands_end_with_one_sentence(built, tmp_path):
    (tmp_path / "few.csv").write_text("id,label\nnone.png,x\n")
    for command in (
        ("duplicates", built, "--above", "2"),
        ("duplicates", "no.index"),
        ("choose", built, "--number", "3"),
        ("cluster", built, "--number", "1000"),
        ("outliers", built, "--out", "list.txt"),
        ("classify", built, "--labels", "few.csv"),
        ("classify", built, "photo.jpg", "--labels", "few.csv"),
        ("classify", "runs/none", "--labels", "few.csv"),
        ("classify", "runs/none"),
    ):
        done = forked.coulomb(*command, cwd=tmp_path)
        assert done.returncode == 2 and not done.stdout
        assert sum(line.startswith("coulomb: error:") for line in done.stderr.splitlines()) == 1, done.stderr
        assert "Traceback" not in done.stderr


def test_lists_run_no_formulas_and_are_read_back(tmp_path):
    photos = tmp_path / "photos"
    names = ["=1+1.png", "-2-cat.png", "+x.png", "@tag.png", "plain.png", "'=quoted.png"]
    for number, name in enumerate(names):
        photos.mkdir(exist_ok=True)
        picture(number).save(photos / name)
    rows = [
        {"id": name, "path": name, "label": "=cmd()" if number % 2 else "@b", "score": -0.5}
        for number, name in enumerate(names)
    ]
    write_list(tmp_path / "list.csv", rows, ["id", "path", "label", "score"])
    with (tmp_path / "list.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@")) and cell != "-0.5"]
    source = open_source(tmp_path / "list.csv", root=photos)
    assert [source.item_id(index) for index in range(len(source))] == names and source.class_names == ["=cmd()", "@b"]
    assert list(read_given_labels(tmp_path / "list.csv")) == names
    index = coulomb.Index.build(photos, tmp_path / "i", encoder=tiny(), workers=0, progress=False)
    to_csv(index, tmp_path / "features.csv")
    columns = read_columns(tmp_path / "features.csv")
    assert columns["id"] == index.ids and float(columns["f0"][0]) == pytest.approx(float(index.features[0, 0]))
