"""HEIC files are read where pillow-heif is installed, and named with that hint where it is not."""

import importlib.util

import numpy as np
import pytest
from PIL import Image

from coulomb.data import check, open_source
from coulomb.errors import InputError

INSTALLED = importlib.util.find_spec("pillow_heif") is not None
# The first bytes of a HEIC file: a box of type "ftyp" with the brand "heic".
HEAD = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(40)


@pytest.mark.skipif(INSTALLED, reason="pillow-heif is installed")
def test_without_the_library_the_hint_is_given(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(HEAD)
    with pytest.raises(InputError, match=r"1 HEIC files were skipped \(IMG_1.HEIC\).*pip install pillow-heif"):
        open_source(tmp_path)
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    assert any("pip install pillow-heif" in note for note in open_source(tmp_path).notes)
    (tmp_path / "list.csv").write_text("path\na.png\nIMG_1.HEIC\n")
    corrupt = check(open_source(tmp_path / "list.csv"))["corrupt"]
    assert corrupt == [{"id": "IMG_1.HEIC", "reason": "HEIC needs another library: pip install pillow-heif"}]


def test_with_the_library_it_is_an_image_like_any_other(tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    pixels = np.linspace(0, 255, 64 * 96 * 3).reshape(64, 96, 3).astype(np.uint8)
    heif.register_heif_opener()
    Image.fromarray(pixels).save(tmp_path / "IMG_1.HEIC", quality=95)
    source = open_source(tmp_path)
    assert len(source) == 1 and source.notes == ()
    assert (source.header(0).width, source.header(0).height) == (96, 64)
    assert np.abs(source.image(0).astype(int) - pixels).mean() < 4
