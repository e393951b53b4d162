import numpy as np
import pytest
import torch
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import plain_view


def test_same_size_and_square_is_exactly_the_canvas():
    canvas = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(plain_view(canvas, 32), canvas.float() / 255)
    assert torch.equal(plain_view(canvas, 32, torch.ones(5)), canvas.float() / 255)
    floats = canvas.double() / 255
    assert torch.equal(plain_view(floats, 32), floats.float())


def test_a_float_canvas_is_copied():
    canvas = torch.rand(1, 1, 8, 8)
    plain_view(canvas, 8).zero_()
    assert canvas.max() > 0


@pytest.mark.parametrize(("canvas_size", "size"), [(64, 32), (100, 32), (20, 32), (256, 224)])
@pytest.mark.parametrize("aspect", [1.0, 2.5, 0.4])
def test_matches_pil(photos, canvas_size, size, aspect):
    """PIL's antialiased bilinear resize of the center box of the canvas (one float channel)."""
    canvas = photos(1, channels=1, size=canvas_size)
    width, height = canvas_size * min(1, 1 / aspect), canvas_size * min(1, aspect)
    left, top = (canvas_size - width) / 2, (canvas_size - height) / 2
    picture = Image.fromarray(canvas[0, 0].numpy())
    expected = picture.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    got = plain_view(canvas, size, torch.tensor([aspect]))
    np.testing.assert_allclose(got[0, 0].numpy(), np.asarray(expected), atol=1e-5)


def test_aspects_may_differ_within_a_batch(photos):
    canvas, aspect = photos(3, size=40), torch.tensor([1.0, 3.0, 0.5])
    together = plain_view(canvas, 32, aspect)
    for i in range(3):
        torch.testing.assert_close(together[i : i + 1], plain_view(canvas[i : i + 1], 32, aspect[i : i + 1]))


def test_oblong_canvas_without_aspect_is_center_cropped():
    canvas = torch.rand(2, 3, 32, 48)
    torch.testing.assert_close(plain_view(canvas, 32), canvas[..., 8:40])


def test_error_for_bad_aspect():
    canvas = torch.rand(2, 3, 8, 8)
    for aspect in (torch.ones(3), torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")]), 1.0):
        with pytest.raises(InputError, match="aspect"):
            plain_view(canvas, 8, aspect)
