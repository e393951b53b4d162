"""`Run.encode` and `Run.classify` take images of any kind and prepare them as the evaluation does; `embed_to_parquet`."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.evaluation.contestants import contestants
from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder
from coulomb.models.encode import canvas_for, embed_to_parquet
from coulomb.tables import ArraySource, open_source
from coulomb.tables.sources import open_images
from coulomb.training.plan.resolve import reopen

KINDS = ("rgb", "palette", "sixteen", "rgba", "rotated", "cmyk", "gray", "jpeg", "two", "square")
OPTIONS = {"epochs": 1, "batch_size": 4, "encoder": "convnet", "encoder_width": 4, "embedding_dim": 4, "workers": 0}


def save(kind, path, seed):
    draw = np.random.default_rng(seed)
    height, width = (16, 16) if kind == "square" else (20 + seed % 9, 30 - seed % 7)
    pixels = draw.integers(0, 256, (height, width, 4), dtype=np.uint8)
    image = Image.fromarray(pixels[..., :3])
    options = {}
    if kind == "palette":
        image = image.quantize(32)
    elif kind == "sixteen":
        image = Image.fromarray(draw.integers(0, 65536, (height, width)).astype(np.uint16))
    elif kind == "rgba":
        image = Image.fromarray(pixels, "RGBA")
    elif kind == "rotated":
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = 6
    elif kind == "cmyk":
        image = image.convert("CMYK")
    elif kind == "gray":
        image = image.convert("L")
    elif kind == "two":
        image = image.convert("1")
    extension = "jpg" if kind in ("rotated", "cmyk", "jpeg") else "png"
    file = path / f"{seed:02}-{kind}.{extension}"
    image.save(file, **options)
    return file


def canvas_of(side, image_size, count=4):
    """The side of the canvas for images of ``side`` (height, width)."""
    pictures = np.random.default_rng(0).integers(0, 256, (count, *side, 3), dtype=np.uint8)
    return canvas_for(ArraySource(pictures), image_size).size


def test_small_equal_squares_are_stored_unchanged():
    assert canvas_of((16, 16), 16) == 16
    assert canvas_of((8, 8), 16) == 8
    assert canvas_of((33, 33), 16) == 24  # more than twice the input


def test_other_images_are_stored_a_third_larger_than_the_input():
    assert canvas_of((200, 200), 96) == 128
    assert canvas_of((40, 30), 32) == 48  # 42.7, rounded up to a multiple of 8


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two of each odd kind in two class folders; sizes differ."""
    root = tmp_path_factory.mktemp("encode") / "photos"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number, kind in enumerate(KINDS * 2):
            save(kind, root / name, number + 40 * (name == "dog"))
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    return coulomb.train(photos, method="supcon", image_size=16, out=out, evaluate=False, progress=False, **OPTIONS)


@pytest.fixture(scope="module")
def files(photos):
    return sorted(photos.rglob("*.*"))


