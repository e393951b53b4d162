import pytest
from PIL import Image, ImageEnhance

from coulomb.index.alignment import agreement
from curation_cases import photo


def agree(part, whole):
    return agreement(whole, part, (whole.size, part.size))


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_a_crop_agrees_with_its_original_at_any_resolution_and_brightness(share):
    whole = photo(0)
    width, height = whole.size
    part = whole.crop((round(share * width), round(share * height), round((1 - share) * width), height))
    for copy in (
        part,
        part.resize((part.width * 2 // 3, part.height * 2 // 3)),
        ImageEnhance.Brightness(part).enhance(0.7),
    ):
        found = agree(copy, whole)
        assert found.whole > 0.97 and found.cell > 0.85


def test_other_images_do_not_agree():
    for seed in range(1, 12):
        found = agree(photo(seed), photo(0))
        assert found.whole < 0.9 or found.cell < 0.7


def test_small_parts_and_other_details_and_colors_do_not_agree():
    whole = photo(0)
    assert agree(whole.crop((0, 0, 120, 90)), whole).whole < 0.9  # a quarter of the area
    other = whole.copy()
    other.paste(photo(1).crop((0, 0, 120, 90)), (60, 45))
    assert agree(other, whole).cell < 0.7
    disc = Image.new("RGB", (200, 200), "white")
    disc.paste(photo(2, 120, 120), (40, 40))
    again = Image.new("RGB", (200, 200), "white")
    again.paste(photo(3, 120, 120), (40, 40))
    assert agree(again, disc).cell < 0.7  # the same outline, other content


def test_flat_images_do_not_agree():
    flat = Image.new("RGB", (200, 100), "gray")
    assert agree(flat, flat) == (0, 0) and agree(flat, photo(0)) == (0, 0) and agree(photo(0), flat) == (0, 0)
