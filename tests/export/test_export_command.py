"""`coulomb export` and `coulomb push`."""

import json

import pytest
from PIL import Image

import forked
from coulomb.index import Index
from export_cases import photo, run
from index_cases import folder, tiny


@pytest.mark.slow
def test_a_run_and_an_index_are_exported(tmp_path):
    run(tmp_path / "run", "convnet", width=8)
    for number in range(6):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(photo(30 + number, 40, seed=number)).save(tmp_path / "photos" / f"{number}.png")
    done = forked.coulomb("export", "run", "--to", "onnx", "--out", "m.onnx", "--on", "photos", cwd=tmp_path)
    assert done.returncode == 0 and "smallest cosine 1.000" in done.stdout and "and 6 photos" in done.stdout, (
        done.stderr
    )
    assert not done.stderr, "no message of another library"
    done = forked.coulomb("export", "run", "--to", "hub", "--out", "hub", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["plain_code"] and not done.stderr
    Index.build(folder(tmp_path / "images"), tmp_path / "ix", encoder=tiny(), progress=False)
    for kind in ("csv", "npz"):
        done = forked.coulomb("export", "ix", "--to", kind, "--out", f"x.{kind}", cwd=tmp_path)
        assert done.returncode == 0 and "10 images" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--to", "onxx", "--out", "x"], "to='onxx': must be one of onnx, hub, faiss, lance, csv, npz"),
        (["run", "--to", "csv", "--out", "x", "--unit"], "--unit: has no meaning for --to csv"),
        (["run", "--to", "csv", "--out", "x"], "run"),
        (["lite-0", "--to", "hub", "--out", "x"], "did you mean"),
        (["run", "--to", "onnx", "--out", "m.onnx", "--int8"], "int8=True: needs photos"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, arguments, message):
    run(tmp_path / "run", "convnet", width=8)
    done = forked.coulomb("export", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_an_index_is_no_encoder_but_names_its_own(tmp_path):
    index = Index.build(folder(tmp_path / "photos", 2), tmp_path / "ix", encoder="lite0", image_size=32, progress=False)
    assert len(index) == 2
    done = forked.coulomb("export", "ix", "--to", "onnx", "--out", "m.onnx", cwd=tmp_path)
    assert done.stderr.endswith(
        "is an index, not an encoder; give the encoder that it was built with: lite0 --image-size 32\n"
    )
    run(tmp_path / "run", "convnet", width=8)
    done = forked.coulomb("export", "run", "--to", "faiss", "--out", "x.faiss", cwd=tmp_path)
    assert "not an index" in done.stderr and "coulomb index DATA --encoder run --out DATA.index" in done.stderr


def test_push_needs_an_exported_folder(tmp_path):
    done = forked.coulomb("push", ".", "me/birds", cwd=tmp_path)
    assert done.returncode == 2 and "was not written by coulomb export" in done.stderr
