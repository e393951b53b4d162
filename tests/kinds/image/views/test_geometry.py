import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coulomb.kinds.image.views.geometry import (
    Geometry,
    affine_maps,
    control_points,
    crop_rectangles,
    displacement,
    pooling,
    spline_basis,
)
from coulomb.kinds.image.views.spec import ViewSpec

B, S = 8, 32
ALL = slice(0, B)
AFFINE = ViewSpec(affine=1.0, rotate=40, translate=0.2, zoom=(0.7, 1.4), shear=15, padding="zeros")


def test_affine_matches_kornia_warp_affine(kornia, uniforms, photos):
    """kornia's warp_affine maps pixel centers 0 … S−1 forwards (align_corners=True); ours [−1, 1] over pixel edges."""
    u, images = uniforms(B), photos(B, size=S)
    linear, shift = affine_maps(AFFINE, u)
    center = torch.full((B, 2, 1), (S - 1) / 2)
    matrix = torch.cat([linear, center - linear @ center + shift * S / 2], 2)
    expected = kornia.geometry.transform.warp_affine(images, matrix, (S, S), padding_mode="zeros", align_corners=True)
    got = Geometry(AFFINE, u, torch.ones(B), S)(images, ALL)
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=0)


def test_positive_angle_is_counter_clockwise(kornia, uniforms):
    """The convention of kornia's get_rotation_matrix2d and OpenCV."""
    u = uniforms(B)
    spec = ViewSpec(affine=1.0, rotate=40, zoom=(0.7, 1.4))
    linear, _ = affine_maps(spec, u)
    angle = 40 * (2 * u["affine"][:, 0] - 1)
    size = torch.exp(math.log(0.7) + (math.log(1.4) - math.log(0.7)) * u["affine"][:, 3])
    expected = kornia.geometry.transform.get_rotation_matrix2d(torch.zeros(B, 2), angle, size[:, None].expand(B, 2))
    torch.testing.assert_close(linear, expected[:, :, :2])


def test_the_affine_map_is_zoom_rotation_shear_then_shift(uniforms):
    """Each of the six random numbers has its role; a shear along x moves x by y times the slope."""
    u = uniforms(B)
    linear, shift = affine_maps(AFFINE, u)
    rotate, shear_x, shear_y, zoom, x, y = u["affine"].double().unbind(1)
    for i in range(B):
        a = math.radians(40 * (2 * rotate[i] - 1))
        slope_x, slope_y = (math.tan(math.radians(15 * (2 * s[i] - 1))) for s in (shear_x, shear_y))
        turn = torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]])
        expected = 0.7 * 2 ** zoom[i] * (turn @ torch.tensor([[1, slope_x], [slope_y, 1]]))
        torch.testing.assert_close(linear[i].double(), expected.double(), atol=1e-5, rtol=0)
        moved = 2 * 0.2 * (2 * torch.stack([x[i], y[i]]) - 1)
        torch.testing.assert_close(shift[i, :, 0].double(), moved, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [32, 20])
def test_crop_matches_kornia_crop_and_resize(kornia, uniforms, photos, size):
    """kornia's boxes connect pixel centers, ours pixel edges: the box connects the outermost sampled points."""
    u, images = uniforms(B), photos(B, size=S)
    spec = ViewSpec(crop_area=(0.2, 0.6), crop_ratio=(0.75, 1.33))
    left, top, width, height = crop_rectangles(spec, u, torch.ones(B)).unbind(1)
    x0, x1 = ((left + width * at / size) * S - 0.5 for at in (0.5, size - 0.5))
    y0, y1 = ((top + height * at / size) * S - 0.5 for at in (0.5, size - 0.5))
    boxes = torch.stack([torch.stack([x, y], 1) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))], 1)
    expected = kornia.geometry.transform.crop_and_resize(images, boxes, (size, size), align_corners=True)
    got = Geometry(spec, u, torch.ones(B), size)(images, ALL)
    inside = (slice(None), slice(None), slice(1, -1), slice(1, -1))  # the paddings differ at the edge of the image
    torch.testing.assert_close(got[inside], expected[inside], atol=2e-4, rtol=0)


