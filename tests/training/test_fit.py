"""Small complete runs: their files, and their reproducibility."""

import json
import math
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

import coulomb
from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.training.plan.config import load_config


def losses(run):
    return [line["loss"] for line in run.metrics if "loss" in line]


@pytest.fixture(scope="module")
def finished(digit_tree, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return coulomb.train(
        digit_tree,
        out=out,
        epochs=3,
        batch_size=8,
        encoder="convnet",
        encoder_width=8,
        image_size=16,
        embedding_dim=8,
        workers=0,
        progress=False,
    )


def test_the_run_folder_is_complete(finished):
    names = {path.name for path in finished.path.iterdir()}
    assert names >= {
        "config.yaml",
        "data.json",
        "split.json",
        "environment.json",
        "metrics.jsonl",
        "evaluation.json",
        "samples.npz",
        "views.png",
        "encoder.safetensors",
        "encoder.json",
        "checkpoints",
        "train.log",
        "report.html",
    }
    assert not list(finished.path.rglob("*.tmp"))


def test_metric_lines(finished):
    lines = finished.metrics
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(1, len(training) + 1))
    assert {"step", "epoch", "loss", "lr", "no_signal"} <= training[0].keys()
    assert all(line["no_signal"] == math.log(2 * 8 - 1) for line in training)
    assert all(0 < line["floor"] < line["no_signal"] for line in training)
    live = [line for line in lines if "knn" in line]
    assert [line["epoch"] for line in live] == [0, 1, 2, 3]
    assert all(0 <= line["knn"] <= 1 and line["effective_rank"] >= 1 for line in live)


def test_the_evaluation_has_its_baselines_and_protocol(finished):
    result = json.loads((finished.path / "evaluation.json").read_text())
    for name in ("trained", "random_init", "raw_pixels"):
        assert 0 <= result[name]["knn"] <= 1
        assert 0 <= result[name]["linear"] <= 1
        assert set(result[name]["few_shot"]["1"]) >= {"mean", "std"}
        assert set(result[name]["few_shot"]) >= {"1", "5"}
        assert result[name]["protocol"]
    assert "stratified" in result["protocol"]["split"]
    assert result["protocol"]["epoch"] == 3


def test_the_split_is_saved_and_disjoint(finished):
    split = json.loads((finished.path / "split.json").read_text())
    assert not set(split["train"]) & set(split["test"])
    assert len(split["train"]) + len(split["test"]) == 60


def test_the_split_lists_the_ids_that_embed_writes(tmp_path, digit_tree, quick):
    """Positions would count unreadable files, which have no features."""
    tree = shutil.copytree(digit_tree, tmp_path / "tree")
    (tree / "digit-0" / "00.png").write_bytes(b"torn")
    run = coulomb.train(tree, out=tmp_path / "run", max_corrupt=0.1, evaluate=False, progress=False, **quick)
    split = json.loads((run.path / "split.json").read_text())
    run.embed(tree, tmp_path / "features.parquet", progress=False)
    assert sorted(split["train"] + split["test"]) == sorted(
        pq.read_table(tmp_path / "features.parquet")["id"].to_pylist()
    )
    assert coulomb.evaluate(run.path, progress=False)["trained"]["protocol"]["test"] == len(split["test"])


def test_the_split_of_a_run_must_be_the_saved_one(tmp_path, digit_tree, quick):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick)
    file = run.path / "split.json"
    split = json.loads(file.read_text())
    file.write_text(json.dumps(split | {"test": split["train"]}))
    with pytest.raises(InputError, match=r"test images.*48 then, 12 now"):
        coulomb.evaluate(run.path, progress=False)


def test_the_encoder_loads_in_plain_python(finished):
    encoder = coulomb.load(finished.path).encoder
    features = encoder(torch.rand(3, 1, 16, 16))
    assert features.shape == (3, encoder.feature_dim)
    assert not encoder.training


def test_config_recreates_the_run(finished, tmp_path):
    config = load_config(finished.path / "config.yaml")
    options = {k: v for k, v in vars(config).items() if k not in ("out", "data")}
    again = coulomb.train(config.data, out=tmp_path / "again", evaluate=False, progress=False, **options)
    assert losses(again) == losses(finished)
    for old, new in zip(finished.encoder.state_dict().values(), again.encoder.state_dict().values(), strict=True):
        assert torch.equal(old, new)


