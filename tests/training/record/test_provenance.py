"""Fingerprints detect data that changed under the same names; a copy in another folder has the same fingerprint."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.tables import open_source
from coulomb.training.record.provenance import changed, fingerprint, fingerprints


@pytest.fixture
def tree(digit_tree, tmp_path):
    return shutil.copytree(digit_tree, tmp_path / "tree")


def replace(path):
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def test_resuming_on_changed_data_is_refused_and_names_the_image(tree, tmp_path, quick):
    run = coulomb.train(tree, out=tmp_path / "run", evaluate=False, progress=False, **quick | {"epochs": 1})
    coulomb.train(resume_from=run.path, evaluate=False, progress=False)
    replace(tree / "digit-1" / "03.png")
    with pytest.raises(
        InputError, match=r"data changed since the run began: data: content of digit-1/03\.png.*restore"
    ):
        coulomb.train(resume_from=run.path, evaluate=False, progress=False)
    with pytest.raises(InputError, match="data changed"):
        coulomb.evaluate(run.path, progress=False)


def test_copies_and_modification_times_do_not_change_the_fingerprint(tree, tmp_path):
    before = fingerprint(open_source(tree))
    copied = shutil.copytree(tree, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(copied / "digit-1" / "03.png", (0, 0))
    assert fingerprint(open_source(copied)) == before


def swap(tree):
    first, second = tree / "digit-1" / "00.png", tree / "digit-2" / "00.png"
    first.rename(tree / "x"), second.rename(first), (tree / "x").rename(second)


CHANGES = {
    "swapped": (swap, "content of digit-1/00.png, digit-2/00.png"),
    "renamed": (lambda tree: (tree / "digit-1" / "03.png").rename(tree / "digit-1" / "03b.png"), "other names"),
    "removed": (lambda tree: (tree / "digit-1" / "03.png").unlink(), "60 images then, 59 now"),
    "truncated": (lambda tree: os.truncate(tree / "digit-0" / "01.png", 40), "bytes then"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_described(tree, change):
    before = fingerprints((open_source(tree), None))
    do, words = CHANGES[change]
    do(tree)
    assert words in changed(before, fingerprints((open_source(tree), None)))


def test_a_file_outside_the_sample_is_detected_by_its_size(tree, monkeypatch):
    monkeypatch.setattr("coulomb.training.record.provenance.SAMPLED", 2)
    before = fingerprints((open_source(tree), None))
    os.truncate(tree / "digit-2" / "05.png", 40)
    assert "bytes then" in changed(before, fingerprints((open_source(tree), None)))


def test_arrays_labels_and_data_sets():
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    other = images.copy()
    other[7] = 0
    labels = np.arange(20) % 2
    before = fingerprint(open_source((images, labels)))
    assert fingerprint(open_source((images.copy(), labels))) == before
    assert fingerprint(open_source((other, labels)))["sampled"] != before["sampled"]
    assert fingerprint(open_source((images, 1 - labels)))["labels"] != before["labels"]
    sets = [torch.utils.data.TensorDataset(torch.from_numpy(x)[:, None] / 255) for x in (images, images, other)]
    first, same, changed_set = (fingerprint(open_source(each)) for each in sets)
    assert first == same != changed_set


def test_shards(tree, tmp_path):
    def write(paths):
        rows = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
        pq.write_table(pa.table({"image": rows}), tmp_path / "images.parquet")
        return fingerprints((open_source(tmp_path / "images.parquet"), None))

    paths = sorted(tree.rglob("*.png"))
    before = write(paths)
    assert before == write(paths)
    assert "content of images.parquet" in changed(before, write(paths[::-1]))


def test_separate_test_data_and_malformed_records(tree):
    source = open_source(tree)
    now = fingerprints((source, source))
    assert changed(now, now) == ""
    assert changed(fingerprints((source, None)), now) == "test: there was none"
    assert changed(now, fingerprints((source, None))) == "test: it is missing"
    for record in ([], {"data": 3}, {"data": {"sampled": []}, "test": None}):
        assert changed(record, now)
