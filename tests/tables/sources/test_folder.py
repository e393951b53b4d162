import csv
import errno
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source
from coulomb.tables.columns import open_columns


def put(folder, *names, color=7):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), color).save(path, "PNG")


def ids(source):
    return [source.item_id(index) for index in range(len(source))]


def test_flat_folder_is_never_one_class(tmp_path):
    put(tmp_path, "img10.png", "img2.PNG", "img1.Jpg")
    source = open_source(tmp_path)
    assert ids(source) == ["img1.Jpg", "img2.PNG", "img10.png"]
    assert source.labels is None
    assert source.class_names is None
    assert source.kind == "folder"


def test_single_subfolder_is_not_a_class(tmp_path):
    put(tmp_path, "holiday/a.png", "holiday/b.png")
    source = open_source(str(tmp_path))
    assert source.labels is None
    assert "holiday" in source.notes[0]
    put(tmp_path, "c.png")
    assert open_source(tmp_path).labels is None  # the same folder with images next to it


def test_class_folders(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png", "cat/deep/er/y.png")
    (tmp_path / "empty").mkdir()
    source = open_source(tmp_path)
    assert ids(source) == ["cat/deep/er/y.png", "cat/x.png", "dog/a.png"]
    assert source.labels.tolist() == [0, 0, 1]
    assert source.class_names == ["cat", "dog"]
    assert any("1 image lies deeper" in note for note in source.notes)
    assert source.image(0).shape == (4, 4, 1)


def test_images_next_to_class_folders_are_unlabeled(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png", "loose.png")
    source = open_source(tmp_path)
    assert dict(zip(ids(source), source.labels.tolist(), strict=True)) == {
        "dog/a.png": 1,
        "cat/x.png": 0,
        "loose.png": -1,
    }
    assert any("no label" in note for note in source.notes)


@pytest.mark.parametrize("parts", [("train", "test"), ("Train", "VAL"), ("train",)])
def test_train_and_test_folders_are_not_classes(tmp_path, parts):
    for part in parts:
        put(tmp_path, f"{part}/cat/a.png", f"{part}/dog/a.png")
    with pytest.raises(InputError, match="parts of a data set, not classes; give one of them"):
        open_source(tmp_path)


def test_labels_can_be_ignored_or_passed(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png")
    assert open_source(tmp_path, labels="none").labels is None
    assert open_source(tmp_path, labels=False).class_names is None
    assert open_source(tmp_path, labels=[3, -1]).labels.tolist() == [3, -1]


def test_skipped_files_are_counted(tmp_path):
    put(tmp_path, "a.png", ".hidden.png", ".git/b.png")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "list.csv").write_text("x")
    notes = " ".join(open_source(tmp_path).notes)
    assert "2 hidden" in notes
    assert "2 files without an image extension" in notes


def test_links_cannot_leave_the_folder(tmp_path):
    put(tmp_path, "outside/secret.png", "data/real.png", "data/sub/x.png")
    data = tmp_path / "data"
    (data / "leaves.png").symlink_to(tmp_path / "outside" / "secret.png")
    (data / "folder").symlink_to(tmp_path / "outside")
    (data / "circle").symlink_to(data)
    (data / "sub" / "twice").symlink_to(data / "sub")
    (data / "stays.png").symlink_to(data / "real.png")
    source = open_source(data)
    assert ids(source) == ["real.png", "stays.png", "sub/x.png"]
    assert "4 links" in source.notes[0]
    # A link created after the scan is refused, too.
    (data / "stays.png").unlink()
    (data / "stays.png").symlink_to(tmp_path / "outside" / "secret.png")
    with pytest.raises(CorruptImage, match="leads outside the data folder"):
        source.image(1)


def test_circular_links_are_left_out_and_counted(tmp_path):
    put(tmp_path, "a.png", "sub/b.png")
    (tmp_path / "self.png").symlink_to("self.png")
    (tmp_path / "sub" / "there").symlink_to(tmp_path / "back")
    (tmp_path / "back").symlink_to(tmp_path / "sub" / "there")
    source = open_source(tmp_path)
    assert ids(source) == ["a.png", "sub/b.png"]
    assert "3 links that are circular" in source.notes[0] and "self.png" in source.notes[0]


def test_a_deep_folder_is_read(tmp_path):
    folder = tmp_path
    for _ in range(1200):
        folder = folder / "d"
        folder.mkdir()
    put(folder, "a.png")
    try:
        assert len(open_source(tmp_path)) == 1
    finally:
        (folder / "a.png").unlink()
        while folder != tmp_path:
            folder.rmdir()
            folder = folder.parent


def test_a_folder_that_cannot_be_listed_now_is_named(tmp_path, monkeypatch):
    put(tmp_path, "a/x.png", "b/y.png")
    right = os.scandir

    def scandir(path):
        if str(path).rstrip("/").endswith("b"):
            raise OSError(errno.EIO, "Input/output error")
        return right(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataUnavailableError, match=r"/b/?: cannot be read \(Input/output error\)"):
        open_source(tmp_path)


def test_root_itself_may_be_a_link(tmp_path):
    put(tmp_path, "real/a.png")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert open_source(tmp_path / "link").image(0).shape == (4, 4, 1)


def test_names_that_are_not_utf8_or_hostile(tmp_path):
    raw = os.fsencode(tmp_path) + b"/caf\xe9.png"
    try:
        with open(raw, "wb") as file:  # noqa: PTH123  a Path cannot hold these bytes everywhere
            Image.new("L", (4, 4)).save(file, "PNG")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    put(tmp_path, "a\x1b[31m\n<script>.png")
    source = open_source(tmp_path)
    assert "caf\\xe9.png" in ids(source)
    for index in range(len(source)):
        source.item_id(index).encode("utf-8")
        assert source.image(index).shape == (4, 4, 1)


def test_no_images(tmp_path):
    with pytest.raises(InputError, match="no images in this folder"):
        open_source(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match="1 file without an image extension was skipped"):
        open_source(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(tmp_path):
    put(tmp_path, "a/x.png")
    (tmp_path / "a").chmod(0)
    try:
        with pytest.raises(InputError, match="permission denied"):
            open_source(tmp_path / "a")
    finally:
        (tmp_path / "a").chmod(0o755)


def test_pipe_does_not_block(tmp_path):
    put(tmp_path, "a.png")
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(CorruptImage, match="not a regular file"):
        open_source(tmp_path).image(1)


def test_order_does_not_depend_on_the_disk(tmp_path):
    names = [f"{number}.png" for number in np.random.default_rng(0).permutation(30)]
    put(tmp_path, *names)
    assert ids(open_source(tmp_path)) == [f"{number}.png" for number in range(30)]


SHARED = Path(__file__).parents[4] / "shared" / "data"


def png(value):
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (value, 0, 0)).save(out, "PNG")
    return out.getvalue()


# The second picture has two captions with a comma and a quotation mark, the third has the bytes of the first.
MADE = [
    ("a.png", png(1), ["a red cat"]),
    ("b.png", png(2), ['two, "big" dogs', "dogs"]),
    ("c.png", png(1), ["à table"]),
]


def write(folder, pictures, layout):
    """Writes pictures with their captions in a layout; returns the data and the name of the column of captions."""
    pairs = [(name, caption) for name, _, captions in pictures for caption in captions]
    folder.mkdir()
    inside = folder / "Images" if layout == "flickr" else folder
    inside.mkdir(exist_ok=True)
    for name, content, _ in pictures:
        (inside / name).write_bytes(content)
    if layout == "metadata.csv":
        with (folder / layout).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("file_name", "text"), *pairs])
        return folder, "text"
    if layout == "metadata.jsonl":
        rows = [json.dumps({"file_name": name, "text": captions}) for name, _, captions in pictures]
        (folder / layout).write_text("\n".join(rows), encoding="utf-8")
        return folder, "text"
    if layout == "metadata.parquet":
        pq.write_table(
            pa.table({"file_name": [n for n, _ in pairs], "caption": [c for _, c in pairs]}), folder / layout
        )
        return folder, "caption"
    if layout == "flickr":
        numbers = [
            f"{name}#{place}\t{caption}" for name, _, captions in pictures for place, caption in enumerate(captions)
        ]
        (folder / "captions.txt").write_text("\n".join(numbers) + "\n", encoding="utf-8")
        return folder, "caption"
    if layout == "captions.txt":
        with (folder / layout).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("image", "caption"), *pairs])
        return folder, "caption"
    if layout == "beside":
        for name, _, captions in pictures:
            (folder / name).with_suffix(".txt").write_text(captions[0], encoding="utf-8")
        return folder, "caption"
    if layout == "tar":
        with tarfile.open(folder / "x.tar", "w") as shard:
            for name, content, captions in pictures:
                for member, data in ((name, content), (f"{name[:-4]}.txt", captions[0].encode())):
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    shard.addfile(info, io.BytesIO(data))
        return folder / "x.tar", "txt"
    rows = {
        "image": [{"bytes": content, "path": name} for name, content, _ in pictures],
        "caption": [captions for _, _, captions in pictures],
    }
    pq.write_table(pa.table(rows), folder / "pairs.parquet")
    return folder / "pairs.parquet", "caption"