def equal(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_encode_agrees_with_embed(run, photos, files, tmp_path):
    features = run.encode(files)
    assert features.shape == (40, run.encoder.feature_dim) and features.dtype == torch.float32
    run.embed(photos, tmp_path / "all.parquet", progress=False)
    equal(features, torch.tensor(pq.read_table(tmp_path / "all.parquet")["features"].to_pylist()))
    equal(features, run.encode(photos))
    run.embed([str(file) for file in files[:3]], tmp_path / "some.parquet", progress=False)
    table = pq.read_table(tmp_path / "some.parquet")
    equal(features[:3], torch.tensor(table["features"].to_pylist()))
    assert table["id"].to_pylist() == [str(file) for file in files[:3]]


def test_encode_agrees_with_the_evaluation(run, photos):
    """Except for images that have the network's size already: these are not resized at all."""
    plan = reopen(run.folder, progress=False)
    prepared = plan.prepared
    trained = contestants(plan.config, run.folder, prepared, plan.views, None)["trained"]
    features, kept = trained.features(prepared.test)
    paths = [photos / prepared.test.images.item_id(index) for index in kept]
    rows = [row for row, path in enumerate(paths) if "square" not in path.name]
    assert len(rows) > 4
    equal(run.encode([paths[row] for row in rows]), features[rows])


def test_features_do_not_depend_on_other_images(run, files):
    together = run.encode(files)
    for file, row in zip(files, together, strict=True):
        equal(run.encode(str(file)), row[None])


def test_pillow_images_and_arrays_agree_with_files(run, files):
    wanted = run.encode(files[:10])
    images = [Image.open(file) for file in files[:10]]
    for image in images:
        image.load()
    lossless = [row for row, file in enumerate(files[:10]) if file.suffix == ".png"]
    equal(run.encode(images)[lossless], wanted[lossless])  # a JPEG may be decoded smaller from its file
    equal(run.encode(images[0]), run.encode([images[0]]))
    source = open_source(files[0].parent, labels=False)
    arrays = [source.image(index) for index in range(10)]
    equal(run.encode(arrays)[lossless], wanted[lossless])


@pytest.mark.parametrize("side", [16, 25, 64])
def test_arrays_and_tensors_in_every_layout(run, side):
    pixels = np.random.default_rng(0).integers(0, 256, (5, side, side, 3), dtype=np.uint8)
    wanted = run.encode(list(pixels))
    assert wanted.shape == (5, run.encoder.feature_dim)
    floats = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    for batch in (pixels, pixels.transpose(0, 3, 1, 2), torch.from_numpy(pixels).permute(0, 3, 1, 2)):
        equal(run.encode(batch), wanted)
    for same in (floats, list(floats), pixels.astype(np.float64) / 255):  # resized without rounding to 8 bits
        torch.testing.assert_close(run.encode(same), wanted, rtol=0, atol=0.01 * float(wanted.abs().max()))
    for one in (pixels[0], torch.from_numpy(pixels[0]).permute(2, 0, 1), Image.fromarray(pixels[0])):
        equal(run.encode(one), wanted[:1])
    if side == 16:
        with torch.no_grad():
            equal(run.encode(floats), run.encoder(floats))


def test_gray_arrays(run):
    gray = np.random.default_rng(0).integers(0, 256, (20, 24, 30), dtype=np.uint8)
    wanted = run.encode([Image.fromarray(image) for image in gray])
    equal(run.encode(gray), wanted)
    equal(run.encode(gray[0]), wanted[:1])
    equal(run.encode(torch.from_numpy(gray)[:, None]), wanted)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.full((8, 8, 3), 255.0), r"images\[0\]: float pixels range from 255 to 255; .*divide by 255"),
        (torch.rand(2, 3, 8, 8) * 255, r"images\[0\]: float pixels range from .*divide by 255"),
        ([torch.rand(3, 8, 8), torch.randn(3, 8, 8)], r"images\[1\]: float pixels range from -"),
        (np.zeros((8, 8, 3), np.int64), r"images\[0\].*type int64"),
        (np.zeros((3, 8, 8), np.uint8), r"one image \[C, H, W\] or 3 gray ones"),
        (np.zeros((2, 30, 8, 8), np.uint8), "which axis"),
        (np.zeros((1, 1, 2, 8, 8), np.uint8), r"one image is \[H, W\]"),
        (torch.zeros(40, 8, 8), r"one image is \[C, H, W\]"),
        (np.zeros((8, 9, 5), np.uint8), "5 channels instead of 3"),
        ([], "the list is empty"),
        ([3], r"images\[0\]: int is not an image"),
        ({"a": 1}, "dict"),
        ("nowhere.jpg", "nowhere.jpg: no such file"),
        (["nowhere.jpg", "else.jpg"], r"nowhere.jpg: no such file \(and 1 more of 2 images\)"),
    ],
)
def test_invalid_images_are_refused(run, images, words):
    with pytest.raises(InputError, match=words):
        run.encode(images)


@pytest.mark.parametrize("name", ["features.csv", "features.npy", "features"])
def test_embed_does_not_write_parquet_under_another_name(run, files, tmp_path, name):
    with pytest.raises(InputError, match=f"out='.*{name}': embed writes Parquet; .*ends in .parquet"):
        run.embed(files[:2], tmp_path / name, progress=False)
    assert not list(tmp_path.iterdir())


def test_truncated_file_and_folder_among_files(run, files, tmp_path):
    (tmp_path / "torn.png").write_bytes(b"torn")
    for bad, words in ((tmp_path / "torn.png", "not an image"), (tmp_path, "a folder; pass it on its own")):
        with pytest.raises(InputError, match=words):
            run.encode([files[0], bad])


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.rand(2, 3, 16, 16) * 255, "values from .*divide values 0 to 255 by 255"),
        (torch.randn(2, 3, 16, 16), "values from -"),
        (torch.rand(2, 3, 64, 64), "trained on 16×16 pixels; run.encode"),
        (torch.rand(2, 1, 16, 16), r"\[B, 3, H, W\]"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), "floats"),
        (torch.full((1, 3, 16, 16), torch.nan), "values from nan"),
        (Image.new("RGB", (16, 16)), "must be a tensor, got Image; run.encode"),
    ],
    ids=("bytes", "normalized", "size", "channels", "integers", "nan", "pillow"),
)
def test_encoder_refuses_other_input(run, images, words):
    with pytest.raises(InputError, match=words):
        run.encoder(images)


def test_only_the_encoder_of_a_run_checks_its_input(run):
    with torch.no_grad():
        assert load_encoder(run.path)(torch.rand(2, 3, 64, 64) * 255).shape == (2, run.encoder.feature_dim)
        assert run.encoder(torch.rand(2, 3, 16, 16) * 1.2 - 0.1).shape == (2, run.encoder.feature_dim)


