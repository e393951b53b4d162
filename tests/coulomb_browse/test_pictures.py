"""Originals are decoded here and only files of the index are read."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.picture import CorruptImage
from coulomb_browse.pictures import MOST_UPLOADS, SIDE, Uploads, preview


def index_of(path, root=None):
    return SimpleNamespace(paths=[str(path)], ids=["x"], root=root, thumbnail=lambda at: b"thumbnail")


def save(path, size=(40, 30), **options):
    Image.new("RGB", size, (200, 30, 30)).save(path, **options)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tif", "a.bmp", "a.gif"])
def test_any_format_is_sent_as_jpeg(tmp_path, name):
    content = preview(index_of(save(tmp_path / name), tmp_path), 0)
    picture = Image.open(io.BytesIO(content))
    assert (picture.format, picture.size) == ("JPEG", (40, 30))
    assert abs(np.asarray(picture.convert("RGB")).mean((0, 1)) - [200, 30, 30]).max() < 8


def test_large_pictures_are_made_smaller(tmp_path):
    picture = Image.open(io.BytesIO(preview(index_of(save(tmp_path / "a.jpg", (4000, 1000)), tmp_path), 0)))
    assert picture.size == (SIDE, SIDE // 4)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_deep_pictures_keep_their_brightness(tmp_path, dtype):
    value = 2**15 if dtype is np.uint16 else 0.5
    Image.fromarray(np.full((20, 20), value, dtype)).save(tmp_path / "a.tif")
    picture = Image.open(io.BytesIO(preview(index_of(tmp_path / "a.tif", tmp_path), 0)))
    assert abs(float(np.asarray(picture).mean()) - 128) < 3


def test_a_file_is_never_sent_as_it_is(tmp_path):
    path = save(tmp_path / "a.jpg")
    path.write_bytes(path.read_bytes() + b"<script>alert(1)</script>")
    assert b"<script>" not in preview(index_of(path, tmp_path), 0)


def test_links_within_the_root_are_followed_and_others_refused(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir(), outside.mkdir()
    save(root / "a.png"), save(outside / "secret.png")
    (root / "in.png").symlink_to(root / "a.png")
    (root / "out.png").symlink_to(outside / "secret.png")
    (root / "folder").symlink_to(outside)
    assert preview(index_of(root / "in.png", root), 0)
    for name in ("out.png", "folder/secret.png", "../outside/secret.png"):
        with pytest.raises(InputError, match="leads out of the folder"):
            preview(index_of(root / name, root), 0)


def test_without_a_root_links_are_refused(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    assert preview(index_of((tmp_path / "a.png").resolve()), 0)
    with pytest.raises(InputError, match="leads out"):
        preview(index_of(tmp_path / "link.png"), 0)


def test_missing_files_loops_folders_and_other_files_get_a_sentence(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "notes.txt").write_text("private")
    for name, reason in (
        ("gone.png", "--root"),
        ("loop", "no such file"),
        (".", "folder"),
        ("notes.txt", "not an image"),
    ):
        with pytest.raises(InputError, match=reason):
            preview(index_of(tmp_path / name, tmp_path), 0)


def test_an_image_of_a_table_is_its_thumbnail():
    assert preview(SimpleNamespace(paths=[None], thumbnail=lambda at: b"thumbnail"), 0) == b"thumbnail"


def test_uploads_are_kept_in_memory_until_there_are_too_many():
    uploads = Uploads()
    keys = []
    for number in range(MOST_UPLOADS + 1):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (number, 0, 0)).save(file, "PNG")
        keys.append(uploads.add(file.getvalue()))
    assert uploads[keys[-1]].size == (8, 8)
    with pytest.raises(InputError, match="drop it on the page again"):
        uploads[keys[0]]
    assert uploads.add(file.getvalue()) == keys[-1]


def test_of_bands_those_that_the_encoder_uses_first_are_shown(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    values = np.zeros((5, 40, 40), np.uint16)
    values[4, :20], values[1, :, :20] = 3000, 900  # becomes red above and green on the left
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", planarconfig="separate")
    bands = Bands(5, (5, 2, 1), (0.0,) * 3, (1.0,) * 3, (0.0,) * 3)
    shown = np.asarray(Image.open(io.BytesIO(preview(index_of(tmp_path / "a.tif", tmp_path), 0, bands)))).astype(int)
    assert (shown[5, 35] > [150, -1, -1]).all()
    assert shown[5, 35, 1] < 90
    assert shown[35, 5, 1] > 150
    assert shown[35, 5, 0] < 90
    with pytest.raises(CorruptImage, match="has 5 channels, and the training images have 6"):
        preview(index_of(tmp_path / "a.tif", tmp_path), 0, Bands(6, (1, 2, 3)))
