import os

import numpy as np
import pytest
from PIL import Image

from coulomb.data import CorruptImage, open_source
from coulomb.errors import InputError


def put(folder, *names, colour=7):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), colour).save(path, "PNG")


def ids(source):
    return [source.item_id(index) for index in range(len(source))]


def test_flat_folder_is_never_one_class(tmp_path):
    put(tmp_path, "img10.png", "img2.PNG", "img1.Jpg")
    source = open_source(tmp_path)
    assert ids(source) == ["img1.Jpg", "img2.PNG", "img10.png"]
    assert source.labels is None
    assert source.class_names is None
    assert source.kind == "folder"


def test_one_subfolder_is_no_class_either(tmp_path):
    put(tmp_path, "holiday/a.png", "holiday/b.png")
    source = open_source(str(tmp_path))
    assert source.labels is None
    assert "holiday" in source.notes[0]
    put(tmp_path, "c.png")
    assert open_source(tmp_path).labels is None  # the same folder, with loose images beside it


def test_class_folders(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png", "cat/deep/er/y.png")
    (tmp_path / "empty").mkdir()
    source = open_source(tmp_path)
    assert ids(source) == ["cat/deep/er/y.png", "cat/x.png", "dog/a.png"]
    assert source.labels.tolist() == [0, 0, 1]
    assert source.class_names == ["cat", "dog"]
    assert any("1 images lie deeper" in note for note in source.notes)
    assert source.image(0).shape == (4, 4, 1)


def test_loose_images_beside_class_folders_are_unlabelled(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png", "loose.png")
    source = open_source(tmp_path)
    assert dict(zip(ids(source), source.labels.tolist(), strict=True)) == {
        "dog/a.png": 1,
        "cat/x.png": 0,
        "loose.png": -1,
    }
    assert any("no label" in note for note in source.notes)


@pytest.mark.parametrize("parts", [("train", "test"), ("Train", "VAL"), ("train",)])
def test_parts_of_a_data_set_are_not_classes(tmp_path, parts):
    for part in parts:
        put(tmp_path, f"{part}/cat/a.png", f"{part}/dog/a.png")
    with pytest.raises(InputError, match="parts of a data set, not classes; give one of them"):
        open_source(tmp_path)


def test_labels_can_be_ignored_or_given(tmp_path):
    put(tmp_path, "dog/a.png", "cat/x.png")
    assert open_source(tmp_path, labels="none").labels is None
    assert open_source(tmp_path, labels=False).class_names is None
    assert open_source(tmp_path, labels=[3, -1]).labels.tolist() == [3, -1]


def test_everything_passed_over_is_counted(tmp_path):
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
    # A link put there after the scan does not help either.
    (data / "stays.png").unlink()
    (data / "stays.png").symlink_to(tmp_path / "outside" / "secret.png")
    with pytest.raises(CorruptImage, match="leads outside the data folder"):
        source.image(1)


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
    with pytest.raises(InputError, match="1 files without an image extension"):
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


def test_a_pipe_is_not_waited_for(tmp_path):
    put(tmp_path, "a.png")
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(CorruptImage, match="not a regular file"):
        open_source(tmp_path).image(1)


def test_order_does_not_depend_on_the_disk(tmp_path):
    names = [f"{number}.png" for number in np.random.default_rng(0).permutation(30)]
    put(tmp_path, *names)
    assert ids(open_source(tmp_path)) == [f"{number}.png" for number in range(30)]
