"""Run folders from untrusted sources: their files cannot execute code, write elsewhere, or cause a traceback."""

import json
import shutil
import time

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

import coulomb
from coulomb.cli.options import given_options
from coulomb.cli.train import _refused_with_resume
from coulomb.ground.errors import InputError
from coulomb.report import build_report
from coulomb.training.plan.config import load_config

OWN = """
from pathlib import Path

from torch import nn

from coulomb.methods import SimCLR

Path(__file__).with_name("ran").touch()


class Mine(SimCLR):
    pass


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(256, 4))
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """80 digits of 4 classes, 16×16, in an .npz file."""
    found = load_digits()
    chosen = np.flatnonzero(found.target < 4)[:80]
    images = (found.images[chosen] * 15.9).astype(np.uint8).repeat(2, 1).repeat(2, 2)
    path = tmp_path_factory.mktemp("strangers") / "digits.npz"
    np.savez(path, images=images, labels=found.target[chosen])
    return path


OPTIONS = {
    "epochs": 2, "batch_size": 16, "encoder": "convnet", "encoder_width": 4, "image_size": 16, "embedding_dim": 8,
    "workers": 0, "checkpoint_every": 2, "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def pristine(digits):
    return coulomb.train(str(digits), out=str(digits.parent / "run"), method="arcface", **OPTIONS).path


@pytest.fixture
def run(pristine, tmp_path):
    """A finished run of a method with a classifier, which tests may change."""
    return shutil.copytree(pristine, tmp_path / "run")


def load(run):
    found = coulomb.load(run)
    return (
        found.encoder,
        found.classifier,
        found.class_names,
        found.config,
        found.metrics,
        found.evaluation,
        found.doctor,
    )


COMMANDS = {
    "report": build_report,
    "doctor": lambda run: coulomb.diagnose(run, progress=False),
    "doctor --quick": lambda run: coulomb.diagnose(run, quick=True),
    "resume": lambda run: coulomb.train(resume_from=run, evaluate=False, progress=False),
    "evaluate": lambda run: coulomb.evaluate(run, progress=False),
    "load": load,
    "embed": lambda run: coulomb.load(run).embed("digits", run / "out.parquet", progress=False),
}
# Which commands compute with a file; `report` shows what it can of a damaged run, and none of the others may fail either.
USERS = {
    "config.yaml": ("doctor", "doctor --quick", "resume", "evaluate", "load"),
    "split.json": ("doctor", "resume", "evaluate"),
    "data.json": ("doctor", "doctor --quick"),
    "evaluation.json": ("doctor --quick", "load"),
    "metrics.jsonl": ("doctor", "doctor --quick", "resume", "load"),
    "doctor.json": ("load",),
    "encoder.json": ("evaluate", "load", "embed"),
    "encoder.safetensors": ("evaluate", "load", "embed"),
    "classifier.json": ("evaluate", "load"),
    "classifier.safetensors": ("evaluate", "load"),
    "checkpoints/last.ckpt": ("doctor",),
    "checkpoints/checksums.json": ("doctor", "resume"),
    "environment.json": (),
    "samples.npz": (),
    "views.png": (),
    "transfer/other.json": (),
}
SHOWN = (
    "config.yaml",
    "data.json",
    "evaluation.json",
    "metrics.jsonl",
    "doctor.json",
    "environment.json",
    "samples.npz",
)
CONTENTS = {
    "empty": b"\n",
    "a list": b"[1]\n",
    "null": b"null\n",
    "text": b'"x"\n',
    "binary": bytes(range(256)),
    "UTF-16": "epochs: 1\n".encode("utf-16"),
    "nested": b"[" * 100_000 + b"\n",
    "nested objects": b'{"a":' * 100_000 + b"\n",
    "a huge number": b"9" * 5000 + b"\n",
    "NaN": b"NaN\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", USERS)
def test_a_malformed_file_is_one_sentence(run, name):
    (run / name).parent.mkdir(exist_ok=True)
    begin = time.monotonic()
    for content in CONTENTS.values():
        if (name, content) == ("metrics.jsonl", b"\n"):
            continue  # a run that was stopped before its first line
        (run / name).write_bytes(content)
        for command in USERS[name]:
            with pytest.raises(InputError) as error:
                COMMANDS[command](run)
            assert name.rpartition("/")[2] in str(error.value), command
            assert "\n" not in str(error.value) and len(str(error.value)) < 600
    assert name in build_report(run).read_text(encoding="utf-8") or name not in SHOWN
    assert time.monotonic() - begin < 120


EDITS = {
    "a network without end": ("config.yaml", "encoder_width: 4", "encoder_width: 65536", ("doctor", "resume")),
    "a head without end": ("config.yaml", "embedding_dim: 8", "embedding_dim: 1000000000000", ("doctor", "resume")),
    "encoder_width": ("config.yaml", "encoder_width: 4", "encoder_width: 8", ("doctor", "resume")),
    "an option": ("config.yaml", "lr: ", "lr: [1] #", ("doctor --quick", "resume", "load")),
    "an option's name": ("config.yaml", "lr: ", "rate: ", ("doctor --quick", "resume", "load")),
    "a key that is no text": ("config.yaml", "method_options:", "1: 2\nmethod_options:", ("doctor --quick", "load")),
    "split": ("split.json", '"train": [', '"train": [3, ', ("doctor", "resume", "evaluate")),
    "counts": ("data.json", '"class_counts": [', '"class_counts": ["x", ', ("doctor", "doctor --quick")),
    "counts of null": ("data.json", '"class_counts": [', '"class_counts": [null, ', ("doctor --quick",)),
    "images": ("data.json", '"train": ', '"train": "x", "was": ', ("doctor --quick",)),
    "trained": ("evaluation.json", '"trained": {', '"trained": [1], "was": {', ("doctor --quick", "load")),
    "a class": ("evaluation.json", '"per_class": [', '"per_class": [3, ', ("doctor --quick", "load")),
    "a step of text": ("metrics.jsonl", '"step": 4', '"step": "4"', ("doctor --quick", "resume", "load")),
    "no step": ("metrics.jsonl", '"step": 4', '"stop": 4', ("doctor --quick", "resume", "load")),
    "an epoch": ("metrics.jsonl", '"epoch": 1', '"epoch": "x"', ("doctor --quick", "resume", "load")),
    "a loss": ("metrics.jsonl", '"loss": ', '"loss": "x", "was": ', ("doctor --quick", "resume", "load")),
    "seconds": ("metrics.jsonl", '"seconds": ', '"seconds": [], "was": ', ("doctor --quick", "resume", "load")),
    "a list in the middle": ("metrics.jsonl", '\n{"', '\n[1]\n{"', ("doctor --quick", "resume", "load")),
    "features": ("encoder.json", '"feature_dim": ', '"feature_dim": 9', ("load", "embed")),
    "width": ("encoder.json", '"width": ', '"width": 9', ("load", "embed")),
    "layers": ("classifier.json", '"layers": 1', '"layers": 10000000', ("load",)),
    "hidden": ("classifier.json", '"hidden_dim": null', '"hidden_dim": "x"', ("load",)),
    "classes": ("classifier.json", '"classes": 4', '"classes": 1000000000000', ("load",)),
    "dim": ("classifier.json", '"dim": 8', '"dim": -8', ("load",)),
    "scale": ("classifier.json", '"scale": ', '"scale": [], "was": ', ("load",)),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_of_the_wrong_shape_is_one_sentence(run, edit):
    name, before, after, commands = EDITS[edit]
    text = (run / name).read_text(encoding="utf-8")
    assert before in text
    (run / name).write_text(text.replace(before, after), encoding="utf-8")
    begin = time.monotonic()
    for command in commands:
        with pytest.raises(InputError) as error:
            COMMANDS[command](run)
        assert name in str(error.value) or "end" in edit, command
        assert "\n" not in str(error.value)
    assert time.monotonic() - begin < 60


def test_a_head_without_end_is_refused_before_it_is_built(run):
    """The largest number of layers, each far too wide."""
    weights = load_file(run / "classifier.safetensors")
    save_file(weights | {f"more{i}": torch.zeros(1) for i in range(60)}, run / "classifier.safetensors")
    about = json.loads((run / "classifier.json").read_text())
    about["head"] = {"layers": 50, "hidden_dim": 10**6, "batch_norm": False}
    (run / "classifier.json").write_text(json.dumps(about))
    with pytest.raises(
        InputError, match=r"classifier\.json: its head cannot be built .*at most 128 layers and 2\.1e\+09"
    ):
        load(run)
    about["head"]["hidden_dim"] = 6000
    (run / "classifier.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="does not match this classifier"):
        load(run)


def test_an_alias_bomb_does_not_keep_the_report_busy(run):
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{n}: &{n} [{', '.join([f'*{b}'] * 9)}]" for b, n in zip("abcdefgh", "bcdefghi", strict=True)]
    (run / "config.yaml").write_text("\n".join(lines))
    begin = time.monotonic()
    assert "uses an alias" in build_report(run).read_text(encoding="utf-8")
    assert time.monotonic() - begin < 30


@pytest.mark.slow
def test_samples_that_expand_are_left_out(run):
    np.savez_compressed(run / "samples.npz", thumbnails=np.zeros((600, 2**20), np.uint8))
    assert "that expand to 600 MiB, more than the limit" in build_report(run).read_text(encoding="utf-8")


def test_seeds_of_the_wrong_shape(pristine, tmp_path):
    out = tmp_path / "seeds"
    shutil.copytree(pristine, out / "seed0")
    for content, words in (
        ("[1]", "holds"),
        ("{}", "'seeds' is missing"),
        ('{"seeds": "x", "options": {}}', "'seeds' is 'x'"),
        ('{"seeds": [], "options": {}}', "'seeds' is \\[\\]"),
        ('{"seeds": [0, 0], "options": {}}', "'seeds' is"),
        ('{"seeds": [0], "options": []}', "'options' is"),
        ('{"seeds": [0], "options": {"resume_from": "x"}}', "unknown option 'resume_from'"),
        ('{"seeds": [0], "options": {"out": "x"}}', "contains the option 'out'"),
        ("[" * 100_000, "nested"),
    ):
        (out / "seeds.json").write_text(content)
        with pytest.raises(InputError, match=words):
            coulomb.train_seeds(resume_from=out, progress=False)
        with pytest.raises(InputError, match=words):
            coulomb.evaluate(out, progress=False)


# --- links -----------------------------------------------------------------------------------------------------------

WRITTEN = (
    "train.log", "metrics.jsonl", "evaluation.json", "doctor.json", "samples.npz", "views.png", "report.html", "data.json",
    "encoder.safetensors", "classifier.json", "checkpoints/last.ckpt", "checkpoints/previous.ckpt", "checkpoints/last.tmp",
    "checkpoints", "tensorboard", "transfer", "checkpoints/checksums.json", "nonfinite-batch.pt",
)  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_link_that_leaves_the_folder_is_refused(run, tmp_path, name):
    place, target = run / name, tmp_path / "elsewhere"
    if place.is_dir() or name == "transfer":
        shutil.copytree(place, target) if place.exists() else target.mkdir()
        shutil.rmtree(place, ignore_errors=True)
    else:
        target.write_bytes(place.read_bytes() if place.exists() else b"years of work")
        place.unlink(missing_ok=True)
    place.symlink_to(target)
    before = content_of(target)
    for command in ("resume", "evaluate", "doctor", "doctor --quick"):
        with pytest.raises(
            InputError, match=rf"{name}: is a symbolic link that leads out of the run folder.*replace it"
        ):
            COMMANDS[command](run)
    assert content_of(target) == before


def content_of(path):
    return sorted(p.name for p in path.rglob("*")) if path.is_dir() else path.read_bytes()


def test_a_folder_of_seeds_is_looked_through_too(pristine, tmp_path):
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "seeds.json").write_text('{"seeds": [0], "options": {}}')
    (tmp_path / "seeds" / "seed0").symlink_to(pristine)
    for command in (
        lambda: coulomb.train_seeds(resume_from=tmp_path / "seeds", progress=False),
        lambda: coulomb.evaluate(tmp_path / "seeds", progress=False),
    ):
        with pytest.raises(InputError, match="seed0: is a symbolic link that leads out of the run folder"):
            command()


def test_links_that_stay_are_fine(run, tmp_path):
    (run / "checkpoints").rename(run / "kept")
    (run / "checkpoints").symlink_to("kept")
    (run / "around").symlink_to("around")  # leads nowhere
    (tmp_path / "other name").symlink_to(run)
    assert coulomb.diagnose(tmp_path / "other name", quick=True)["checked"]


# --- code ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


def rewrite(run, name, value):
    options = yaml.safe_load((run / "config.yaml").read_text()) | {name: value}
    (run / "config.yaml").write_text(yaml.safe_dump(options))


@pytest.mark.parametrize("command", ["doctor", "resume", "evaluate"])
@pytest.mark.parametrize("option", ["method", "encoder"])
def test_code_runs_only_if_this_call_names_it(run, mine, option, command):
    rewrite(run, option, f"{mine}:{'Mine' if option == 'method' else 'Net'}")
    flag = f"--{option}"
    if option == "encoder":  # what the folder holds is a built-in encoder, and is read as one
        if command == "evaluate":
            (run / "encoder.json").write_text((run / "encoder.json").read_text().replace("built-in", "module"))
        flag = "--encoder|module"
    with pytest.raises(InputError, match=flag):
        COMMANDS[command](run)
    assert not mine.with_name("ran").exists()
    build_report(run)
    assert coulomb.diagnose(run, quick=True)["checked"]
    assert not mine.with_name("ran").exists()


@pytest.mark.slow
def test_a_run_of_ones_own_method_is_named_again(digits, mine, tmp_path):
    named = f"{mine}:Mine"
    run = coulomb.train(str(digits), out=str(tmp_path / "run"), method=named, **OPTIONS).path
    mine.with_name("ran").unlink()
    for command in ("doctor", "resume", "evaluate"):
        with pytest.raises(InputError, match=r"mine\.py:Mine' is code outside coulomb.* add --method .*mine\.py:Mine"):
            COMMANDS[command](run)
    assert not mine.with_name("ran").exists()
    assert coulomb.diagnose(run, method=named, progress=False)["checked"]
    assert coulomb.evaluate(run, method=named, progress=False)["trained"]
    assert coulomb.train(resume_from=run, method=named, evaluate=False, progress=False).path == run
    with pytest.raises(InputError, match="method='simclr': only your own method is passed again"):
        coulomb.diagnose(run, method="simclr")


def test_a_method_that_the_run_does_not_have(run, mine):
    with pytest.raises(InputError, match="trained with 'arcface'; leave method out"):
        coulomb.diagnose(run, method=f"{mine}:Mine")


@pytest.mark.parametrize("option", ["method", "encoder", "bank"])
def test_a_folder_of_seeds_names_no_code(digits, mine, tmp_path, option):
    out, bank = tmp_path / "seeds", tmp_path / "bank"
    out.mkdir()
    named = {
        "method": {"method": f"{mine}:Mine"},
        "encoder": {"encoder": f"{mine}:Net"},
        "bank": {"method": "instdisc", "method_options": {"full": True, "bank_path": str(bank)}},
    }[option]
    plan = {"seeds": [0, 1], "options": {"data": str(digits), "epochs": 1, "workers": 0} | named}
    (out / "seeds.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match=r"seeds\.json: .* only if you pass it yourself"):
        coulomb.train_seeds(resume_from=out, progress=False)
    assert not mine.with_name("ran").exists() and not bank.exists()


@pytest.mark.parametrize("option", ["method", "encoder"])
def test_the_configuration_of_another_run_names_no_code(run, mine, option):
    named = f"{mine}:{'Mine' if option == 'method' else 'Net'}"
    rewrite(run, option, named)
    with pytest.raises(InputError, match=f"config.yaml: {option}=.* add --{option}"):
        given_options({"config": run / "config.yaml"})
    assert given_options({"config": run / "config.yaml", option: named})[option] == named
    assert not mine.with_name("ran").exists()


def test_a_bank_outside_the_folder_is_named_again(run, tmp_path):
    rewrite(run, "method", "instdisc")
    for place in (tmp_path / "bank", run / ".." / "bank", run / "bank"):
        rewrite(run, "method_options", {"full": True, "bank_path": str(place)})
        with pytest.raises(InputError, match="--option bank_path=" if place.parent != run else "does not match"):
            COMMANDS["resume"](run)
        assert not (tmp_path / "bank").exists()


def test_what_a_resumed_run_takes():
    assert _refused_with_resume({"encoder": "a.py:B", "method": "a.py:B", "method_options": {"bank_path": "x"}}) == []
    assert _refused_with_resume({"method": "moco", "epochs": 3}) == ["epochs", "method"]
    assert _refused_with_resume({"method_options": {"bank_path": "x", "full": True}}) == ["method_options"]


def test_metadata_of_a_table_that_is_nested_without_end(tmp_path):
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    table = pa.table({"image": [buffer.getvalue()] * 4, "label": [0, 1, 0, 1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": "[" * 100_000}), tmp_path / "a.parquet")
    from coulomb.tables import open_source

    source = open_source(tmp_path / "a.parquet")
    assert len(source) == 4 and source.labels.tolist() == [0, 1, 0, 1]
    assert any("huggingface" in note and "nested deeper" in note for note in source.notes)


def test_the_configuration_is_what_was_saved(run):
    assert load_config(run / "config.yaml").encoder_width == 4
