"""Opening and searching an index; wrong input is one sentence."""

import io
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index.folder import FORMAT
from index_cases import accept_files, folder, picture, rewrite_info, tiny


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("index")
    coulomb.Index.build(
        folder(root / "photos", 12), root / "i", encoder="lite0", image_size=32, precision="float32", workers=0
    )
    return root


@pytest.fixture
def here(original, tmp_path):
    """A copy of the index in ``i``; the photos stay where they are."""
    shutil.copytree(original / "i", tmp_path / "i")
    return tmp_path / "i"


@pytest.fixture(scope="module")
def index(original):
    return coulomb.Index.open(original / "i")


def features(index):
    return np.asarray(index.features, np.float64)


def unit(x):
    return x / np.linalg.norm(x)


def test_the_interface(index):
    assert len(index) == 12 and index.features.shape == (12, 1280) and not index.features.flags.writeable
    assert index.ids[3] == "a/06.png" and index.position("a/06.png") == 3 and index.labels[3] == "a"
    assert index.rows(2, 5).dtype == torch.float32 and index.rows(2, 5).shape == (3, 1280)
    assert Image.open(io.BytesIO(index.thumbnail(0))).format == "JPEG"
    assert index.table.column_names == ["id", "path", "label", "bytes", "sha256", "mtime", "width", "height"]
    assert repr(index).endswith("i', 12 images)")


@pytest.mark.parametrize("row", [-1, 12])
def test_no_thumbnail_of_other_rows(index, row):
    with pytest.raises(InputError, match=f"row={row}: the index has rows 0 to 11"):
        index.thumbnail(row)


def test_search_by_id_leaves_the_image_out(index):
    x = features(index)
    order = [row for row in np.argsort(-(x @ x[3])) if row != 3]
    found = index.search(ids="a/06.png", top=4)
    assert [each["id"] for each in found] == [index.ids[row] for row in order[:4]]
    assert found[0]["similarity"] == pytest.approx(x[3] @ x[order[0]], abs=1e-5)
    assert set(found[0]) == {"id", "path", "similarity", "label"} and found[0]["path"] == index.paths[order[0]]
    assert len(index.search(ids="a/06.png", top=100)) == 11
    json.dumps(found)


def test_words_and_ids_in_place_of_an_image_get_a_remedy(index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ("a red flower", ["a red flower"]):
        with pytest.raises(InputError, match="'a red flower': no such file;.*--text"):
            index.search(given)
    with pytest.raises(InputError, match=f"'{index.ids[0]}': no such file, but the id of an image.*--id"):
        index.search(index.ids[0])
    with pytest.raises(InputError, match="nowhere.jpg: no such file; check the path"):
        index.search(["nowhere.jpg"])


def test_search_by_image_finds_it(index, original):
    found = index.search(original / "photos" / "b" / "05.png", top=1)
    assert found[0]["id"] == "b/05.png" and found[0]["similarity"] == pytest.approx(1, abs=1e-5)
    assert index.search(picture(5), top=1)[0]["id"] == "b/05.png"  # a Pillow image


def test_several_images_are_averaged_and_others_subtracted(index, original):
    x = features(index)
    paths = [original / "photos" / "a" / "00.png", original / "photos" / "a" / "02.png"]
    mean = unit(x[0] + x[1])
    assert index.search(paths, top=12)[0]["similarity"] == pytest.approx((x @ mean).max(), abs=1e-5)
    found = index.search(ids=["a/00.png", "a/02.png"], without_ids=["b/01.png", "b/03.png"], top=20)
    query = unit(mean - unit(x[6] + x[7]))
    order = [row for row in np.argsort(-(x @ query)) if row not in (0, 1, 6, 7)]
    assert [each["id"] for each in found] == [index.ids[row] for row in order]
    assert found[0]["similarity"] == pytest.approx(x[order[0]] @ query, abs=1e-5)
    mixed = index.search(paths[0], ids="a/02.png", without=original / "photos/b/01.png", without_ids="b/03.png", top=20)
    assert [each["id"] for each in mixed if each["id"] not in ("a/00.png", "b/01.png")] == [
        each["id"] for each in found
    ]


def test_neighbors_of_many_queries(index):
    values, rows = index.neighbors(index.rows(0, 12), 3)
    assert rows[:, 0].tolist() == list(range(12)) and values.shape == (12, 3)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "images: no query; give images"),
        ({"without_ids": "a/00.png"}, "without='a/00.png': is subtracted from a query, and there is none"),
        ({"ids": "a/1.png"}, "id='a/1.png': not in the index; the most similar id is 'a/10.png'"),
        ({"ids": "c/05.PNG"}, "not in the index; the most similar id is 'b/05.png'"),
        ({"ids": "\0"}, "not in the index; the most similar id is"),
        ({"ids": "a/00.png", "without_ids": "a/00.png"}, "without: the same images as the query"),
        ({"ids": "a/00.png", "top": 0}, "top=0: must be at least 1"),
        ({"images": "missing.jpg"}, "missing.jpg: no such file"),
    ],
    ids=str,
)
def test_wrong_queries(index, query, message):
    with pytest.raises(InputError, match=message):
        index.search(**query)


def test_features_of_another_encoder_are_refused(index):
    with pytest.raises(InputError, match=r"queries: \[1, 512\]; the index has 1280 features per image"):
        index.neighbors(torch.zeros(1, 512))


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_an_index_of_another_format_is_refused(here, number):
    rewrite_info(here, format=number, coulomb="9.9")
    with pytest.raises(InputError, match=f"coulomb 9.9 in format {number}.* reads {FORMAT}; pip install -U coulomb"):
        coulomb.Index.open(here)


