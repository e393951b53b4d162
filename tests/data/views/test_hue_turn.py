import colorsys

import pytest
import torch

from coulomb.data.views.pixels import hue_rotation, turn_hue

CORNERS = torch.tensor([[r, g, b] for r in (0.0, 0.5, 1.0) for g in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)])


@pytest.mark.parametrize("turn", [0.0, 0.1, -0.2, 0.5, -0.5, 1 / 3])
def test_the_exact_turn_is_colorsys(turn):
    """Corners, edges and greys of the colour cube included, where maxima tie."""
    got = turn_hue(CORNERS[:, :, None, None], torch.full((len(CORNERS),), turn))[:, :, 0, 0]
    for pixel, mine in zip(CORNERS.tolist(), got, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        torch.testing.assert_close(mine, torch.tensor(colorsys.hsv_to_rgb((h + turn) % 1, s, v)), atol=3e-6, rtol=0)


def test_the_rotation_is_one_and_keeps_greys():
    matrix = hue_rotation(torch.linspace(-0.5, 0.5, 11))
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(3).expand(11, 3, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(matrix @ torch.ones(3), torch.ones(11, 3))


def test_the_rotation_meets_hsv_at_thirds():
    third = hue_rotation(torch.tensor([1 / 3]))[0]
    torch.testing.assert_close(third @ torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0]), atol=1e-6, rtol=0)


def test_the_rotation_is_within_a_third_of_the_chroma_of_hsv():
    colours = torch.rand(5000, 3, generator=torch.Generator().manual_seed(0))
    turns = torch.rand(5000, generator=torch.Generator().manual_seed(1)) - 0.5
    exact = turn_hue(colours[:, :, None, None], turns)[:, :, 0, 0]
    linear = (hue_rotation(turns) @ colours[:, :, None])[:, :, 0].clamp(0, 1)
    ratio = (exact - linear).abs().amax(1) / (colours.amax(1) - colours.amin(1))
    assert 0.25 < ratio.max() <= 1 / 3 + 1e-4
