import numpy as np
import pytest
import torch

from coulomb.data.views.geometry import crop_rectangles
from coulomb.data.views.spec import ViewSpec

SPEC = ViewSpec(crop_area=(0.08, 1.0), crop_ratio=(3 / 4, 4 / 3))


def reference_rectangle(spec, area_u, ratio_u, place_u, aspect):
    """RandomResizedCrop as its authors tell it, one sample at a time, with real-valued sides; the image is aspect × 1."""
    for a, r in zip(area_u, ratio_u, strict=True):
        area = aspect * (spec.crop_area[0] + (spec.crop_area[1] - spec.crop_area[0]) * a)
        low, high = np.log(spec.crop_ratio)
        ratio = np.exp(low + (high - low) * r)
        width, height = np.sqrt(area * ratio), np.sqrt(area / ratio)
        if width <= aspect and height <= 1:
            left, top = place_u[0] * (aspect - width), place_u[1] * (1 - height)
            return left / aspect, top, width / aspect, height
    if aspect < spec.crop_ratio[0]:
        width, height = aspect, aspect / spec.crop_ratio[0]
    elif aspect > spec.crop_ratio[1]:
        width, height = spec.crop_ratio[1], 1.0
    else:
        width, height = aspect, 1.0
    return (aspect - width) / 2 / aspect, (1 - height) / 2, width / aspect, height


@pytest.mark.parametrize("aspect", [1.0, 0.2, 4.0, 1.3])
def test_rectangles_follow_the_reference(uniforms, aspect):
    u = uniforms(200)
    got = crop_rectangles(SPEC, u, torch.full((200,), aspect))
    expected = [
        reference_rectangle(
            SPEC, *(u[name][i].double().numpy() for name in ("crop_area", "crop_ratio", "crop_place")), aspect
        )
        for i in range(200)
    ]
    np.testing.assert_allclose(got.numpy(), np.array(expected), atol=2e-6)


def test_area_and_ratio_are_those_of_the_original(uniforms):
    aspect = torch.full((4000,), 2.0)
    left, top, width, height = crop_rectangles(
        ViewSpec(crop_area=(0.1, 0.3), crop_ratio=(0.5, 2.0)), uniforms(4000), aspect
    ).unbind(1)
    area, ratio = width * height, width * 2.0 / height
    assert area.min() >= 0.1 - 1e-6 and area.max() <= 0.3 + 1e-6
    assert abs(area.mean() - 0.2) < 0.005
    assert ratio.min() >= 0.5 - 1e-5 and ratio.max() <= 2.0 + 1e-5
    assert abs(ratio.log().mean()) < 0.03  # log-uniform, symmetric about 1
    assert left.min() >= 0 and (left + width).max() <= 1 + 1e-6
    assert top.min() >= 0 and (top + height).max() <= 1 + 1e-6


def test_the_default_is_the_centre_square(uniforms):
    got = crop_rectangles(ViewSpec(), uniforms(3), torch.tensor([1.0, 2.0, 0.5]))
    torch.testing.assert_close(got, torch.tensor([[0, 0, 1, 1], [0.25, 0, 0.5, 1], [0, 0.25, 1, 0.5]]).float())