def test_no_index(tmp_path):
    with pytest.raises(InputError, match="x: no such folder; build one with: coulomb index DATA --out"):
        coulomb.Index.open(tmp_path / "x")
    photos = folder(tmp_path / "photos", 2)
    message = r"not an index \(no index.json in it\); build one with: coulomb index .*/photos --out photos.index$"
    with pytest.raises(InputError, match=message):  # not into the folder of the photos
        coulomb.Index.open(photos)


@pytest.mark.parametrize("name", ["features.npy", "images.parquet", "thumbnails.jpgs", "thumbnails.npy"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "foreign"])
def test_damaged_files(here, name, damage):
    file = here / "generation-000001" / name
    content = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes({"cut": content[:-9], "empty": b"", "foreign": b"PAR1" * 40}[damage])
    with pytest.raises(InputError, match=f"half-written, {name} is missing" if damage == "missing" else "is damaged"):
        coulomb.Index.open(here)


@pytest.mark.parametrize(
    "entries",
    [
        {"images": 13},
        {"features": 1},
        {"precision": "float16"},
        {"precision": "object"},
        {"generation": 2},
        {"images": "many"},
        {"encoder": []},
        {"files": []},
        {"files": {"features.npy": {"bytes": -1, "sha256": "0" * 64}}},
        {"files": {"features.npy": {"bytes": 1}}},
        {"data": {"name": 3, "root": None}},
        {"format": None},
    ],
    ids=str,
)
def test_a_wrong_index_json(here, entries):
    rewrite_info(here, **entries)
    with pytest.raises(InputError):
        coulomb.Index.open(here)


def test_an_index_json_that_is_no_json(here):
    (here / "index.json").write_bytes(b"{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        coulomb.Index.open(here)


def test_pickled_features_are_refused(here):
    np.save(here / "generation-000001" / "features.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="is damaged"):
        coulomb.Index.open(here)


def test_paths_that_lead_out_of_the_folder_are_refused(here):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = here / "generation-000001" / "images.parquet"
    table = pq.read_table(file)
    for path in ("../secret.png", "/etc/passwd", "a/../../b.png"):
        paths = [path, *table.column("path").to_pylist()[1:]]
        pq.write_table(table.set_column(1, "path", pa.array(paths)), file)
        accept_files(here)
        index = coulomb.Index.open(here)
        with pytest.raises(InputError, match="leads out of"):
            index.paths
        with pytest.raises(InputError, match="leads out of"):
            index.search(ids="b/01.png", top=20)


def test_moved_photos(tmp_path):
    photos = folder(tmp_path / "photos", 4)
    coulomb.Index.build(photos, tmp_path / "i", encoder=tiny(), workers=0)
    photos.rename(tmp_path / "elsewhere")
    index = coulomb.Index.open(tmp_path / "i")
    assert len(index.neighbors(index.rows(0, 1))[1]) == 1  # needs no photos
    with pytest.raises(InputError, match="photos, no longer exists; give its new place as root .--root FOLDER."):
        index.search(ids="a/00.png")
    moved = coulomb.Index.open(tmp_path / "i", root=tmp_path / "elsewhere")
    assert moved.search(ids="a/00.png", top=1)[0]["path"].startswith(str((tmp_path / "elsewhere").resolve()))
    with pytest.raises(InputError, match="none of the first 4 images is in it, e.g. a/00.png"):
        coulomb.Index.open(tmp_path / "i", root=tmp_path)


def test_a_root_for_images_that_are_not_files(tmp_path):
    coulomb.Index.build("digits", tmp_path / "i", encoder=tiny(), workers=0, progress=False)
    with pytest.raises(InputError, match="not files in a folder; leave it out"):
        coulomb.Index.open(tmp_path / "i", root=tmp_path)


def test_the_encoder_of_an_index(tmp_path):
    photos, encoder = folder(tmp_path / "photos", 4), tiny()
    built = coulomb.Index.build(photos, tmp_path / "i", encoder=encoder, workers=0)
    assert built.encoder.encoder is encoder.encoder  # the same network, not a copy
    with pytest.raises(InputError, match="'tiny': neither a run folder nor an encoder"):
        coulomb.Index.open(tmp_path / "i").encoder
    with pytest.raises(InputError, match="the weights of .* are not those that the index was built with"):
        coulomb.Index.open(tmp_path / "i", encoder=tiny(seed=1)).search(photos / "a" / "00.png")
    opened = coulomb.Index.open(tmp_path / "i", encoder=tiny())
    assert opened.search(photos / "a" / "00.png", top=1)[0]["id"] == "a/00.png"


def test_the_encoder_of_a_run(digit_tree, tmp_path, quick):
    run = coulomb.train(
        str(digit_tree), out=str(tmp_path / "run"), evaluate=False, progress=False, **quick | {"epochs": 1}
    )
    index = coulomb.Index.build(digit_tree, tmp_path / "i", encoder=tmp_path / "run", precision="float32", workers=0)
    expected = torch.nn.functional.normalize(run.encode(digit_tree), dim=1)
    assert torch.allclose(index.rows(0, 60), expected, atol=1e-5)
    opened = coulomb.Index.open(tmp_path / "i")
    assert torch.allclose(opened.encode(digit_tree / "digit-0" / "00.png"), expected[:1], atol=1e-5)
    assert index.search(digit_tree / "digit-0" / "00.png", top=1)[0]["id"] == "digit-0/00.png"
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(InputError, match="no longer exists; give its new place as encoder"):
        coulomb.Index.open(tmp_path / "i").encoder
    moved = coulomb.Index.open(tmp_path / "i", encoder=tmp_path / "moved")
    assert moved.search(digit_tree / "digit-0" / "00.png", top=1)[0]["id"] == "digit-0/00.png"
