"""Whole runs on six bands: one preparation in training, encode, index, ONNX and the program of the card."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import coulomb
from band_cases import write_tiles
from coulomb.evaluation.assess import transfer
from coulomb.ground.errors import InputError
from coulomb.kinds.image.canvas import Canvas
from coulomb.kinds.image.views import plain_view
from coulomb.report import build_report
from coulomb.training.plan.config import load_config
from coulomb.training.plan.facts import measure, open_data
from coulomb.training.plan.resolve import reopen
from coulomb.training.record.folder import RunFolder, stored_bands

tifffile = pytest.importorskip("tifffile")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("data") / "tiles", 40)


@pytest.fixture(scope="module")
def run(tiles, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "six"
    return coulomb.train(tiles, out=out, epochs=1, batch_size=16, bands="5,1-4,6", seed=1, progress=False)


@pytest.fixture(scope="module")
def files(tiles):
    return sorted(tiles.glob("*/*.tif"))[::9]


def arrays(files):
    return [np.moveaxis(tifffile.imread(file), 0, -1) for file in files]


def test_class_that_is_only_visible_in_one_band(tiles, tmp_path):
    knn = {}
    for name, bands in (("all", None), ("rgb", "1-3")):
        options = {"encoder": "lite0", "image_size": 32, "epochs": 1, "batch_size": 16, "knn_k": 5}
        coulomb.train(tiles, out=tmp_path / name, bands=bands, progress=False, **options)
        evaluation = json.loads((tmp_path / name / "evaluation.json").read_text())
        knn[name] = evaluation["trained"]["knn"]
    assert knn["all"] >= 0.9
    assert knn["rgb"] <= 0.75  # of two classes, 16 images
    log = (tmp_path / "all" / "train.log").read_text()
    assert "repeated for the 6 channels and scaled by 3/6" in log
    assert "6 bands, each scaled to [0, 1]" in log
    encoder = coulomb.load(tmp_path / "rgb").encoder
    assert encoder.preprocessing is not None  # three bands keep the weights and their normalization


def test_one_preparation_everywhere(run, tiles, files, tmp_path):
    stored = json.loads((run.path / "data.json").read_text())["canvas"]
    bands = Canvas.from_dict(stored).bands
    assert bands.chosen == (5, 1, 2, 3, 4, 6)
    # In words, with NumPy alone.
    index = [4, 0, 1, 2, 3, 5]
    low, high = (np.array(each) for each in (bands.low, bands.high))
    by_hand = [np.clip((each[..., index] - low) / (high - low), 0, 1) for each in arrays(files)]
    pixels = torch.from_numpy(np.stack(by_hand).transpose(0, 3, 1, 2)).float()
    with torch.no_grad():
        expected = run.encoder(pixels)
    features = run.encode(files)
    assert torch.allclose(features, expected, atol=1e-5)
    # In memory, in both layouts.
    assert torch.equal(run.encode(arrays(files)), features)
    assert torch.equal(run.encode(np.stack(arrays(files)).transpose(0, 3, 1, 2)), features)
    # As in training.
    plan = reopen(RunFolder(run.path), progress=False)
    store = plan.prepared.train.images
    rows = [next(row for row in range(len(store)) if store.item_id(row) == "/".join(file.parts[-2:])) for file in files]
    batch = next(store.batches(np.array(rows), len(rows)))
    assert torch.allclose(plain_view(batch.stack, run.encoder.image_size), pixels, atol=1e-6)
    # In an index.
    made = coulomb.Index.build(tiles, tmp_path / "index", encoder=run)
    places = [made.ids.index("/".join(file.parts[-2:])) for file in files]
    unit = torch.nn.functional.normalize(features)
    assert torch.allclose(torch.as_tensor(np.array(made.features[places], np.float32)), unit, atol=2e-3)
    assert made.search(files[0], top=1)[0]["id"] == made.ids[places[0]]


def test_exported_programs(run, files, tmp_path):
    pytest.importorskip("onnxscript")
    from coulomb.export import to_hub, to_onnx

    features = run.encode(files).numpy()
    to_onnx(run, tmp_path / "model.onnx")  # compares arrays of many sizes, with missing values
    command = [sys.executable, tmp_path / "model.py", *files]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = np.array([[float(number) for number in line.split()[1:]] for line in lines])
    assert np.abs(found - features).max() < 1e-4
    to_hub(run, tmp_path / "hub")
    code = (tmp_path / "hub" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    ends = "import sys\nnp.save('features.npy', encode(sys.argv[1:]).numpy())\n"
    (tmp_path / "hub" / "program.py").write_text(f"{code}\n{ends}")
    subprocess.run([sys.executable, "program.py", *files], cwd=tmp_path / "hub", check=True)
    assert np.abs(np.load(tmp_path / "hub" / "features.npy") - features).max() < 1e-4
    assert torch.equal(coulomb.load(tmp_path / "hub").encode(files), run.encode(files))


def test_other_images_are_refused_with_the_reason(run, files):
    values = arrays(files[:1])[0]
    for wrong, reason in (
        (values[..., :4], "has 4 channels, and the training images have 6"),
        (values.astype(np.uint8), "its values are uint8"),
        (np.full(values.shape, np.nan, np.float32), "holds no values"),
    ):
        with pytest.raises(InputError, match=reason):
            run.encode([wrong])
    partly = np.where(values > values.mean(), np.nan, values.astype(np.float32))
    assert run.encode([partly]).isfinite().all()


def test_evaluated_on_other_images_with_the_ranges_of_the_run(run, tmp_path):
    brighter = write_tiles(tmp_path / "other", 12, seed=5)
    for path in brighter.glob("*/*.tif"):
        values = tifffile.imread(path) // 2
        tifffile.imwrite(path, values, photometric="minisblack", planarconfig="separate")
    result = transfer(RunFolder(run.path), brighter, progress=False)
    assert result["protocol"]["channels"] == 6
    config = load_config(RunFolder(run.path).config)
    assert measure(config, *open_data(config)).bands == stored_bands(RunFolder(run.path)).bands


def test_the_page_says_what_pictures_show(run):
    build_report(run.path)
    page = (run.path / "report.html").read_text()
    assert "bands 5, 1, 2, 3, 4, 6 of 6, each scaled to [0, 1]" in page
    assert "false color: bands 5, 1, 2 as red, green, blue" in page
