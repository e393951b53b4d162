"""The command line: each error is one line with exit code 2, without traceback or new files."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.cli.overview import COMMANDS
from forked import coulomb

QUICK = (
    "--epochs 1 --batch-size 8 --encoder convnet --encoder-width 8 --image-size 16 --embedding-dim 8 --quiet --workers 0"
).split()


def from_scratch(*arguments, cwd):
    """Runs a command as a shell does, including imports."""
    command = [sys.executable, "-m", "coulomb", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240, check=False)


def refused(result, *words, code=2):
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("coulomb: error:")]
    assert len(errors) == 1, result.stderr
    for word in words:
        assert word in errors[0]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """24 small color images, unlabeled, of several sizes."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(24):
        shape = (20 + number % 3 * 4, 24, 3)
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(root / f"photo {number:02}.png")
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    result = from_scratch("train", photos, "--out", "run", *QUICK, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "report:" in result.stdout and "run folder: run" in result.stdout
    return folder / "run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--tempratur", "1"], ["--tempratur"]),
        (["train", "nowhere/"], ["nowhere"]),
        (["train", "digits", "--epochs", "many"], ["--epochs", "many"]),
        (["train", "digits", "--temperature", "0"], ["temperature"]),
        (["train", "digits", "--encoder", "resnet7"], ["resnet7", "convnet"]),
        (["train", "digits", "--encoder", "missing.py:Net"], ["missing.py"]),
        (["train", "digits", "--batch-size", "5000"], ["batch_size=5000", "or less"]),
        (["train", "digits", "--method", "magic"], ["magic", "simclr"]),
        (["train", "digits", "--method", "missing.py:Mine"], ["no such file missing.py"]),
        (["train", "digits", "--method", "moco", "--option", "queue_sise=3"], ["queue_sise", "queue_size"]),
        (["train", "digits", "--option", "queue_size"], ["--option", "name=value"]),
        (["train", "digits", "--view", "flip"], ["flip", "name=value"]),
        (["train", "--resume", "nowhere"], ["nowhere", "not a run folder"]),
        (["evaluate", "nowhere"], ["nowhere"]),
        (["doctor", "nowhere"], ["nowhere", "not a run folder"]),
        (["embed", "nowhere", "digits", "--out", "x.parquet"], ["nowhere"]),
        (["report", "nowhere"], ["nowhere"]),
        (["encode", "nowhere", "a.png"], ["nowhere", "neither a run folder nor an encoder"]),
        (["encode", ".", "a.png"], ["'.'", "no trained encoder"]),
        (["classify", "nowhere", "a.png"], ["nowhere", "neither a run folder nor an encoder"]),
        (["classify", "lite0", "a.png"], ["'lite0': has no classifier", "--method supcon"]),
        (["embed", "lit0", "digits", "--out", "x.parquet"], ["did you mean 'lite0'"]),
        (["embed", "resnet18", "digits", "--out", "x.parquet"], ["has random weights"]),
        (["embed", "lite0", "digits", "--image-size", "8", "--out", "x.parquet"], ["image_size=8"]),
        (["evaluate", "lite0"], ["'lite0': an encoder is evaluated on labeled images", "--on"]),
        (["doctor", "lite0"], ["'lite0': not a run folder"]),
        (["report", "lite0"], ["'lite0': not a run folder"]),
        (["check"], ["data: missing; give the images to check"]),
        (["check", "digits", "--temperature", "0"], ["temperature"]),
        (["check", "digits", "--labels", "breed"], ["breed", "no columns"]),
        (["check", "nowhere/"], ["nowhere"]),
        (["views", "nowhere/"], ["nowhere"]),
        (["train", "digits", "--seeds", "0"], ["seeds=0", "at least 2"]),
        (["lab", "temprature"], ["temprature", "did you mean 'temperature'"]),
        (["dance"], ["dance"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(tmp_path, arguments, words):
    refused(coulomb(*arguments, cwd=tmp_path), *words)
    assert not (tmp_path / "x.parquet").exists()


def test_no_images_and_one_image(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(coulomb("train", "empty", cwd=tmp_path), "empty")
    (tmp_path / "one").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "one" / "only.png")
    refused(coulomb("train", "one", cwd=tmp_path), "1 image")


def test_a_label_outside_the_range(tmp_path):
    np.savez(tmp_path / "d.npz", images=np.zeros((8, 16, 16), np.uint8), labels=np.array([0, 1, -5, 1, 0, 1, 0, 1]))
    refused(coulomb("train", "d.npz", *QUICK, cwd=tmp_path), "-5")


@pytest.mark.slow
def test_an_existing_folder_is_kept(run, photos):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in run.iterdir())
    refused(coulomb("train", photos, "--out", run, *QUICK, cwd=run.parent), "already exists", "--resume")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in run.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path, photos):
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(coulomb("train", photos, "--out", "locked/run", *QUICK, cwd=tmp_path), "locked", "Permission")