LAYOUTS = ["metadata.csv", "metadata.jsonl", "metadata.parquet", "flickr", "captions.txt", "beside", "tar", "parquet"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_give_the_same_table(tmp_path, layout):
    single = layout in ("beside", "tar")
    pictures = [(name, content, captions[:1]) for name, content, captions in MADE] if single else MADE
    data, caption = write(tmp_path / "data", pictures, layout)
    table = open_columns(data, f"image,{caption}")
    texts = ["a red cat", 'two, "big" dogs', "dogs", "à table"]
    assert list(table.columns[caption]) == ([texts[0], texts[1], texts[3]] if single else texts)
    assert table.cell_ids("image").tolist() == ([0, 1, 0] if single else [0, 1, 1, 0])
    reds = [int(table.columns["image"].image(row)[0, 0, 0]) for row in range(len(table))]
    assert reds == ([1, 2, 1] if single else [1, 2, 2, 1])
    assert len({table.item_id(row) for row in range(len(table))}) == len(table)
    assert not [note for note in table.notes if "skipped" in note or "missing" in note]


@pytest.mark.skipif(not (SHARED / "stamps.parquet").exists(), reason="needs stamps.parquet in ../shared/data")
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_stamps_written_out_are_the_same_table(tmp_path, layout):
    rows = pq.read_table(SHARED / "stamps.parquet", columns=["image", "en"]).slice(0, 120).to_pylist()
    pictures = [(f"{number:03}.jpg", row["image"]["bytes"], [row["en"]]) for number, row in enumerate(rows)]
    original = open_columns(SHARED / "stamps.parquet", "image,en")
    data, caption = write(tmp_path / "data", pictures, layout)
    table = open_columns(data, ["image", caption])
    assert list(table.columns[caption]) == list(original.columns["en"][:120])
    assert table.cell_ids("image").tolist() == original.cell_ids("image")[:120].tolist()
    assert table.cell_ids(caption).tolist() == original.cell_ids("en")[:120].tolist()


def test_missing_captions_and_files_are_counted(tmp_path):
    folder, _ = write(tmp_path / "data", MADE, "captions.txt")
    (folder / "captions.txt").write_text("image,caption\na.png,one\nnone.png,two\nb.png,\n,three\n")
    (folder / "notes.md").write_text("x")
    table = open_columns(folder, "image,caption")
    notes = " ".join(table.notes)
    assert list(table.columns["caption"]) == ["one"] and "1 image of the folder is not in captions.txt" in notes
    assert (
        "image: missing or empty in 1 row (row 3)" in notes
        and "image: its file does not exist in 1 row (none.png)" in notes
    )
    assert "caption: missing or empty in 1 row (row 2)" in notes and "3 rows of 4 are left out" in notes
    assert "1 file without an image extension was skipped" in notes

    folder, _ = write(tmp_path / "other", MADE, "beside")
    (folder / "a.txt").unlink()
    table = open_columns(folder, "image,caption")
    assert len(table) == 2 and "caption: missing or empty in 1 row (row 0)" in " ".join(table.notes)
    (folder / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"b.txt: not UTF-8 \(byte 0xe9"):
        open_columns(folder, "image,caption")


def test_paths_cannot_leave_the_folder(tmp_path):
    folder, _ = write(tmp_path / "data", MADE, "captions.txt")
    (folder / "captions.txt").write_text("image,caption\na.png,one\n../secret.png,two\n")
    with pytest.raises(InputError, match="leads outside"):
        open_columns(folder, "image,caption")


def test_a_folder_without_captions(tmp_path):
    write(tmp_path / "data", [(name, content, []) for name, content, _ in MADE], "none")
    (tmp_path / "data" / "pairs.parquet").unlink()
    assert open_columns(tmp_path / "data", "image").kinds == {"image": "image"}
    with pytest.raises(InputError, match="there is only image.*No captions: neither metadata.csv"):
        open_columns(tmp_path / "data", "image,caption")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither images nor tables"):
        open_columns(tmp_path / "empty", "image,caption")
