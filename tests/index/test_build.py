"""Building and updating: the index always equals one that is built from scratch."""

import hashlib
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index.folder import IndexFolder
from coulomb.kinds.image.views import plain_view
from coulomb.models import build_encoder
from coulomb.tables import DatasetSource
from index_cases import age, folder, picture, tiny


@pytest.fixture
def photos(tmp_path):
    return folder(tmp_path / "photos")


def build(data, out, **options):
    return coulomb.Index.build(data, out, **{"encoder": tiny(), "workers": 0, "progress": False} | options)


def content(index):
    """Everything that an index holds."""
    return index.features.tobytes(), index.table.to_pydict(), [index.thumbnail(row) for row in range(len(index))]


def counts(index):
    return tuple(index.info["last_update"][name] for name in ("new", "changed", "kept", "dropped"))


def test_the_table_has_what_is_known_about_each_file(photos, tmp_path):
    index = build(photos, tmp_path / "i")
    file = photos / "b" / "01.png"
    row = index.position("b/01.png")
    assert index.table.slice(row, 1).to_pylist()[0] | {"mtime": None} == {
        "id": "b/01.png",
        "path": "b/01.png",
        "label": "b",
        "bytes": file.stat().st_size,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "mtime": None,
        "width": 24,
        "height": 20,
    }
    assert index.table.column("mtime").cast("int64")[row].as_py() == file.stat().st_mtime_ns
    assert index.paths[row] == str(file.resolve())
    assert index.ids == sorted(index.ids)  # the order of the data


@pytest.mark.parametrize(("precision", "error"), [("float16", 1e-3), ("float32", 1e-6)])
def test_features_are_those_of_encode_at_unit_length(photos, tmp_path, precision, error):
    encoder = tiny()
    index = build(photos, tmp_path / "i", encoder=encoder, precision=precision)
    expected = torch.nn.functional.normalize(encoder.encode(photos), dim=1)
    assert index.features.dtype == np.dtype(precision)
    assert torch.allclose(index.rows(0, 10), expected, atol=error)


def test_features_of_published_weights_are_those_of_encode(photos, tmp_path):
    index = build(photos, tmp_path / "i", encoder="lite0", image_size=32, precision="float32", batch_size=3)
    expected = torch.nn.functional.normalize(coulomb.load("lite0", image_size=32).encode(photos), dim=1)
    assert torch.allclose(index.rows(0, 10), expected, atol=1e-5)
    assert index.info["encoder"]["name"] == "lite0" and index.encoder.encoder.image_size == 32


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_workers_do_not_change_the_index(photos, tmp_path, workers):
    first, second = build(photos, tmp_path / "1"), build(photos, tmp_path / "2", workers=workers, batch_size=3)
    assert content(first)[1:] == content(second)[1:]
    assert torch.allclose(first.rows(0, 10), second.rows(0, 10), atol=1e-3)


def test_an_update_equals_a_new_index(photos, tmp_path):
    build(photos, tmp_path / "i")
    (photos / "a" / "00.png").unlink()
    age(photos / "a" / "02.png")
    picture(70, 30, 30).save(photos / "a" / "02.png")
    picture(71).save(photos / "a" / "01b.png")
    (photos / "b" / "03.png").rename(photos / "a" / "moved.png")
    updated, fresh = build(photos, tmp_path / "i"), build(photos, tmp_path / "fresh")
    assert content(updated) == content(fresh)
    assert counts(updated) == (2 - 1, 1, 8, 2)  # the moved file keeps its features; both old names are gone


def test_only_new_content_is_embedded(photos, tmp_path, monkeypatch):
    encoder = tiny()
    build(photos, tmp_path / "i", encoder=encoder)
    embedded = []
    monkeypatch.setattr(
        "coulomb.index.embed.plain_view",
        lambda images, *rest: (embedded.append(len(images)), plain_view(images, *rest))[1],
    )
    build(photos, tmp_path / "i", encoder=encoder)
    assert embedded == []
    age(photos / "a" / "00.png")  # another time, the same content
    picture(90).save(photos / "b" / "new.png")
    index = build(photos, tmp_path / "i", encoder=encoder)
    assert embedded == [1] and counts(index) == (1, 0, 10, 0)
    assert build(photos, tmp_path / "i", encoder=encoder).info["last_update"]["kept"] == 11
    assert embedded == [1]


def test_an_update_without_changes_writes_no_new_files(photos, tmp_path):
    build(photos, tmp_path / "i")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "i").glob("generation-*/*")}
    index = build(photos, tmp_path / "i")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "i").glob("generation-*/*")} == before
    assert counts(index) == (0, 0, 10, 0)