def test_a_folder_that_cannot_be_created(tmp_path, photos):
    refused(coulomb("train", photos, "--out", "/proc/run", *QUICK, cwd=tmp_path), "/proc/run", "cannot be created")


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))


def test_a_full_disk_while_training(tmp_path, photos):
    """Simulated by a limit on the size of files, well above everything else and below a checkpoint."""
    result = coulomb("train", photos, "--out", "run", *QUICK, "--encoder-width", 64, cwd=tmp_path, before=limit_files)
    refused(result, "checkpoint")
    assert not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    resumed = coulomb("train", "--resume", "run", "--quiet", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


def test_evaluate_prints_one_json_object(run):
    result = coulomb("evaluate", run, "--json", cwd=run.parent)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    for name in ("trained", "random_init", "raw_pixels"):
        assert {"knn", "linear", "few_shot", "protocol"} <= found[name].keys()


def test_the_exit_code_of_doctor_tells_whether_a_run_has_problems(run):
    # One epoch of a tiny batch: the figures of a run that learned are written into its files.
    evaluation, lines = (run / "evaluation.json").read_text(), (run / "metrics.jsonl").read_text()
    learned = json.loads(evaluation)
    assert learned["verdict"]["level"] == "nothing_measurable"
    untrained = coulomb("doctor", run, "--json", cwd=run.parent)
    assert untrained.returncode == 1 and not json.loads(untrained.stdout)["healthy"]
    learned["verdict"]["level"] = "learned_something"
    (run / "evaluation.json").write_text(json.dumps(learned))
    (run / "metrics.jsonl").write_text(re.sub(r'"negatives": [^,}]*', '"negatives": 30', lines))
    healthy = coulomb("doctor", run, "--json", cwd=run.parent)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    found = json.loads(healthy.stdout)
    assert found["healthy"] and json.loads((run / "doctor.json").read_text()) == found
    (run / "evaluation.json").write_text(evaluation)
    (run / "metrics.jsonl").write_text(re.sub(r'"update_ratio": [^,}]*', '"update_ratio": 0.9', lines))
    sick = coulomb("doctor", run, "--quick", cwd=run.parent)
    (run / "metrics.jsonl").write_text(lines)
    assert sick.returncode == 1, sick.stderr
    assert "learning-rate-too-high" in sick.stdout and "What to do: " in sick.stdout


def test_embed_writes_every_image(run, photos):
    import pyarrow.parquet as pq

    result = coulomb("embed", run, photos, "--out", "features.parquet", cwd=run.parent)
    assert result.returncode == 0, result.stderr
    table = pq.read_table(run.parent / "features.parquet")
    assert table.column("id").to_pylist() == sorted(path.name for path in photos.iterdir())
    assert table.schema.field("features").type.list_size == len(table.column("features")[0])
    assert "label" not in table.column_names
    refused(coulomb("embed", run, photos, "--out", "features.parquet", cwd=run.parent), "already exists")


def test_embed_equals_the_encoder(run, photos):
    import pyarrow.parquet as pq
    import torch

    import coulomb as package

    same = run.parent / "same"
    same.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(same / "a.png")
    Image.fromarray(255 - pixels).save(same / "b.png")
    loaded = package.load(run)
    loaded.embed(same, run.parent / "same.parquet", progress=False)
    rows = pq.read_table(run.parent / "same.parquet").column("features").to_pylist()
    with torch.no_grad():
        wanted = loaded.encoder(torch.from_numpy(np.stack([pixels, 255 - pixels])).permute(0, 3, 1, 2) / 255)
    torch.testing.assert_close(torch.tensor(rows), wanted, rtol=1e-4, atol=1e-5)


def test_encode_prints_what_embed_writes(run, photos):
    import pyarrow.parquet as pq

    files = sorted(photos.iterdir())[:3]
    result = coulomb("encode", run, *files, cwd=run.parent)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["id"] for row in rows] == [str(file) for file in files]
    written = coulomb("embed", run, *files, "--out", "three.parquet", cwd=run.parent)
    assert written.returncode == 0, written.stderr
    table = pq.read_table(run.parent / "three.parquet")
    np.testing.assert_allclose(table["features"].to_pylist(), [row["features"] for row in rows], rtol=1e-5, atol=1e-6)
    refused(coulomb("encode", run, files[0], "nowhere.png", cwd=run.parent), "nowhere.png: no such file")
    refused(coulomb("classify", run, files[0], cwd=run.parent), "has no classifier", "--method supcon")


