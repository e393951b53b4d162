"""Damage to the files of an index is one sentence, whether or not its checksums were written again."""

import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index import contents
from coulomb.index.folder import FILES
from forked import coulomb as command
from index_cases import accept_files, age, folder, picture, tiny

REMEDY = r"\); remove .*/i/index.json and build it again with: coulomb index DATA --out .*/i$"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("contents")
    coulomb.Index.build(folder(root / "photos", 12), root / "i", encoder=tiny(), workers=0, progress=False)
    return root


@pytest.fixture
def here(original, tmp_path):
    shutil.copytree(original, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return tmp_path / "i"


@pytest.fixture
def large(monkeypatch):
    """Indexes count as large: they are not read completely when they are opened."""
    monkeypatch.setattr(contents, "SMALL", 0)


def stored(here, name):
    return here / "generation-000001" / name


def flip(path, at, bit=3):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def use(here):
    """Uses all parts of an index."""
    index = coulomb.Index.open(here, encoder=tiny())
    found = index.search(ids="a/00.png", top=3)
    index.duplicates(), index.outliers(5)
    return index.ids, index.labels, found, [index.thumbnail(row) for row in range(len(index))]


def test_every_flipped_bit_is_found(here):
    whole = use(here)
    for name in FILES:
        content = stored(here, name).read_bytes()
        for at in np.linspace(0, len(content) - 1, 12).astype(int):
            flip(stored(here, name), at)
            with pytest.raises(InputError, match=rf"is damaged \({name} has changed since it was written{REMEDY}"):
                coulomb.Index.open(here)
            stored(here, name).write_bytes(content)
    content = (here / "index.json").read_bytes()
    for at in range(0, len(content), 9):
        flip(here / "index.json", at)
        with pytest.raises(InputError, match=r"index\.json"):
            coulomb.Index.open(here)
        (here / "index.json").write_bytes(content)
    assert use(here) == whole


def features(change):
    """Damage to the features."""

    def apply(here):
        values = np.load(stored(here, "features.npy"))
        np.save(stored(here, "features.npy"), change(values))

    return apply


def row(number, value):
    def change(values):
        values[number] = value
        return values

    return change


def columns(change):
    """Damage to the table."""

    def apply(here):
        table = pq.read_table(stored(here, "images.parquet"))
        pq.write_table(change(table), stored(here, "images.parquet"))

    return apply


def replaced(name, values):
    def change(table):
        at = table.column_names.index(name)
        return table.set_column(at, name, values(table.column(name)))

    return change


def swap_thumbnails(here):
    ends = np.load(stored(here, "thumbnails.npy"))
    content = stored(here, "thumbnails.jpgs").read_bytes()
    first, second, rest = content[: ends[1]], content[ends[1] : ends[2]], content[ends[2] :]
    stored(here, "thumbnails.jpgs").write_bytes(second + first + rest)


DAMAGES = {
    "zeros": features(np.zeros_like),
    "60,000": features(row(3, 60_000)),
    "NaN": features(row(3, np.nan)),
    "infinity": features(row(3, np.inf)),
    "reversed rows": features(lambda values: values[::-1]),
    "float64": features(lambda values: values.astype(np.float64)),
    "transposed": features(lambda values: np.asfortranarray(values)),
    "swapped thumbnails": swap_thumbnails,
    "two columns label": columns(lambda table: table.append_column("label", table.column("label"))),
    "no sha256": columns(lambda table: table.drop_columns("sha256")),
    "null ids": columns(replaced("id", lambda ids: pa.array([None, *ids.to_pylist()[1:]], pa.string()))),
    "an id twice": columns(replaced("id", lambda ids: pa.array(["a/00.png", *ids.to_pylist()[:-1]], pa.string()))),
    "text in bytes": columns(replaced("bytes", lambda sizes: sizes.cast(pa.string()))),
    "fewer rows": columns(lambda table: table.slice(1)),
}
SILENT = {"reversed rows", "swapped thumbnails"}  # with checksums of their own, these are other indexes


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_content_is_one_sentence(here, damage):
    DAMAGES[damage](here)
    with pytest.raises(InputError, match=r"is damaged \(.*" + REMEDY):
        use(here)
    with pytest.raises(InputError, match=r"is damaged \((features.npy|images.parquet|thumbnails.\w+) has .*" + REMEDY):
        coulomb.Index.check(here)


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in SILENT], ids=str)
def test_wrong_content_with_checksums_is_one_sentence(here, damage):
    DAMAGES[damage](here)
    accept_files(here)
    with pytest.raises(InputError, match=r"is damaged \(.*" + REMEDY):
        use(here)
        coulomb.Index.check(here)


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_to_a_large_index(here, damage, large):
    DAMAGES[damage](here)
    with pytest.raises(InputError, match=r"is damaged \(.*" + REMEDY):
        coulomb.Index.check(here)
    if damage not in (
        "reversed rows",
        "swapped thumbnails",
    ):  # a sample of the features, table and places are looked at
        with pytest.raises(InputError, match=r"is damaged \(.*" + REMEDY):
            use(here)