def test_flip_mirrors_exactly(uniforms, photos):
    images = photos(B)
    across = Geometry(ViewSpec(flip=1.0), uniforms(B), torch.ones(B), S)(images, ALL)
    torch.testing.assert_close(across, images.flip(3), atol=1e-5, rtol=0)
    down = Geometry(ViewSpec(flip_vertical=1.0), uniforms(B), torch.ones(B), S)(images, ALL)
    torch.testing.assert_close(down, images.flip(2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.0, 3.0])
def test_a_circle_stays_a_circle(uniforms, aspect):
    """A disc in an image of aspect × 1 on a square canvas is round in every view with crop ratio 1."""
    size = 64
    at = (torch.arange(size) + 0.5) / size - 0.5
    longest = max(aspect, 1 / aspect)
    disc = ((at * aspect)[None, :] ** 2 + at[:, None] ** 2 < (0.3 * min(1, aspect)) ** 2).float()
    canvas = disc.expand(1, 1, size, size)
    got = Geometry(ViewSpec(), uniforms(1), torch.tensor([aspect]), size)(canvas, slice(0, 1))[0, 0]
    wide, tall = (got.mean(0) > 0.02).sum().item(), (got.mean(1) > 0.02).sum().item()
    assert abs(wide - tall) <= 2 * longest
    assert abs(wide - 0.6 * size) <= 2 * longest


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_padding_modes(uniforms, padding):
    ramp = torch.linspace(0.5, 1, S).expand(B, 1, S, S).contiguous()
    spec = ViewSpec(affine=1.0, zoom=(0.5, 0.5), padding=padding)
    got = Geometry(spec, uniforms(B), torch.ones(B), S)(ramp, ALL)[:, :, S // 2, 1]
    expected = {"zeros": 0.0, "border": 0.5, "reflection": ramp[0, 0, 0, 13].item()}[padding]
    assert (got - expected).abs().max() < 0.02


def test_shrinking_averages_before_it_samples(uniforms):
    """Stripes of one pixel become gray when shrunk four times; plain bilinear sampling would give black or white."""
    canvas = (torch.arange(128) % 2).float().expand(1, 1, 128, 128)
    got = Geometry(ViewSpec(), uniforms(1), torch.ones(1), 32)(canvas, slice(0, 1))
    torch.testing.assert_close(got, torch.full((1, 1, 32, 32), 0.5))


def test_only_the_axis_that_shrinks_is_averaged(uniforms):
    """For an image with aspect 4 on a square canvas, columns are kept and rows are averaged by four."""
    columns = (torch.arange(128) % 2).float().expand(1, 1, 128, 128).contiguous()
    geometry = Geometry(ViewSpec(), uniforms(1), torch.tensor([4.0]), 32)
    torch.testing.assert_close(geometry(columns, slice(0, 1)), columns[:, :, :32, 48:80], atol=1e-4, rtol=0)
    got = geometry(columns.mT.contiguous(), slice(0, 1))
    torch.testing.assert_close(got, torch.full_like(got, 0.5))


def test_pooling_factors_per_axis():
    theta = torch.tensor([[[0.25, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]], [[0.1, 0, 0], [0, 0.1, 0]]]).float()
    assert pooling(theta, torch.Size([128, 128]), 32).tolist() == [[1, 4], [4, 4], [1, 1]]
    quarter_turn = torch.tensor([[[0.0, -0.25, 0], [1, 0, 0]]])
    assert pooling(quarter_turn, torch.Size([128, 128]), 32).tolist() == [[1, 4]]


def test_samples_of_different_scale_share_a_batch(uniforms, photos):
    images = photos(6, size=128)
    aspects = torch.tensor([1.0, 4.0, 0.25, 1.0, 4.0, 0.25])
    geometry = Geometry(ViewSpec(), uniforms(6), aspects, 32)
    assert len(pooling(geometry.theta, images.shape[-2:], 32).unique(dim=0)) == 3
    together = geometry(images, slice(0, 6))
    for i in range(6):
        alone = Geometry(ViewSpec(), uniforms(1), aspects[i : i + 1], 32)(images[i : i + 1], slice(0, 1))
        torch.testing.assert_close(together[i : i + 1], alone)


def test_pooling_does_not_shift_the_image(uniforms):
    """A ramp is unchanged by averaging, also on canvases that the factor does not divide."""
    for canvas_size in (128, 130):
        ramp = ((torch.arange(canvas_size) + 0.5) / canvas_size).expand(1, 1, canvas_size, canvas_size)
        got = Geometry(ViewSpec(), uniforms(1), torch.ones(1), 32)(ramp.contiguous(), slice(0, 1))
        expected = ((torch.arange(32) + 0.5) / 32).expand(1, 1, 32, 32)
        torch.testing.assert_close(got[..., 1:-1], expected[..., 1:-1], atol=0.005, rtol=0)


def test_elastic_is_sampled_where_the_field_says(uniforms, photos):
    """Compares with grid_sample and the displacement field in double precision."""
    from coulomb.kinds.image.views.geometry import control_points

    images, u = photos(B), uniforms(B)
    spec = ViewSpec(elastic=0.5, elastic_amplitude=0.1)
    points = control_points(spec, u).double()
    at = (torch.arange(S).double() + 0.5) * 3 / S  # three segments between six control points
    segment, t = at.floor().long(), at - at.floor()
    blend = torch.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], 1) / 6
    basis = torch.zeros(S, 6).double().scatter_(1, segment[:, None] + torch.arange(4), blend)
    field = torch.einsum("ya,bkac,xc->byxk", basis, points, basis)
    axis = (torch.arange(S).double() * 2 + 1) / S - 1
    base = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    expected = F.grid_sample(images.double(), base + field, padding_mode="reflection", align_corners=False)
    got = Geometry(spec, u, torch.ones(B), S)(images, ALL)
    torch.testing.assert_close(got.double(), expected, atol=1e-4, rtol=0)
    on = u.chance("elastic", 0.5)
    assert on.any() and not on.all()
    torch.testing.assert_close(got[~on], images[~on], atol=1e-5, rtol=0)


