import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source


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


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    Image.new("L", (4, 4), 1).save(folder / "a.png")
    Image.new("L", (4, 4), 2).save(folder / "sub" / "b.png")
    Image.new("L", (4, 4), 3).save(tmp_path / "outside.png")
    return folder


def listed(folder, text, name="list.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_csv_with_and_without_labels(data):
    source = open_source(listed(data, "path,label\nsub/b.png,dog\na.png,\n"))
    assert [source.item_id(i) for i in range(2)] == ["sub/b.png", "a.png"]
    assert source.labels.tolist() == [0, -1]
    assert source.class_names == ["dog"]
    assert [int(source.image(i)[0, 0, 0]) for i in range(2)] == [2, 1]
    assert source.root == data.resolve()
    assert open_source(listed(data, "\ufefffilename\na.png\n")).labels is None  # with the byte order mark of Excel
    assert open_source(listed(data, "image\ttarget\na.png\t3\n", "l.tsv")).labels.tolist() == [3]


def test_label_column_by_name(data):
    path = listed(data, "path,label,breed\na.png,0,pug\n")
    assert open_source(path, labels="breed").class_names == ["pug"]
    with pytest.raises(InputError, match="no label column 'color'; there are path, label, breed"):
        open_source(path, labels="color")


def test_parquet_list(data):
    pq.write_table(pa.table({"file": ["a.png", "sub/b.png"], "class": [1, None]}), data / "list.parquet")
    source = open_source(data / "list.parquet")
    assert source.kind == "file list"
    assert source.labels.tolist() == [1, -1]


@pytest.mark.parametrize("path", ["../outside.png", "sub/../../outside.png", "ABSOLUTE", ".", "sub/.."])
def test_paths_cannot_lead_outside(data, path):
    value = str(data.parent / "outside.png") if path == "ABSOLUTE" else path
    with pytest.raises(InputError, match=r"row 2, .* leads outside the data folder .*root="):
        open_source(listed(data, f"path\na.png\n{value}\n"))


def test_root_of_a_file_list(data):
    path = listed(data, f"path\n../outside.png\n{data / 'a.png'}\n")
    with pytest.raises(InputError, match="leads outside"):
        open_source(path)
    inside = listed(data, f"path\noutside.png\n{data / 'a.png'}\n")
    source = open_source(inside, root=data.parent)
    assert [source.item_id(i) for i in range(2)] == ["outside.png", "data/a.png"]
    with pytest.raises(InputError, match="no such folder"):
        open_source(inside, root=data / "nowhere")


def test_link_out_of_the_folder_is_refused_when_read(data):
    (data / "link.png").symlink_to(data.parent / "outside.png")
    source = open_source(listed(data, "path\nlink.png\na.png\n"))
    with pytest.raises(CorruptImage, match="link leads outside"):
        source.image(0)
    assert np.asarray(source.image(1)).max() == 1


def test_missing_files(data):
    source = open_source(listed(data, "path\na.png\ngone.png\n"))
    with pytest.raises(CorruptImage, match="gone.png: no such file"):
        source.image(1)
    with pytest.raises(InputError, match="none of the first 2 files exists"):
        open_source(listed(data, "path\ngone.png\nalso.png\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\n", "the list is empty"),
        ("", "no column of paths"),
        ("picture,label\na.png,1\n", "no column of paths among picture, label"),
        ("path,label\na.png\n", "line 2 has 1 fields and the header 2"),
        ("path,path\na.png,b\n", "appears twice"),
        ("path\nhttp://example.org/a.png\n", "is a URL"),
        ("path,label\na.png,1.5\n", "label 1.5 of image 0 is not an integer"),
        ("path,label\n,1\n", "row 1 has no usable path"),
        ("path,label\na.png,-7\n", "outside the range"),
    ],
)
def test_error_for_a_bad_list_is_one_line(data, text, message):
    with pytest.raises(InputError, match=message):
        open_source(listed(data, text))


def test_binary_list_is_refused(data):
    (data / "list.csv").write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        open_source(data / "list.csv")
    (data / "list.parquet").write_bytes(b"garbage")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        open_source(data / "list.parquet")