def test_old_generations_and_unfinished_work_are_removed(photos, tmp_path):
    build(photos, tmp_path / "i")
    picture(90).save(photos / "b" / "new.png")
    build(photos, tmp_path / "i")
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == ["generation-000002", "index.json"]


def test_corrupt_images_are_counted_and_named(photos, tmp_path):
    (photos / "a" / "02.png").write_bytes(b"no image")
    (photos / "a" / "04.png").write_bytes(b"")
    index = build(photos, tmp_path / "i")
    assert len(index) == 8
    failed = index.info["failed"]
    assert failed["count"] == 2 and [each["id"] for each in failed["first"]] == ["a/02.png", "a/04.png"]
    assert "not an image" in failed["first"][0]["reason"] and "empty" in failed["first"][1]["reason"]


def test_an_image_that_became_unreadable_leaves_the_index(photos, tmp_path):
    build(photos, tmp_path / "i")
    (photos / "a" / "02.png").write_bytes(b"no image")
    index = build(photos, tmp_path / "i")
    assert counts(index) == (0, 0, 9, 1) and index.info["failed"]["count"] == 1


def test_exact_copies_are_separate_rows(photos, tmp_path):
    shutil.copyfile(photos / "a" / "00.png", photos / "b" / "copy.png")
    index = build(photos, tmp_path / "i")
    hashes = index.table.column("sha256").to_pylist()
    assert len(index) == 11 and hashes[index.position("b/copy.png")] == hashes[0]


def test_features_that_are_zero_or_not_finite_are_failures(photos, tmp_path):
    encoder = tiny()
    index = build(photos, tmp_path / "i", encoder=encoder)
    forward = encoder.encoder.backbone.forward
    encoder.encoder.backbone.forward = lambda x: torch.where(
        (torch.arange(len(x)) == 3)[:, None], torch.nan, forward(x)
    )
    index = build(photos, tmp_path / "j", encoder=encoder)
    assert len(index) == 9 and index.info["failed"]["first"] == [
        {"id": "a/06.png", "reason": "its features are zero or not finite"}
    ]
    assert np.isfinite(np.asarray(index.features, np.float32)).all()


def test_no_readable_image(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"none of the 1 images can be read \(a.png: not an image"):
        build(tmp_path / "photos", tmp_path / "i", encoder="lite0", image_size=32)


def test_one_image(tmp_path):
    index = build(folder(tmp_path / "photos", 1), tmp_path / "i")
    assert len(index) == 1 and index.search(ids="a/00.png") == []
    assert index.search(tmp_path / "photos" / "a" / "00.png")[0]["similarity"] == pytest.approx(1, abs=1e-3)


def test_a_list_of_files_and_a_file_given_twice(photos, tmp_path):
    files = [str(photos / "a" / "00.png"), str(photos / "b" / "01.png")]
    index = build(files, tmp_path / "i")
    assert index.ids == files and index.paths == [str((photos / "a" / "00.png").resolve()), index.paths[1]]
    with pytest.raises(InputError, match="given more than once"):
        build([*files, files[0]], tmp_path / "j")


def test_arrays_and_data_sets(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), np.uint8)
    index = build((images, np.array([0, 1, 2, 0, 1, -1])), tmp_path / "i")
    assert index.labels == ["0", "1", "2", "0", "1", None] and index.paths == [None] * 6 and index.root is None
    assert Image.open(io.BytesIO(index.thumbnail(0))).size == (12, 12)
    images[2] = 7
    index = build(images, tmp_path / "i")
    assert counts(index) == (0, 1, 5, 0) and index.labels == [None] * 6
    pairs = [(Image.fromarray(image), 3) for image in images]
    index = build(DatasetSource(torch.utils.data.Subset(pairs, [0, 1])), tmp_path / "k")
    assert len(index) == 2 and index.labels == ["3", "3"]