def test_a_large_index_reads_its_table_and_places_before_they_are_used(here, large):
    for name in ("images.parquet", "thumbnails.npy"):
        content = stored(here, name).read_bytes()
        for at in np.linspace(0, len(content) - 1, 12).astype(int):
            flip(stored(here, name), at)
            with pytest.raises(InputError, match=rf"is damaged \({name} .*{REMEDY}"):
                use(here)
            stored(here, name).write_bytes(content)
    flip(stored(here, "features.npy"), -5, bit=0)
    assert len(coulomb.Index.open(here).search(ids="a/00.png")) == 11  # does not read all before it begins
    with pytest.raises(InputError, match=r"is damaged \(features.npy has changed since it was written" + REMEDY):
        coulomb.Index.open(here).outliers(5)
    with pytest.raises(InputError, match="features.npy has changed since it was written"):
        coulomb.Index.check(here)


def test_values_that_no_sample_sees_stop_a_search(here, large, monkeypatch):
    monkeypatch.setattr(contents, "SAMPLE", 2)
    for value in (60_000, np.nan):
        features(row(3, value))(here)
        index = coulomb.Index.open(here, encoder=tiny())
        with pytest.raises(
            InputError, match=r"a similarity of (inf|nan|[\d.e+]+) .* features.npy is damaged; .*--check"
        ):
            index.neighbors(abs(index.rows(0, 1)))


def test_places_of_thumbnails_that_fit_nothing(here):
    for change in (lambda ends: ends[::-1], lambda ends: ends + 1, lambda ends: np.where(ends > 900, 1, ends)):
        ends = np.load(stored(here, "thumbnails.npy"))
        np.save(stored(here, "thumbnails.npy"), change(ends))
        accept_files(here)
        with pytest.raises(InputError, match=r"thumbnails.npy does not fit thumbnails.jpgs" + REMEDY):
            use(here)
        np.save(stored(here, "thumbnails.npy"), ends)


def test_an_update_does_not_give_damage_a_valid_checksum(original, here, large):
    photos = here.parent / "photos"
    flip(stored(here, "features.npy"), -5, bit=0)
    picture(50).save(photos / "a" / "new.png")
    before = (here / "index.json").read_bytes()
    with pytest.raises(InputError, match=r"features.npy has changed since it was written" + REMEDY):
        coulomb.Index.build(photos, here, encoder=tiny(), workers=0, progress=False)
    assert (here / "index.json").read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_an_update_of_a_damaged_index_says_so(here, name):
    flip(stored(here, name), 40)
    with pytest.raises(InputError, match=rf"is damaged \({name} has changed since it was written{REMEDY}"):
        coulomb.Index.build(here.parent / "photos", here, encoder=tiny(), workers=0, progress=False)
    stored(here, name).unlink()
    with pytest.raises(InputError, match=f"is half-written, {name} is missing; remove"):
        coulomb.Index.build(here.parent / "photos", here, encoder=tiny(), workers=0, progress=False)


def test_the_remedy_works_and_keeps_decisions(here):
    photos = here.parent / "photos"
    whole = {name: stored(here, name).read_bytes() for name in FILES}
    (here / "browse").mkdir()
    (here / "browse" / "work.jsonl").write_text("{}\n")
    flip(stored(here, "images.parquet"), 40)
    (here / "index.json").unlink()
    coulomb.Index.build(photos, here, encoder=tiny(), workers=0, progress=False)
    assert (here / "browse" / "work.jsonl").read_text() == "{}\n"
    assert {name: stored(here, name).read_bytes() for name in FILES} == whole


def test_checksums_follow_an_update(here):
    photos = here.parent / "photos"
    age(photos / "a" / "00.png")
    picture(51).save(photos / "a" / "00.png")
    coulomb.Index.build(photos, here, encoder=tiny(), workers=0, progress=False)
    assert coulomb.Index.check(here)["images"] == 12
    fresh = coulomb.Index.build(photos, here.with_name("fresh"), encoder=tiny(), workers=0, progress=False)
    first, second = (json.loads((path / "index.json").read_text())["files"] for path in (here, fresh.path))
    assert first == second


def test_a_file_that_may_not_be_read_is_not_damaged(here, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(contents.np, "memmap", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)$"):
        coulomb.Index.open(here)


def test_unfinished_work_that_is_damaged_is_one_sentence(tmp_path, monkeypatch):
    from coulomb.index import folder as index_folder

    photos = folder(tmp_path / "photos", 6)
    monkeypatch.setattr(index_folder.IndexFolder, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        coulomb.Index.build(photos, tmp_path / "i", encoder=tiny(), workers=0, progress=False)
    monkeypatch.undo()
    (lines,) = (tmp_path / "i" / "unfinished").glob("part-*/photos.jsonl")
    flip(lines, 1, bit=7)
    with pytest.raises(InputError, match=r"photos.jsonl: line 1 is damaged.*; remove .*unfinished and run the same"):
        coulomb.Index.build(photos, tmp_path / "i", encoder=tiny(), workers=0, progress=False)


def test_the_command_checks(here):
    done = command("index", "i", "--check", cwd=here.parent)
    size = sum(stored(here, name).stat().st_size for name in FILES)
    assert done.returncode == 0 and done.stdout.startswith("i: 12 images, all 4 files are as they were written (")
    assert json.loads(command("index", "i", "--check", "--json", cwd=here.parent).stdout)["bytes"] == size
    flip(stored(here, "features.npy"), 200)
    os.truncate(stored(here, "thumbnails.jpgs"), 10)
    done = command("index", "i", "--check", cwd=here.parent)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert re.search(
        r"features.npy has changed since it was written; thumbnails.jpgs has 10 bytes instead", done.stderr
    )
    done = command("index", "i", "--check", "--precision", "float32", cwd=here.parent)
    assert "--precision: has no meaning with --check" in done.stderr
    assert "not an index" in command("index", "photos", "--check", cwd=here.parent).stderr
