"""`coulomb index` and `coulomb search`: output, lists, and mistakes as one line with exit code 2."""

import csv
import json
import shutil
from importlib.util import find_spec

import pyarrow.parquet as pq
import pytest

from coulomb.tables import open_source
from forked import coulomb
from index_cases import folder, picture, rewrite_info
from test_cli import refused

SMALL = ("--image-size", 32, "--workers", 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with ``photos`` and ``photos.index``, made by the command."""
    root = tmp_path_factory.mktemp("cli-index")
    folder(root / "photos", 12)
    result = coulomb("index", "photos", *SMALL, cwd=root)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "photos.index: 12 images (12 new, 0 changed, 0 kept, 0 dropped; 0 unreadable), 1280 features each, lite0 at 32 pixels"
    ]
    return root


def search(place, *arguments):
    return coulomb("search", "photos.index", *arguments, cwd=place)


def test_search_by_id(place):
    result = search(place, "--id", "a/00.png", "--top", 3)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3 and all(len(line.split()) == 3 and "a/00.png" not in line for line in lines)


def test_json_is_an_array_of_objects(place):
    result = search(place, "photos/b/05.png", "photos/a/00.png", "--not", "photos/a/02.png", "--json", "--top", 2)
    found = json.loads(result.stdout)
    assert len(found) == 2 and all(set(each) == {"id", "path", "similarity", "label"} for each in found)
    assert found[0]["similarity"] >= found[1]["similarity"]


@pytest.mark.parametrize("name", ["list.csv", "list.parquet"])
def test_lists_are_read_back(place, name):
    result = search(place, "--id", "a/00.png", "--not-id", "b/01.png", "--top", 5, "--out", name, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    rows = (
        pq.read_table(place / name).to_pylist()
        if name.endswith("parquet")
        else list(csv.DictReader((place / name).read_text().splitlines()))
    )
    assert [row["id"] for row in rows] == [each["id"] for each in found]
    source = open_source(place / name)
    assert [source.item_id(row) for row in range(5)] == ["photos/" + each["id"] for each in found]
    assert source.class_names == ["a", "b"]
    refused(search(place, "--id", "a/00.png", "--out", name), "already exists")


def test_what_is_left_out_is_shown(place, tmp_path):
    shutil.copytree(place, tmp_path / "w")
    photos = tmp_path / "w" / "photos"
    (photos / "a" / "out.png").symlink_to("/etc/passwd")
    (photos / "a" / "self.png").symlink_to("self.png")
    result = coulomb("index", "photos", cwd=tmp_path / "w")
    assert result.returncode == 0 and "12 images" in result.stdout
    assert "note: 2 links that are circular" in result.stderr and "a/out.png, a/self.png" in result.stderr
    assert "2 links" in json.loads((tmp_path / "w" / "photos.index" / "index.json").read_text())["data"]["notes"][0]


def test_update_counts_and_names_unreadable_images(place, tmp_path):
    shutil.copytree(place, tmp_path / "w")
    photos = tmp_path / "w" / "photos"
    (photos / "a" / "00.png").unlink()
    for number in range(7):
        (photos / "a" / f"bad{number}.png").write_bytes(b"no image")
    picture(50).save(photos / "b" / "new.png")
    result = coulomb("index", "photos", "--out", "photos.index", "--json", cwd=tmp_path / "w")
    info = json.loads(result.stdout)
    assert info["last_update"] == {"new": 1, "changed": 0, "kept": 11, "dropped": 1} and info["failed"]["count"] == 7
    warnings = result.stderr.splitlines()
    assert len(warnings) == 6 and "a/bad0.png: not an image" in warnings[0] and "and 2 more unreadable" in warnings[5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("search", "photos.index"), ["no query", "--id"]),
        (("search", "photos.index", "--id", "a/00.PNG"), ["'a/00.PNG'", "most similar id is 'a/00.png'"]),
        (("search", "photos.index", "missing.jpg"), ["missing.jpg", "no such file"]),
        (("search", "nothing.index", "--id", "a"), ["nothing.index", "no such folder", "coulomb index"]),
        (("search", "photos", "--id", "a"), ["photos", "not an index"]),
        (("search", "photos.index", "--id", "a/00.png", "--out", "x.txt"), ["x.txt", ".csv or .parquet"]),
        (("search", "photos.index", "--id", "a/00.png", "--root", "photos.index"), ["root=", "none of the first"]),
        (("search", "photos.index", "--id", "a/00.png", "--top", 0), ["--top"]),
        (("search", "photos.index", "photos/a/00.png", "--encoder", "lite"), ["'lite'", "neither a run folder"]),
        (("index", "photos", "--image-size", 64), ["built with lite0 at 32 pixels", "64 pixels"]),
        (("index", "photos", "--precision", "int8"), ["precision='int8'"]),
        (("index", "photos", "--encoder", "lite0-random", "--out", "o"), ["random weights"]),
        (("index", "missing", "--out", "o"), ["missing", "no such file"]),
        (("index", "photos", "--out", "photos"), ["holds other files"]),
    ],
    ids=str,
)
def test_mistakes(place, arguments, words):
    before = sorted(path.name for path in place.iterdir())
    refused(coulomb(*arguments, cwd=place), *words)
    assert sorted(path.name for path in place.iterdir()) == before


def test_moved_photos_need_their_new_place(place, tmp_path):
    shutil.copytree(place, tmp_path / "w")
    rewrite_info(tmp_path / "w" / "photos.index", data={"root": str(tmp_path / "gone")})
    refused(search(tmp_path / "w", "--id", "a/00.png"), "no longer exists", "--root FOLDER")
    result = search(tmp_path / "w", "--id", "a/00.png", "--root", "photos", "--json", "--top", 1)
    assert json.loads(result.stdout)[0]["path"].startswith(str((tmp_path / "w" / "photos").resolve()))


def test_an_empty_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    refused(coulomb("index", "photos", cwd=tmp_path), "no images in this folder")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.skipif(find_spec("wordllama") is None, reason="no wordllama")
def test_an_index_of_texts_by_commands(tmp_path):
    (tmp_path / "notes.txt").write_text("a red flower\n\ntwo cats on a sofa\na red flower\nred flowers\nthe sea\n")
    made = coulomb("index", "notes.txt", "--columns", "text", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(
        "notes.index: 5 texts (5 new, 0 changed, 0 kept, 0 dropped; 0 unreadable), 256 features"
    )
    assert "static of at most 256 tokens" in made.stdout and "missing or empty in 1 row (row 1)" in made.stderr
    found = coulomb("search", "notes.index", "--text", "cats", "--not", "a flower. Or two", "--top", 1, cwd=tmp_path)
    assert found.stdout.split(maxsplit=1)[1].strip() == "2  two cats on a sofa", found.stderr
    copies = coulomb("duplicates", "notes.index", cwd=tmp_path).stdout
    assert "1 sets of exact copies: 1 texts besides the ones to keep" in copies and "1.000  3  a red flower" in copies
    clusters = coulomb("cluster", "notes.index", "--number", 2, cwd=tmp_path).stdout
    assert "typical texts" in clusters and " texts  a red flower · " in clusters
    assert "nearest text" in coulomb("outliers", "notes.index", cwd=tmp_path).stdout
    assert coulomb("index", "notes.index", "--check", cwd=tmp_path).stdout.startswith(
        "notes.index: 5 texts, all 2 files"
    )
    assert "5 texts of 256" in coulomb("export", "notes.index", "--to", "csv", "--out", "e.csv", cwd=tmp_path).stdout
    for line, message in (
        (("index", "notes.txt", "--columns", "text", "--image-size", 32), "image_size=32: has no meaning for texts"),
        (("index", "notes.txt", "--out", "new.index"), "to index its lines, give columns='text' (--columns text)"),
        (("duplicates", "notes.index", "--out", "drop.sh"), "texts are no files that a script could delete"),
    ):
        refused(coulomb(*line, cwd=tmp_path), message)