def test_nothing_is_overwritten(finished, digit_tree, quick):
    before = (finished.path / "config.yaml").read_text()
    with pytest.raises(InputError, match="already exists"):
        coulomb.train(digit_tree, out=finished.path, progress=False, **quick)
    assert (finished.path / "config.yaml").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("cache_gb", [1.0, 0.0])
def test_the_number_of_workers_changes_nothing(digit_tree, tmp_path, quick, cache_gb):
    found = []
    for workers in (0, 1, 2):
        run = coulomb.train(
            digit_tree,
            out=tmp_path / f"w{workers}",
            workers=workers,
            cache_gb=cache_gb,
            evaluate=False,
            progress=False,
            **quick,
        )
        found.append(losses(run))
    assert found[0] == found[1] == found[2]


def test_supcon_learns_from_partial_labels(tmp_path, quick):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 16, 16, 1), dtype=np.uint8)
    labels = np.where(np.arange(40) % 2, np.arange(40) % 3, -1)
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    run = coulomb.train(tmp_path / "data.npz", method="supcon", out=tmp_path / "run", progress=False, **quick)
    assert all(map(math.isfinite, losses(run)))
    assert run.evaluation["trained"]["knn"] is not None


def test_supcon_without_labels_is_refused(tmp_path, quick, digit_tree):
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(sorted(digit_tree.rglob("*.png"))[:20]):
        shutil.copy(path, flat / f"{number}.png")
    with pytest.raises(InputError, match=r"supcon.*labels"):
        coulomb.train(flat, method="supcon", out=tmp_path / "run", progress=False, **quick)
    run = coulomb.train(flat, out=tmp_path / "run", progress=False, **quick)
    assert run.evaluation["trained"]["knn"] is None
    assert 0 <= run.evaluation["trained"]["view_retrieval"] <= 1


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU())

    def forward(self, x):
        return self.layers(x).mean((2, 3))


def test_a_users_own_module(tmp_path, digit_tree, quick):
    quick = {k: v for k, v in quick.items() if not k.startswith("encoder")}
    run = coulomb.train(digit_tree, encoder=Own(), out=tmp_path / "run", progress=False, **quick)
    x = torch.rand(2, 1, 16, 16)
    with pytest.raises(InputError, match="module"):
        _ = coulomb.load(run.path).encoder
    torch.testing.assert_close(coulomb.load(run.path, Own()).encoder(x), run.encoder(x))


class Explodes(Own):
    def forward(self, x):
        features = super().forward(x)
        return features * float("nan") if self.training else features


def test_a_nonfinite_loss_stops_and_saves_the_batch(tmp_path, digit_tree, quick):
    quick = {k: v for k, v in quick.items() if not k.startswith("encoder")}
    with pytest.raises(NonFiniteError, match=r"step 1; .* output of tower\.encoder\.backbone \(Explodes\)"):
        coulomb.train(digit_tree, encoder=Explodes(), out=tmp_path / "run", progress=False, **quick)
    assert (tmp_path / "run" / "nonfinite-batch.pt").exists()
    assert "non-finite" in (tmp_path / "run" / "train.log").read_text()