def test_parquet_is_unchanged_while_its_shard_is(photos, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(files):
        pq.write_table(pa.table({"image": [file.read_bytes() for file in files]}), tmp_path / "p.parquet")

    files = sorted(photos.rglob("*.png"))
    write(files)
    index = build(tmp_path / "p.parquet", tmp_path / "i")
    assert index.ids[0] == "p.parquet#0" and index.paths == [None] * 10
    age(tmp_path / "p.parquet")
    write([*files[1:], files[1]])
    index = build(tmp_path / "p.parquet", tmp_path / "i")
    assert counts(index) == (0, 0, 10, 0)  # all content is known
    assert index.table.column("sha256")[0].as_py() == hashlib.sha256(files[1].read_bytes()).hexdigest()


def test_gray_and_many_channels_have_thumbnails(tmp_path):
    torch.manual_seed(0)
    for channels in (1, 2, 5):
        encoder = coulomb.ImageEncoder(build_encoder("convnet", channels=channels, image_size=16, width=8), "own")
        images = np.random.default_rng(0).random((4, 20, 30, channels)).astype(np.float32)
        index = build(images, tmp_path / str(channels), encoder=encoder)
        thumbnail = Image.open(io.BytesIO(index.thumbnail(1)))
        assert thumbnail.size == (30, 20) and thumbnail.mode == ("L" if channels < 3 else "RGB")


def test_large_photos_have_small_upright_thumbnails(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90°
    (tmp_path / "p").mkdir()
    picture(0, 900, 600).save(tmp_path / "p" / "a.jpg", exif=exif)
    index = build(tmp_path / "p", tmp_path / "i")
    thumbnail = Image.open(io.BytesIO(index.thumbnail(0)))
    assert thumbnail.size == (128, 192) and not thumbnail.getexif()
    assert index.table.select(["width", "height"]).to_pylist() == [{"width": 600, "height": 900}]


def test_another_encoder_size_or_precision_is_refused(photos, tmp_path):
    build(photos, tmp_path / "i")
    before = (tmp_path / "i" / "index.json").read_bytes()
    with pytest.raises(InputError, match="was built with tiny at 16 pixels, weights have changed since"):
        build(photos, tmp_path / "i", encoder=tiny(seed=1))
    with pytest.raises(InputError, match="at 16 pixels, asked for is lite0 at 32 pixels; features of two encoders"):
        build(photos, tmp_path / "i", encoder="lite0", image_size=32)
    with pytest.raises(InputError, match="holds float16, asked for is float32"):
        build(photos, tmp_path / "i", precision="float32")
    with pytest.raises(InputError, match="precision='int8': must be one of float16, float32"):
        build(photos, tmp_path / "i", precision="int8")
    assert (tmp_path / "i" / "index.json").read_bytes() == before


def test_an_update_needs_no_encoder_again(photos, tmp_path):
    build(photos, tmp_path / "i", encoder="lite0", image_size=32)
    assert build(photos, tmp_path / "i", encoder=None).info["encoder"]["image_size"] == 32


def test_other_data_by_mistake_do_not_empty_an_index(photos, tmp_path):
    build(photos, tmp_path / "i")
    others = folder(tmp_path / "others", 3, classes=1)
    (others / "a").rename(others / "c")
    with pytest.raises(InputError, match="is the index of 'photos', and none of its 10 images is in 'others'"):
        build(others, tmp_path / "i")


def test_a_folder_with_other_files_is_refused(photos, tmp_path):
    with pytest.raises(InputError, match=r"holds other files \([ab], …\); choose another folder"):
        build(photos, photos)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InputError, match="cannot be created"):
        build(photos, file)


def test_a_full_disk_is_one_sentence_and_keeps_finished_work(photos, tmp_path, monkeypatch):
    from coulomb.index import embed
    from coulomb.index import update as module

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "gather", full)
        with pytest.raises(InputError, match="cannot be written .No space left on device.; finished work is kept"):
            build(photos, tmp_path / "i")
    monkeypatch.setattr(embed.Embedder, "embed", lambda *_: pytest.fail("embedded again"))
    assert len(build(photos, tmp_path / "i")) == 10


def test_two_builds_at_once_are_refused(photos, tmp_path):
    from coulomb.ground.files import locked

    build(photos, tmp_path / "i")
    with (
        locked(IndexFolder(tmp_path / "i").lock, "building this index"),
        pytest.raises(InputError, match="another process .* is building this index; wait for it"),
    ):
        build(photos, tmp_path / "i")


def test_the_folder_may_move_with_its_photos(photos, tmp_path):
    build(photos, tmp_path / "i")
    photos.rename(tmp_path / "elsewhere")
    index = build(tmp_path / "elsewhere", tmp_path / "i")
    assert counts(index) == (0, 0, 10, 0) and index.paths[0] == str((tmp_path / "elsewhere/a/00.png").resolve())


def test_hostile_names_survive(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    for number, name in enumerate(["a\nb.png", "<script>.png", "\u202egnp.png", "x" * 200 + ".png", "é ü'\".png"]):
        picture(number).save(root / name)
    index = build(root, tmp_path / "i")
    assert len(index) == 5 and all(Path(path).is_file() for path in index.paths)
    assert build(root, tmp_path / "i").info["last_update"]["kept"] == 5


def test_names_that_are_not_utf8(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    picture(0).save(root / "a.png")
    (root / "a.png").rename(os.fsdecode(os.fsencode(root) + b"/\xff.png"))
    picture(1).save(root / "b.png")
    index = build(root, tmp_path / "i")
    assert index.ids == ["b.png", r"\xff.png"] and index.paths[1] is None  # a Parquet file cannot hold this path
    assert build(root, tmp_path / "i").info["last_update"]["kept"] == 2
