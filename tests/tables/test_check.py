import json
import re

import numpy as np
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, check, open_source, p_no_positive, render_check, split_sentence
from coulomb.tables.workers import cores


@pytest.fixture
def tree(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("cat/0", "cat/1", "cat/2", "dog/0", "dog/1"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (20, 30), dtype=np.uint8)).save(path)
    with Image.open(tmp_path / "cat" / "0.png") as image:
        image.save(tmp_path / "cat" / "copy.bmp")  # different bytes, same pixels
        image.save(tmp_path / "dog" / "same.png")
        image.rotate(90, expand=True).save(tmp_path / "cat" / "turned.png")  # same values, different size
    (tmp_path / "dog" / "torn.png").write_bytes(b"torn")
    (tmp_path / "dog" / "cut.png").write_bytes((tmp_path / "dog" / "0.png").read_bytes()[:300])
    return tmp_path


def test_check_reports_everything(tree):
    result = check(open_source(tree), batch_size=4)
    json.dumps(result)
    assert (result["count"], result["readable"]) == (10, 8)
    assert {entry["id"] for entry in result["corrupt"]} == {"dog/cut.png", "dog/torn.png"}
    assert result["duplicates"]["groups"] == [
        {"ids": ["cat/0.png", "cat/copy.bmp", "dog/same.png"], "labels": [0, 0, 1], "cross_label": True}
    ]
    assert (result["duplicates"]["redundant"], result["duplicates"]["cross_label"]) == (2, 1)
    cat, dog = result["labels"]["classes"]
    assert (cat["name"], cat["count"], dog["count"]) == ("cat", 5, 3)
    assert cat["p_no_positive"] == p_no_positive(5, 8, 4)
    expected = (5 * p_no_positive(5, 8, 4) + 3 * p_no_positive(3, 8, 4)) / 8
    assert result["labels"]["p_no_positive"] == pytest.approx(expected)
    assert result["memory"]["full_size"] == 8 * 600
    assert result["suggested"] == {"image_size": 20, "channels": 1, "dtype": "uint8"}
    assert result["memory"]["canvases"] == 8 * 400
    assert result["survey"]["modes"] == {"L": 8}


def test_one_of_a_kind_is_singular(tree):
    """No "1 images": in notes, in findings and in the text."""
    (tree / ".hidden").touch()
    (tree / "notes.txt").touch()
    (tree / "dog" / "deep").mkdir()
    for name in ("torn.png", "same.png", "1.png"):
        (tree / "dog" / name).unlink()
    (tree / "dog" / "cut.png").rename(tree / "loose.png")
    (tree / "dog" / "0.png").rename(tree / "dog" / "deep" / "0.png")
    source = open_source(tree)
    result = check(source)
    text = "\n".join([render_check(result), split_sentence(source.labels, np.arange(5), np.arange(5, 6), 0.2, 0)])
    for expected in (
        "1 hidden file or folder was",
        "1 image lies in",
        "1 image lies deeper",
        "1 image is an exact copy",
    ):
        assert expected in text
    assert "1 class has a single image" in text and "1 in 1 group of" in text
    assert not re.search(r"\b1 (?:\w+ )?(images|files|classes|groups|folders|links|copies)\b", text)


def test_workers_change_nothing(tree):
    results = [check(open_source(tree), batch_size=4, workers=workers) for workers in range(min(2, cores()) + 1)]
    assert all(result == results[0] for result in results)


def test_partial_and_no_labels():
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
    result = check(ArraySource(images, [0, 0, -1, -1, 3, -1]), batch_size=3)
    assert (result["labels"]["labeled"], result["labels"]["unlabeled"]) == (3, 3)
    assert [entry["label"] for entry in result["labels"]["classes"]] == [0, 3]
    assert any("a single image" in finding for finding in result["findings"])
    nothing = check(ArraySource(images))
    assert nothing["labels"] is None
    assert "labels    none" in render_check(nothing)


def test_unlabeled_copies_have_no_conflict():
    result = check(ArraySource(np.zeros((3, 4, 4), np.uint8), [1, -1, 1]))
    assert result["duplicates"]["redundant"] == 2
    assert result["duplicates"]["cross_label"] == 0


def test_same_bytes_of_other_shape_or_type_are_not_copies():
    class Two(ArraySource):
        def image(self, index):
            return [np.zeros((4, 8, 1), np.uint8), np.zeros((8, 4, 1), np.uint8), np.zeros((4, 4, 1), np.uint16)][index]

    assert check(Two(np.zeros((3, 4, 4), np.uint8)))["duplicates"]["groups"] == []


def test_text_is_complete_and_escaped(tree):
    (tree / "dog" / "a\x1b[31m[red]\n.png").write_bytes(b"torn")
    text = render_check(check(open_source(tree), batch_size=4))
    for expected in ("11 images, 8 readable", "dog/torn.png: not an image", "different labels", "cat"):
        assert expected in text
    assert "\x1b" not in text
    assert "a\\x1b[31m[red]\\n.png" in text


def test_many_classes_are_shortened():
    images = np.random.default_rng(0).integers(0, 256, (400, 4, 4), dtype=np.uint8)
    text = render_check(check(ArraySource(images, [f"class {i % 100}" for i in range(400)])))
    assert "80 classes between these" in text
    assert len(text.splitlines()) < 60


def test_one_image_and_bad_batch_size():
    result = check(ArraySource(np.zeros((1, 4, 4), np.uint8), [0]), batch_size=256)
    assert result["labels"]["p_no_positive"] == 1
    with pytest.raises(InputError, match="batch_size=0"):
        check(ArraySource(np.zeros((1, 4, 4), np.uint8)), batch_size=0)


def test_error_for_unreadable_data_is_one_line(tmp_path):
    (tmp_path / "a.png").write_bytes(b"torn")
    with pytest.raises(InputError, match="none of 1 images can be read"):
        check(open_source(tmp_path))