def test_classify(run, files):
    found = run.classify(files)
    assert len(found) == 40 and found.ids == [str(file) for file in files] and found.failed == []
    assert found.class_names == ["cat", "dog"] and set(found.names) <= {"cat", "dog"}
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(40))
    wanted = run.classifier(run.encode(files))
    assert torch.equal(found.labels, wanted.argmax(1))
    torch.testing.assert_close(found.probabilities, wanted.softmax(1))
    (name, chance), (other, rest) = found.top(5)[0]
    assert {name, other} == {"cat", "dog"} and chance >= rest and name == found.names[0]
    assert str(found).splitlines()[0].startswith(str(files[0]))
    as_dict = json.loads(json.dumps(found.to_dict()))
    assert as_dict["images"][0]["probabilities"].keys() == {"cat", "dog"}


def test_classify_skips_only_on_request(run, files):
    with pytest.raises(InputError, match="no such file"):
        run.classify([files[0], "nowhere.png"])
    found = run.classify(["nowhere.png", files[0]], skip_unreadable=True)
    assert (found.ids, found.failed) == ([str(files[0])], [{"id": "nowhere.png", "reason": "no such file"}])
    nothing = run.classify(["nowhere.png"], skip_unreadable=True)
    assert len(nothing) == 0 and nothing.names == [] and str(nothing) == ""


def test_classes_without_names(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", images=images, labels=np.arange(24) % 3)
    run = coulomb.train(
        tmp_path / "d.npz", method="softmax", out=tmp_path / "run", evaluate=False, progress=False, **OPTIONS
    )
    assert run.classify(images[:4, ..., None]).class_names == ["0", "1", "2"]
    shutil.copytree(run.path, tmp_path / "plain")
    (tmp_path / "plain" / "classifier.json").unlink()
    with pytest.raises(
        InputError, match=r"has no classifier; train on labeled images by a method.*--method supcon.*run.encode"
    ):
        coulomb.load(tmp_path / "plain").classify(images)


def test_run_of_an_earlier_version_without_a_canvas(run, files, tmp_path):
    shutil.copytree(run.path, tmp_path / "old")
    data = json.loads((tmp_path / "old" / "data.json").read_text())
    del data["canvas"]
    (tmp_path / "old" / "data.json").write_text(json.dumps(data))
    equal(coulomb.load(tmp_path / "old").encode(files), run.encode(files))
    (tmp_path / "old" / "data.json").unlink()
    equal(coulomb.load(tmp_path / "old").encode(files), run.encode(files))


def test_small_uniform_images_are_not_resized(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (24, 24, 24, 3), dtype=np.uint8)
    run = coulomb.train(images, image_size=16, out=tmp_path / "run", evaluate=False, progress=False, **OPTIONS)
    assert json.loads((run.path / "data.json").read_text())["canvas"] == {"size": 24, "dtype": "uint8"}
    Image.fromarray(images[0]).save(tmp_path / "same.png")
    Image.fromarray(images[0]).resize((50, 40)).save(tmp_path / "other.png")
    alone = run.encode(tmp_path / "same.png")
    equal(run.encode([tmp_path / "other.png", tmp_path / "same.png"])[1:], alone)
    equal(run.encode(images)[:1], alone)


def test_ids_of_images():
    assert [open_images(np.zeros((12, 9, 9, 3), np.uint8)).item_id(index) for index in (0, 11)] == ["0", "11"]


@pytest.fixture
def small_encoder():
    return build_encoder("convnet", channels=3, image_size=16, width=4, stages=2).eval()


def test_parquet_has_labels_and_classes(small_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("coulomb.models.encode.ROWS", 4)  # several row groups
    images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    labels = np.array([0, 1, -1, 0, 1, -1, 0, 1, 1, 1])
    source = ArraySource(images, labels, class_names=["ant", "bee"])
    done = embed_to_parquet(small_encoder, source, tmp_path / "f.parquet", progress=False)
    table = pq.read_table(tmp_path / "f.parquet")
    assert done == {"rows": 10, "features": 8, "failed": []}
    assert table.column("label").to_pylist() == [None if label < 0 else label for label in labels]
    assert table.column("class").to_pylist()[:3] == ["ant", "bee", None]
    assert pq.ParquetFile(tmp_path / "f.parquet").num_row_groups == 3
    assert len(set(table.column("id").to_pylist())) == 10


def test_parquet_is_not_overwritten_or_left_incomplete(small_encoder, tmp_path):
    source = ArraySource(np.zeros((3, 16, 16, 3), np.uint8))
    (tmp_path / "f.parquet").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        embed_to_parquet(small_encoder, source, tmp_path / "f.parquet")
    with pytest.raises(InputError, match="cannot be written"):
        embed_to_parquet(small_encoder, source, tmp_path / "nowhere" / "f.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]
