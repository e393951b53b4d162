import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from coulomb.kinds.image.decode import decode, read_header
from coulomb.kinds.image.picture import Header
from coulomb.tables.check import check, render_check
from coulomb.tables.looks import unusual
from coulomb.tables.sources import open_source
from curation_cases import photo

BLURRED = ImageFilter.GaussianBlur(4)


def sharp(seed):
    """A picture with edges, as things in focus have."""
    image, random = photo(seed), np.random.default_rng(seed)
    for left, top, color in random.integers((220, 160, 255), size=(60, 3)):
        image.paste((int(color),) * 3, (int(left), int(top), int(left) + 15, int(top) + 10))
    return image


def looks(image):
    return unusual(np.asarray(image), Header(*image.size, image.mode, 3, "uint8"))


@pytest.mark.parametrize("scale", [0.5, 1, 4])
def test_what_is_named(scale):
    image = sharp(0).resize((round(240 * scale), round(180 * scale)), Image.Resampling.BICUBIC)
    assert looks(image) == []
    assert looks(image.filter(ImageFilter.GaussianBlur(0.02 * image.width))) == ["blurred"]
    assert looks(ImageEnhance.Brightness(image).enhance(0.2)) == ["dark"]
    assert looks(image.crop((0, 0, image.width, image.height // 3))) == ["odd aspect ratio"]
    assert looks(Image.new("RGB", image.size, "white")) == ["bright", "flat"]


def test_small_images_are_not_called_blurred():
    assert looks(photo(0, 32, 32).filter(BLURRED)) == []


def test_check_names_them_once_each(tmp_path):
    for number in range(8):
        sharp(number).save(tmp_path / f"{number}.png")
    photo(9).filter(BLURRED).save(tmp_path / "soft.png")
    sharp(8).convert("CMYK").save(tmp_path / "print.jpg")
    noise = np.random.default_rng(0).integers(0, 65535, (100, 120)).astype(np.uint16)
    Image.fromarray(noise).save(tmp_path / "deep.png")
    result = check(open_source(tmp_path), progress=False)
    assert result["unusual"]["blurred"] == ["soft.png"]
    assert result["unusual"]["CMYK"] == ["print.jpg"]
    assert result["unusual"]["more than 8 bits per channel"] == ["deep.png"]
    text = render_check(result)
    assert "1 image is blurred: soft.png." in text and "1 image is CMYK: print.jpg." in text
    assert text.count("more than 8 bits") == 1


def test_how_most_images_look_is_no_finding(tmp_path):
    for number in range(4):
        photo(number).filter(BLURRED).save(tmp_path / f"{number}.png")
    result = check(open_source(tmp_path), progress=False)
    assert len(result["unusual"]["blurred"]) == 4
    assert not any("blurred" in finding for finding in result["findings"])


def test_headers_of_files_tell_the_mode(tmp_path):
    photo(0).convert("CMYK").save(tmp_path / "a.jpg")
    assert "CMYK" in unusual(decode(tmp_path / "a.jpg", "a")[0], read_header(tmp_path / "a.jpg", "a"))