SPEC = ViewSpec(crop_area=(0.08, 1.0), crop_ratio=(3 / 4, 4 / 3))


def reference_rectangle(spec, area_u, ratio_u, place_u, aspect):
    """RandomResizedCrop for one sample at a time with real-valued sides; the image is aspect × 1."""
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


def test_area_and_ratio_refer_to_the_original_image(uniforms):
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


def test_the_default_is_the_center_square(uniforms):
    got = crop_rectangles(ViewSpec(), uniforms(3), torch.tensor([1.0, 2.0, 0.5]))
    torch.testing.assert_close(got, torch.tensor([[0, 0, 1, 1], [0.25, 0, 0.5, 1], [0, 0.25, 1, 0.5]]).float())


def test_the_basis_is_a_partition_of_unity():
    for size, grid in ((16, 6), (7, 4), (33, 12)):
        basis = spline_basis(size, grid)
        assert basis.min() >= 0
        torch.testing.assert_close(basis.sum(1), torch.ones(size))


def test_largest_displacement_is_the_amplitude(uniforms):
    spec = ViewSpec(elastic=1.0, elastic_amplitude=0.1)
    field = displacement(control_points(spec, uniforms(256)), spline_basis(32, 6)) / 2  # fractions of the side
    assert field.abs().max() <= 0.1
    assert 0.02 < field.std() < 0.04  # about .3 of the amplitude, as documented
    assert field.mean().abs() < 0.002


def test_displacement_field_is_smooth(uniforms):
    spec = ViewSpec(elastic=1.0, elastic_amplitude=0.1)
    field = displacement(control_points(spec, uniforms(64)), spline_basis(128, 6)) / 2 * 128  # pixels
    slope = field.diff(dim=3)
    assert slope.abs().max() < 0.1 * 2 * 3  # amplitude × swing × segments, per pixel of 1/128
    assert slope.diff(dim=3).abs().max() < 0.05
