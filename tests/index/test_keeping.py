"""Which file of near-copies is kept: resolution, format, date, quality, name, and never the size in bytes."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from coulomb.index.keeping import Facts, compare, file_facts, ranked
from curation_cases import photo


def never(i, j):
    return False


def best(*facts):
    order, why = ranked(facts, [None] * len(facts), never)
    return [facts[place].id for place in order], why


@pytest.mark.parametrize(
    ("better", "worse", "why"),
    [
        (Facts("b", 200), Facts("a", 100, "PNG", True, "2019:07:28 12:00:00"), "more pixels"),
        (Facts("bb", 9, "PNG", True), Facts("a", 9, "JPEG", taken="2019:07:28 12:00:00", quality=95), "PNG, not JPEG"),
        (Facts("bb", 9, "JPEG"), Facts("a", 9, "WEBP"), "JPEG, not WEBP"),
        (
            Facts("b", 9, "JPEG", taken="2019:07:28 12:00:00", quality=50),
            Facts("a", 9, "JPEG", quality=95),
            "has the date",
        ),
        (Facts("b", 9, taken="2019:07:28 12:00:00"), Facts("a", 9, taken="2020:01:01 00:00:00"), "earlier date"),
        (Facts("b", 9, "JPEG", quality=90), Facts("a", 9, "JPEG", quality=75), "JPEG quality 90, not 75"),
        (Facts("photo.jpg", 9), Facts("copy/photo (1).jpg", 9), "first by name"),
        (Facts("img2.jpg", 9), Facts("img3.jpg", 9), "first by name"),
    ],
)
def test_the_order_of_what_decides(better, worse, why):
    for facts in ((better, worse), (worse, better)):
        order, said = best(*facts)
        assert order == [better.id, worse.id] and said.startswith(why)
    assert compare(better, worse) == said


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "original.jpg"
    photo(0, 320, 240).save(path, quality=85)
    return path


def saved(original, name, image=None, **options):
    path = original.with_name(name)
    (image or Image.open(original)).save(path, **options)
    return path


def first_of(*paths):
    facts = [file_facts(path.name, 320 * 240, path) for path in paths]
    order, why = ranked(facts, paths, never)
    return paths[order[0]], why


def test_a_file_that_was_saved_again_is_not_kept_whatever_its_size(original):
    """The size in bytes decided before: all of these are larger than the original."""
    bright = ImageEnhance.Brightness(Image.open(original)).enhance(1.3)
    copies = [
        saved(original, "a.jpg", quality=97),
        saved(original, "b.png"),
        saved(original, "c.jpg", bright, quality=97),
        saved(original, "d.jpg", quality=85),
    ]
    for copy in copies[:3]:
        assert copy.stat().st_size > original.stat().st_size
        kept, why = first_of(copy, original)
        assert kept == original and why == f"{copy.name} was made from it"


def test_a_better_original_is_not_taken_for_a_copy(tmp_path):
    image = photo(1, 320, 240)
    fine, coarse, png = tmp_path / "fine.jpg", tmp_path / "coarse.jpg", tmp_path / "png.png"
    image.save(fine, quality=95)
    image.save(coarse, quality=60)
    image.save(png)
    assert first_of(coarse, fine) == (fine, "JPEG quality 95, not 60")
    assert first_of(coarse, fine, png) == (png, "PNG, not JPEG")


def test_facts_of_files(tmp_path, original):
    exif = Image.Exif()
    exif[306] = "2021:01:01 00:00:00"
    exif.get_ifd(0x8769)[0x9003] = "2019:07:28 12:00:00"
    path = tmp_path / "edited.jpg"
    Image.open(original).save(path, quality=60, exif=exif)
    facts = file_facts("edited.jpg", 1, path)
    assert (facts.format, facts.quality, facts.taken) == ("JPEG", 60, "2021:01:01 00:00:00")
    photo(0).save(tmp_path / "a.webp", lossless=True)
    photo(0).save(tmp_path / "b.webp")
    assert [file_facts("x", 1, tmp_path / name).lossless for name in ("a.webp", "b.webp")] == [True, False]
    assert file_facts("x", 1, tmp_path / "none.jpg") == file_facts("x", 1, None) == Facts("x", 1)
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    assert file_facts("x", 1, tmp_path / "bad.jpg") == Facts("x", 1)


def test_an_enlarged_part_is_not_kept():
    order, why = ranked([Facts("a", 9), Facts("whole", 9)], [None, None], lambda i, j: (i, j) == (0, 1))
    assert order == [1, 0] and why == "a shows a part of it"


def test_circles_of_copies_end(original):
    """Each image is said to be a part of the other."""
    order, _ = ranked([Facts("a", 9), Facts("b", 9)], [None, None], lambda i, j: True)
    assert sorted(order) == [0, 1]
    assert np.array_equal(order, [1, 0])