@pytest.mark.slow
def test_published_weights_stand_where_a_run_does(tmp_path, digit_tree):
    result = coulomb("embed", "lite0", digit_tree, "--image-size", 32, "--out", "f.parquet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "60 rows of 1280 features in f.parquet, 0 images skipped\n"
    images = sorted((digit_tree / "digit-0").iterdir())[:2]
    result = coulomb("encode", "lite0", *images, "--image-size", 32, cwd=tmp_path)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    written = pq.read_table(tmp_path / "f.parquet")["features"].to_pylist()
    np.testing.assert_allclose([row["features"] for row in rows], written[:2], rtol=1e-4, atol=1e-5)
    result = coulomb("evaluate", "lite0", "--on", digit_tree, "--image-size", 32, "--out", "r.json", cwd=tmp_path)
    assert result.stdout.splitlines()[1].startswith("starting weights") and "raw pixels" in result.stdout
    assert json.loads((tmp_path / "r.json").read_text())["starting_point"]["knn"] > 0.2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.parquet", "r.json"]


def test_classify(tmp_path, digit_tree):
    trained = coulomb("train", digit_tree, "--method", "softmax", "--out", "run", "--no-evaluate", *QUICK, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    files = sorted(digit_tree.rglob("*.png"))[:2]
    result = coulomb("classify", "run", *files, "nowhere.png", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "skipped nowhere.png: no such file" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == [str(file) for file in files]
    whole = coulomb("classify", "run", digit_tree, "--json", cwd=tmp_path)
    found = json.loads(whole.stdout)
    assert found["class_names"] == [f"digit-{label}" for label in range(5)] and len(found["images"]) == 60
    assert found["images"][0]["name"] in found["class_names"]
    assert coulomb("classify", "run", "nowhere.png", "else.png", cwd=tmp_path).returncode == 1


def test_check_takes_the_options_of_train(photos, tmp_path):
    """The same words with another verb: the plan that is shown is the one that is followed."""
    options = [
        photos,
        "--image-size",
        20,
        "--epochs",
        2,
        "--batch-size",
        4,
        "--test-fraction",
        0.25,
        "--encoder",
        "convnet",
    ]
    checked = coulomb("check", *options, "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    found = json.loads(checked.stdout)
    trained = coulomb("train", *options, "--no-evaluate", "--quiet", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    (out,) = (tmp_path / "runs").iterdir()
    assert found["data"] == json.loads((out / "data.json").read_text())
    assert found["training"]["steps"] == json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    refusing = coulomb("check", photos, "--method", "supcon", cwd=tmp_path)
    assert refusing.returncode == 1 and "Training would be refused: method='supcon': needs labels" in refusing.stdout


def test_views_and_check(run, photos):
    result = coulomb("views", photos, "--out", "sheet.png", "--view", "flip=0", cwd=run.parent)
    assert result.returncode == 0, result.stderr
    with Image.open(run.parent / "sheet.png") as sheet:
        assert min(sheet.size) > 100
    result = coulomb("check", photos, "--batch-size", 8, "--json", cwd=run.parent)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["training"]["steps"] >= 1
    text = coulomb("check", photos, "--batch-size", 8, cwd=run.parent)
    assert "24" in text.stdout and "memory" in text.stdout


def test_check_of_columns(tmp_path):
    (tmp_path / "pairs.csv").write_text("q,a\n" + "".join(f"question {row},answer {row // 2}\n" for row in range(20)))
    result = coulomb("check", "pairs.csv", "--columns", "q,a", "--test-fraction", 0.3, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "6 of 20 rows held out" in result.stdout and "no q or a is in both parts" in result.stdout
    found = json.loads(coulomb("check", "pairs.csv", "--columns", "q,a", "--json", cwd=tmp_path).stdout)
    assert [column["distinct"] for column in found["columns"]] == [20, 10] and found["training"]["refused"] is None
    (tmp_path / "pairs.csv").write_text("q,a\nx,y\nx,z\n")
    result = coulomb("check", "pairs.csv", "--columns", "q,a", cwd=tmp_path)
    assert result.returncode == 1 and "cannot be split" in result.stdout
    result = coulomb("check", "pairs.csv", "--columns", "q,answer", cwd=tmp_path)
    assert result.returncode == 2 and "columns='answer'" in result.stderr


def test_a_users_own_encoder_from_a_file(tmp_path, photos):
    (tmp_path / "mine.py").write_text(
        "import torch\n\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),"
        " torch.nn.Flatten())\n"
    )
    options = ["--epochs", 1, "--batch-size", 8, "--image-size", 16, "--quiet", "--workers", 0]
    result = coulomb("train", photos, "--out", "run", "--encoder", "mine.py:Net", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    refused(coulomb("evaluate", "run", cwd=tmp_path), "module")
    again = coulomb("evaluate", "run", "--encoder", "mine.py:Net", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_report_again(run):
    (run / "report.html").unlink()
    result = coulomb("report", run, cwd=run.parent)
    assert result.returncode == 0, result.stderr
    assert (run / "report.html").stat().st_size > 10_000


def test_runs_side_by_side(run, tmp_path):
    shutil.copytree(run, tmp_path / "again", ignore=shutil.ignore_patterns("checkpoints", "*.safetensors"))
    result = coulomb("report", run, "again", cwd=tmp_path)
    assert "comparison: compare.html" in result.stdout
    assert "2 runs compared" in (tmp_path / "compare.html").read_text()
    coulomb("report", "again", "--out", "mine.html", cwd=tmp_path)
    assert (tmp_path / "mine.html").stat().st_size > 10_000


def test_version(tmp_path):
    assert from_scratch("--version", cwd=tmp_path).stdout.strip().count(".") == 2


@pytest.mark.parametrize("command", ["", *COMMANDS, "lab", "browse"])
def test_every_help_shows_examples(tmp_path, command):
    result = coulomb(*command.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    examples = [line.split() for line in result.stdout.partition("Examples:")[2].splitlines() if line.strip()]
    assert len(examples) >= 2
    assert all(words[: 1 + len(command.split())] == ["coulomb", *command.split()] for words in examples) or not command


def test_the_options_of_a_run_are_grouped(tmp_path):
    shown = coulomb("train", "--help", cwd=tmp_path).stdout
    panels = [line.split()[1] for line in shown.splitlines() if line.startswith("╭─")]
    assert panels == ["Arguments", "Options", "Data", "Method", "Optimization", "Views", "Run", "Evaluation"]


@pytest.mark.slow
def test_from_pictures_with_captions_to_a_search_by_words(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(24):
        image = Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8))
        image.save(tmp_path / "photos" / f"{number}.png")
        (tmp_path / "photos" / f"{number}.txt").write_text(f"picture {number} of noise")
    options = ("--encoder", "image=convnet,caption=static-random", "--epochs", 1, "--batch-size", 8, "--no-evaluate")
    trained = coulomb("train", "photos", "--columns", "image,caption", *options, "--out", "my run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "coulomb index photos/ --encoder 'my run', then coulomb browse photos.index" in trained.stdout
    assert trained.stdout.splitlines()[-1] == "run folder: my run"
    indexed = coulomb("index", "photos/", "--encoder", "my run", cwd=tmp_path)
    assert indexed.returncode == 0, indexed.stderr
    found = coulomb("search", "photos.index", "--text", "picture 3 of noise", "--top", 2, cwd=tmp_path)
    assert found.returncode == 0 and len(found.stdout.splitlines()) == 2
    scored = "\n".join(f"picture {a},picture {a % 5},{a}" for a in range(9))
    (tmp_path / "sts.csv").write_text(f"first,second,score\n{scored}\n")
    measured = coulomb("evaluate", "my run", "--pairs", "sts.csv", cwd=tmp_path)
    assert measured.returncode == 0 and "9 pairs of sts.csv (first, second, score)" in measured.stdout