def test_accumulation_is_one_update_of_several_batches(tmp_path, digit_tree, quick):
    run = coulomb.train(digit_tree, out=tmp_path / "run", accumulate=3, evaluate=False, progress=False, **quick)
    steps = math.ceil(3 * (48 // 8) / 3)
    assert [line["step"] for line in run.metrics if "loss" in line] == list(range(1, steps + 1))


def test_corrupt_images_are_named_counted_and_limited(tmp_path, digit_tree, quick):
    tree = shutil.copytree(digit_tree, tmp_path / "tree")
    broken = tree / "digit-1" / "03.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(InputError, match=r"1 of 60 images.*max_corrupt=0\.01.*03\.png"):
        coulomb.train(tree, out=tmp_path / "strict", progress=False, **quick)
    for cache_gb in (1.0, 0.0):
        out = tmp_path / f"cache{cache_gb}"
        options = quick | {"cache_gb": cache_gb, "workers": 0, "max_corrupt": 0.1, "evaluate": cache_gb > 0}
        run = coulomb.train(tree, out=out, progress=False, **options)
        assert "03.png" in (out / "train.log").read_text()
        assert [entry["id"] for entry in json.loads((out / "data.json").read_text())["corrupt"]] == ["digit-1/03.png"]
        assert all(map(math.isfinite, losses(run)))
    assert "03.png" in (tmp_path / "cache1.0" / "report.html").read_text()


@pytest.mark.parametrize("cache_gb", [1.0, 0.0])
def test_an_image_with_16_bits_among_others_is_counted_and_named(tmp_path, digit_tree, quick, cache_gb):
    tree = shutil.copytree(digit_tree, tmp_path / "tree")
    with Image.open(tree / "digit-1" / "03.png") as image:
        deep = np.asarray(image.convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(tree / "digit-1" / "03.png")
    results = [
        coulomb.train(data, out=tmp_path / name, cache_gb=cache_gb, workers=0, evaluate=False, progress=False, **quick)
        for name, data in (("before", digit_tree), ("after", tree))
    ]
    text = (tmp_path / "after" / "train.log").read_text()
    assert (
        text.count("1 image has more than 8 bits per channel and is read as 8 bits") == 1 and "digit-1/03.png" in text
    )
    assert json.loads((tmp_path / "after" / "data.json").read_text())["rounded"] == 1
    assert losses(results[0]) == losses(results[1])


@pytest.mark.parametrize("missing", [0, 1])
def test_too_few_images_are_counted_and_the_missing_files_named(tmp_path, digit_tree, missing):
    """It said "neighbors=1: there are 1 training images", of an option that nobody had set."""
    files = [str(path) for path in sorted((digit_tree / "digit-0").glob("*.png"))[: 2 - missing]]
    rows = files + [str(digit_tree / f"missing{number}.png") for number in range(missing)]
    (digit_tree / "few.csv").write_text("\n".join(["path", *rows]))
    why = "1 training image (2 images, 1 held out" + (", 1 unreadable: missing0.png: no such file)" if missing else ")")
    try:
        with pytest.raises(InputError, match=re.escape(why)):
            coulomb.train(digit_tree / "few.csv", out=tmp_path / "run", tune="none", encoder="lite0", progress=False)
    finally:
        (digit_tree / "few.csv").unlink()


def test_a_function_is_no_views(tmp_path, digit_tree):
    with pytest.raises(InputError, match=r"views=<lambda>: .*OwnViews\(function, size=S, channels=C\)"):
        coulomb.train(digit_tree, views=lambda images, generator: images, out=tmp_path / "run", progress=False)


def test_resuming_a_finished_run_evaluates_it_once(finished, tmp_path, caplog):
    run = coulomb.load(shutil.copytree(finished.path, tmp_path / "run"))
    before = {path: path.read_bytes() for path in (run.folder.evaluation, run.folder.doctor, run.report)}
    stamps = {path: path.stat().st_mtime_ns for path in before}
    with caplog.at_level("INFO", "coulomb"):
        coulomb.train(resume_from=run.path, progress=False)
    assert {path: path.stat().st_mtime_ns for path in before} == stamps
    assert "trained and evaluated already, 18 updates; evaluate it again with: coulomb evaluate" in caplog.text
    evaluation = json.loads(run.folder.evaluation.read_text())
    evaluation["protocol"]["updates"] = 12  # evaluated after an interruption
    run.folder.evaluation.write_text(json.dumps(evaluation))
    coulomb.train(resume_from=run.path, progress=False)
    assert json.loads(run.folder.evaluation.read_text())["protocol"]["updates"] == 18


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 0.1}, ["unknown option 'learning_rate'", "use 'lr'"]),
        ({"backbone": "resnet18"}, ["unknown option 'backbone'", "use 'encoder'"]),
        ({"batch_size": 300}, ["batch_size=300", "48", "or less"]),
        ({"encoder": "resnet7"}, ["resnet7"]),
        ({"views": "psychedelic"}, ["psychedelic", "natural"]),
        ({"temprature": 0.1}, ["temprature", "temperature"]),
        ({"view_options": {"flipp": 1.0}}, ["flipp"]),
    ],
)
def test_mistakes_are_named(tmp_path, digit_tree, quick, options, words):
    with pytest.raises(InputError) as error:
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick | options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"method": "moco", "method_options": {"queue_size": -1}}, "size must be at least 1, got -1"),
        ({"encoder": "vit", "encoder_width": 7}, "width=7 must be a multiple"),
    ],
)
def test_a_value_that_method_or_encoder_refuses_leaves_no_folder(digit_tree, tmp_path, options, message):
    given = {"out": str(tmp_path / "run"), "progress": False, "epochs": 1, "batch_size": 8}
    with pytest.raises(InputError, match=message):
        coulomb.train(digit_tree, **given, **options)
    assert not (tmp_path / "run").exists()
