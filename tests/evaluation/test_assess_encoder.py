"""Published weights measured as they are agree with scikit-learn on the features that `embed` writes."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier

import coulomb
from coulomb.evaluation.assess_encoder import standardized
from coulomb.ground.errors import InputError
from coulomb.training.plan.resolve import resolve

DATA = Path(__file__).parents[3] / "shared" / "data"


def subset(name, folder, count, seed=0):
    """Writes ``count`` random rows of a real data set to ``folder``; skips if it is not there."""
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in ../shared/data")
    table = pq.read_table(DATA / name)
    chosen = np.sort(np.random.default_rng(seed).choice(len(table), min(count, len(table)), replace=False))
    pq.write_table(table.take(chosen), folder / name)
    return folder / name


def features(encoder, data, out):
    table = pq.read_table(encoder.embed(data, out, progress=False) and out)
    return np.array(table["features"].to_pylist(), dtype=np.float64), np.array(table["label"])


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def knn(train, train_y, test, test_y, k, sigma=0.1):
    """Cosine kNN with weights exp(cos / σ), by scikit-learn."""
    model = KNeighborsClassifier(k, weights=lambda distances: np.exp((1 - distances) / sigma), metric="cosine")
    return model.fit(train, train_y).score(test, test_y)


def linear(train, train_y, test, test_y, C):
    mean, std = train.mean(0), train.std(0)
    std[std < 1e-6 * std.max()] = 1
    model = LogisticRegression(C=C, max_iter=1000)
    return model.fit((train - mean) / std, train_y).score((test - mean) / std, test_y)


def agrees(train_data, test_data, folder, image_size):
    result = coulomb.evaluate("lite0", on=train_data, on_test=test_data, image_size=image_size, progress=False)
    encoder = coulomb.load("lite0", image_size=image_size)
    train, train_y = features(encoder, train_data, folder / "train-features.parquet")
    test, test_y = features(encoder, test_data, folder / "test-features.parquet")
    start = result["starting_point"]
    k = start["protocol"]["knn"]["k"]
    assert start["knn"] == pytest.approx(knn(train, train_y, test, test_y, k), abs=1.5 / len(test_y))
    C = start["protocol"]["linear"]["C"]
    assert start["linear"] == pytest.approx(linear(train, train_y, test, test_y, C), abs=0.01 + 1 / len(test_y))
    cosines = unit(test) @ unit(test).T
    np.fill_diagonal(cosines, -1)
    nearest = test_y[cosines.argmax(1)]
    assert start["retrieval"]["recall_at"]["1"] == pytest.approx((nearest == test_y).mean(), abs=0.5 / len(test_y))
    clusters = KMeans(len(set(test_y)), n_init=10, random_state=0).fit_predict(unit(test))
    assert start["clustering"]["nmi"] == pytest.approx(normalized_mutual_info_score(test_y, clusters), abs=0.15)
    return result


@pytest.mark.slow
def test_rooms_agree_with_scikit_learn(tmp_path):
    source = subset("rooms.parquet", tmp_path, 300)
    table = pq.read_table(source)
    houses = np.array(table["house"])
    test = np.isin(houses, np.unique(houses)[::4])
    for name, rows in (("train", ~test), ("test", test)):
        pq.write_table(table.filter(rows), tmp_path / f"{name}.parquet")
    result = agrees(tmp_path / "train.parquet", tmp_path / "test.parquet", tmp_path, image_size=64)
    start, untrained, pixels = (result[name] for name in ("starting_point", "random_init", "raw_pixels"))
    assert start["knn"] > 0.7 and start["knn"] > max(untrained["knn"], pixels["knn"]) + 0.1
    assert start["few_shot"]["5"]["mean"] > pixels["few_shot"]["5"]["mean"]
    assert pixels["protocol"]["features"] == 3 * 32 * 32
    assert result["protocol"]["image_size"] == 64 and result["failed"] == []
    assert not list(tmp_path.glob("**/evaluation.json"))


@pytest.mark.slow
def test_cifar10_agrees_with_scikit_learn(tmp_path):
    train = subset("cifar10-jpeg-train.parquet", tmp_path, 600)
    result = agrees(train, subset("cifar10-jpeg-test.parquet", tmp_path, 300), tmp_path, image_size=64)
    assert result["starting_point"]["knn"] > 0.4


def test_raw_pixels_are_normalized_per_channel_by_the_training_images():
    train, test = torch.rand(9, 3, 4, 4) * torch.tensor([1, 2, 5.0]).view(3, 1, 1), torch.rand(2, 3, 4, 4)
    train[:, 1] = 7  # a constant channel
    rows, held_out = standardized(train, test)
    assert rows.shape == (9, 48) and held_out.shape == (2, 48)
    channels = rows.view(9, 3, 16).transpose(0, 1).flatten(1)
    torch.testing.assert_close(channels.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(channels.std(1), torch.tensor([1.0, 0.0, 1.0]), atol=1e-5, rtol=0)
    wanted = (test[:, 2] - train[:, 2].mean()) / train[:, 2].std()
    torch.testing.assert_close(held_out.view(2, 3, 16)[:, 2], wanted.flatten(1))


@pytest.fixture
def photos(tmp_path):
    """Two classes of 12 photos that differ in color."""
    draw = np.random.default_rng(0)
    for label, base in (("blue", 40), ("red", 200)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(12):
            small = draw.integers(0, 50, (5, 6, 3), dtype=np.uint8) + np.array([base, 90, 240 - base], np.uint8)
            image = Image.fromarray(small).resize((60, 50), Image.Resampling.BICUBIC)
            image.save(tmp_path / "photos" / label / f"{label}{number // 2}-{number % 2}.png")
    return tmp_path / "photos"


def evaluate(data, **options):
    return coulomb.evaluate("lite0", on=data, image_size=32, progress=False, **options)


def test_result_and_file(photos, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    result = evaluate(photos)
    assert sorted(tmp_path.rglob("*")) == before
    assert set(result) == {"starting_point", "random_init", "raw_pixels", "protocol", "failed"}
    assert result["protocol"]["encoder"] == "lite0" and "bicubic" in result["protocol"]["preprocessing"]
    assert result["raw_pixels"]["knn"] == 1
    assert evaluate(photos, out=tmp_path / "result.json") == result
    assert json.loads((tmp_path / "result.json").read_text()) == result
    with pytest.raises(InputError, match=r"result.json.*already exists"):
        evaluate(photos, out=tmp_path / "result.json")


@pytest.mark.slow
@pytest.mark.parametrize("side", [50, 140])
def test_the_image_size_is_that_of_a_run_on_the_same_images(photos, side, caplog):
    for path in photos.rglob("*.png"):
        with Image.open(path) as image:
            image.resize((side + 10, side)).save(path)
    wanted = resolve({"data": str(photos)}).config
    with caplog.at_level("INFO", "coulomb"):
        result = coulomb.evaluate("lite0", on=photos, progress=False)
    assert result["protocol"]["image_size"] == wanted.image_size == {50: 96, 140: 128}[side]
    assert f"lite0 at {wanted.image_size} pixels, which train chooses for these images" in caplog.text
    assert f"center crop of {wanted.image_size}" in result["protocol"]["preprocessing"]
    assert result["starting_point"]["protocol"]["knn"]["k_asked"] == wanted.knn_k


def test_unreadable_images_are_listed(photos):
    (photos / "red" / "red1-1.png").write_bytes(b"torn")
    result = evaluate(photos)
    assert [failure["id"] for failure in result["failed"]] == ["red/red1-1.png"]
    used = result["starting_point"]["protocol"]
    assert used["train"] + used["test"] == 23
    for path in photos.rglob("*.png"):
        path.write_bytes(b"torn")
    with pytest.raises(InputError, match="none of 24 images can be read"):
        evaluate(photos)


@pytest.mark.slow
def test_options_of_the_measurement(photos):
    assert evaluate(photos, knn_k=3)["starting_point"]["protocol"]["knn"]["k"] == 3
    assert evaluate(photos)["starting_point"]["protocol"]["knn"]["k_asked"] == 20


def test_a_group_is_on_one_side_only(photos):
    assert "2 of 12 groups; no name stem is in both" in evaluate(photos, on_group="name")["protocol"]["split"]


def test_images_without_labels_get_a_remedy_for_their_kind(photos, tmp_path):
    (photos / "blue").rename(tmp_path / "flat")
    table = tmp_path / "table.csv"
    rows = [f"{each},{'ab'[number % 2]}" for number, each in enumerate((tmp_path / "flat").iterdir())]
    table.write_text("\n".join(["path,kind", *rows]))
    cases = {
        tmp_path / "flat": "sort the images into a folder per class, or give a CSV file with columns path and label",
        table: r"name their column as labels \(--labels kind\)",
    }
    for data, words in cases.items():
        with pytest.raises(InputError, match=f"data=.*{words}"):
            evaluate(data)
    with pytest.raises(InputError, match=r"pass a pair \(images, labels\)"):
        evaluate(np.zeros((5, 9, 9, 3), np.uint8))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": None}, "an encoder is evaluated on labeled images"),
        ({"full": True}, "full=True: belongs to a run"),
        ({"data": "digits"}, "data='digits': belongs to a run"),
        ({"knn_q": 3}, "no such option"),
        ({"on": "nowhere"}, "nowhere"),
        ({"image_size": 8}, "lite0 takes images from 32 pixels"),
        ({"on": np.zeros((5, 9, 9, 3), np.uint8)}, r"data='<ndarray>': has no labels"),
    ],
    ids=str,
)
def test_wrong_input(photos, options, words):
    with pytest.raises(InputError, match=words):
        coulomb.evaluate("lite0", **{"on": photos, "image_size": 32, "progress": False} | options)


def test_a_run_has_its_own_size_and_folder(tmp_path):
    (tmp_path / "config.yaml").write_text("data: digits\n")
    for options in ({"image_size": 32}, {"out": "x.json"}):
        with pytest.raises(InputError, match="are for encoders by name"):
            coulomb.evaluate(tmp_path, **options)
