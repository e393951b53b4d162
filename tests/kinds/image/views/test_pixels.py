import colorsys

import numpy as np
import pytest
import torch

from coulomb.kinds.image.views.pixels import (
    FEW_TAPS,
    Blur,
    Color,
    Cutout,
    Intensity,
    Noise,
    Solarize,
    factor,
    gaussian_blur,
    gaussian_kernels,
    hue_rotation,
    kernel_taps,
    turn_hue,
)
from coulomb.kinds.image.views.spec import ViewSpec

B = 24
ALL = slice(0, B)


def by_steps(kornia, spec, u, images):
    """kornia's operations, one sample and one factor at a time: the multiplicative brightness, the contrast about the
    mean gray and the saturation about the pixel's gray (PIL's and torchvision's), hue in HSV, in radians."""
    enhance = kornia.enhance
    out = []
    for i in range(len(images)):
        x = images[i : i + 1]
        draws = u["jitter"][i]
        if u.chance("jitter", spec.jitter)[i]:
            for which in u["jitter_order"][i].argsort().tolist():
                if which == 0:
                    x = enhance.adjust_brightness_accumulative(x, factor(draws[0], spec.brightness).item())
                elif which == 1:
                    x = enhance.adjust_contrast_with_mean_subtraction(x, factor(draws[1], spec.contrast).item())
                elif which == 2:
                    x = enhance.adjust_saturation_with_gray_subtraction(x, factor(draws[2], spec.saturation).item())
                else:
                    x = enhance.adjust_hue(x, (2 * torch.pi * spec.hue * (2 * draws[3] - 1)).item())
        if u.chance("gray", spec.gray)[i]:
            x = kornia.color.rgb_to_grayscale(x).expand(1, 3, -1, -1)
        out.append(x)
    return torch.cat(out)


def test_chain_matches_kornia_step_by_step(kornia, uniforms, photos):
    """One clamp equals a clamp per step if no intermediate value leaves [0, 1]."""
    images, u = photos(B, low=0.3, high=0.6), uniforms(B)
    spec = ViewSpec(jitter=0.8, brightness=0.3, contrast=0.3, saturation=0.3, hue=0.2, gray=0.2)
    assert len({tuple(row) for row in u["jitter_order"].argsort(1).tolist()}) > 10  # the batch has many orders
    expected = by_steps(kornia, spec, u, images)
    got = Color(spec, u)(images.clone(), ALL)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)
    assert (got - images).abs().amax((1, 2, 3)).max() > 0.05


def test_one_clamp_differs_from_many_only_where_values_were_clipped(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, brightness=0.8, contrast=0.8, saturation=0.8)
    expected = by_steps(kornia, spec, u, images)
    got = Color(spec, u)(images.clone(), ALL)
    assert got.min() >= 0 and got.max() <= 1
    assert (got - expected).abs().mean() < 0.05


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_each_factor_alone_clips_like_kornia(kornia, uniforms, photos, name):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, **{name: 0.9})
    torch.testing.assert_close(
        Color(spec, u)(images.clone(), ALL), by_steps(kornia, spec, u, images), atol=2e-5, rtol=0
    )


def test_hue_matches_kornia(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, hue=0.5)
    torch.testing.assert_close(
        Color(spec, u)(images.clone(), ALL), by_steps(kornia, spec, u, images), atol=2e-5, rtol=0
    )


def test_linear_hue_stays_within_a_third_of_the_chroma(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, hue=0.2, hue_model="linear")
    expected = by_steps(kornia, spec, u, images)
    got = Color(spec, u)(images.clone(), ALL)
    chroma = images.amax(1) - images.amin(1)
    assert ((got - expected).abs().amax(1) <= chroma / 3 + 1e-5).all()


def test_the_composed_map_matches_plain_numpy(uniforms, photos):
    """The mean of the image after each factor is tracked without reading pixels."""
    images, u = photos(B, low=0.4, high=0.6), uniforms(B, seed=3)
    spec = ViewSpec(jitter=1.0, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.3, hue_model="linear")
    got = Color(spec, u)(images.clone(), ALL)
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    for i in range(B):
        x = images[i].double()
        b, c, s = (0.8 + 0.4 * u["jitter"][i, k].double() for k in range(3))
        angle = 2 * torch.pi * 0.3 * (2 * u["jitter"][i, 3].double() - 1)
        axis = torch.full((3,), 3**-0.5, dtype=torch.float64)
        for which in u["jitter_order"][i].argsort().tolist():
            gray = torch.einsum("c,chw->hw", luma, x)
            if which == 0:
                x = b * x
            elif which == 1:
                x = c * x + (1 - c) * gray.mean()
            elif which == 2:
                x = s * x + (1 - s) * gray
            else:
                flat = x.flatten(1).T
                along = (flat @ axis)[:, None] * axis
                turned = (
                    (flat - along) * angle.cos() + torch.linalg.cross(axis.expand_as(flat), flat) * angle.sin() + along
                )
                x = turned.T.view_as(x)
        torch.testing.assert_close(got[i].double(), x, atol=2e-6, rtol=0)


def test_samples_without_jitter_are_unchanged(uniforms, photos):
    images, u = photos(B), uniforms(B)
    got = Color(ViewSpec(jitter=0.5, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.2), u)(images.clone(), ALL)
    on = u.chance("jitter", 0.5)
    assert on.any() and not on.all()
    torch.testing.assert_close(got[~on], images[~on], atol=0, rtol=0)
    assert ((got[on] - images[on]).abs().amax((1, 2, 3)) > 0.01).all()


def test_gray_has_three_equal_channels(uniforms, photos):
    got = Color(ViewSpec(gray=1.0), uniforms(B))(photos(B), ALL)
    torch.testing.assert_close(got[:, 0], got[:, 1])
    torch.testing.assert_close(got[:, 0], got[:, 2])


@pytest.mark.parametrize("channels", [1, 5])
def test_intensity_on_other_channel_counts(uniforms, photos, channels):
    images, u = photos(B, channels=channels), uniforms(B)
    got = Intensity(ViewSpec(jitter=0.5, brightness=0.5, contrast=0.5), u)(images.clone(), ALL)
    for i in range(B):
        b, c = (0.5 + u["jitter"][i, k] for k in range(2))
        x = images[i] * b
        expected = (c * x + (1 - c) * x.mean()).clamp(0, 1) if u.chance("jitter", 0.5)[i] else images[i]
        torch.testing.assert_close(got[i], expected, atol=1e-6, rtol=0)


CORNERS = torch.tensor([[r, g, b] for r in (0.0, 0.5, 1.0) for g in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)])


@pytest.mark.parametrize("turn", [0.0, 0.1, -0.2, 0.5, -0.5, 1 / 3])
def test_the_exact_turn_is_colorsys(turn):
    """Includes corners, edges and grays of the color cube, where channels are equal."""
    got = turn_hue(CORNERS[:, :, None, None], torch.full((len(CORNERS),), turn))[:, :, 0, 0]
    for pixel, mine in zip(CORNERS.tolist(), got, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        torch.testing.assert_close(mine, torch.tensor(colorsys.hsv_to_rgb((h + turn) % 1, s, v)), atol=3e-6, rtol=0)


def test_hue_rotation_is_orthogonal_and_keeps_grays():
    matrix = hue_rotation(torch.linspace(-0.5, 0.5, 11))
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(3).expand(11, 3, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(matrix @ torch.ones(3), torch.ones(11, 3))


def test_the_rotation_meets_hsv_at_thirds():
    third = hue_rotation(torch.tensor([1 / 3]))[0]
    torch.testing.assert_close(third @ torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0]), atol=1e-6, rtol=0)


def test_the_rotation_is_within_a_third_of_the_chroma_of_hsv():
    colors = torch.rand(5000, 3, generator=torch.Generator().manual_seed(0))
    turns = torch.rand(5000, generator=torch.Generator().manual_seed(1)) - 0.5
    exact = turn_hue(colors[:, :, None, None], turns)[:, :, 0, 0]
    linear = (hue_rotation(turns) @ colors[:, :, None])[:, :, 0].clamp(0, 1)
    ratio = (exact - linear).abs().amax(1) / (colors.amax(1) - colors.amin(1))
    assert 0.25 < ratio.max() <= 1 / 3 + 1e-4


@pytest.mark.parametrize(("size", "taps"), [(16, 3), (32, 3), (33, 5), (96, 9), (224, 23)])
@pytest.mark.parametrize("channels", [1, 3])
def test_matches_kornia_sample_by_sample(kornia, photos, size, taps, channels):
    """Compares both algorithms (few taps, many taps) with kornia's gaussian_blur2d with reflected borders."""
    images = photos(3, channels=channels, size=size)
    sigma = torch.tensor([0.1, 0.9, 2.0])
    got = gaussian_blur(images, sigma, taps)
    expected = kornia.filters.gaussian_blur2d(images, (taps, taps), sigma[:, None].expand(3, 2), border_type="reflect")
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_blur_cases_cover_both_algorithms():
    assert 9 <= FEW_TAPS < 23


def test_taps_follow_simclr():
    assert [kernel_taps(size, 0.1) for size in (8, 16, 32, 64, 96, 224)] == [3, 3, 3, 7, 9, 23]
    assert kernel_taps(2, 1.0) == 3  # reflection needs more pixels than the radius


def test_kernels_sum_to_one_and_are_gaussian():
    kernels = gaussian_kernels(torch.tensor([0.5, 2.0]), 9)
    torch.testing.assert_close(kernels.sum(1), torch.ones(2))
    torch.testing.assert_close((kernels[1, 4] / kernels[1, 6]).log(), torch.tensor(0.5))  # 2² / (2 · 2²)


def test_blur_changes_only_the_chosen_samples(uniforms, photos):
    images, u = photos(16), uniforms(16)
    blur = Blur(ViewSpec(blur=0.5, blur_sigma=(1.0, 2.0)), u, 32)
    got = blur(images.clone(), slice(0, 16))
    changed = (got - images).abs().amax((1, 2, 3)) > 0
    assert torch.equal(changed, u.chance("blur", 0.5))
    assert blur.sigma.min() >= 1.0 and blur.sigma.max() <= 2.0 and blur.sigma.unique().numel() == 16


MANY = 400
ALL_MANY = slice(0, MANY)


def test_solarize_matches_kornia(kornia, uniforms, photos):
    images, u = photos(MANY, size=8), uniforms(MANY)
    got = Solarize(ViewSpec(solarize=0.5, solarize_threshold=0.4), u)(images.clone(), ALL_MANY)
    on = u.chance("solarize", 0.5)
    torch.testing.assert_close(got[on], kornia.enhance.solarize(images[on], thresholds=0.4), atol=1e-6, rtol=0)
    assert torch.equal(got[~on], images[~on]) and 0.4 < on.float().mean() < 0.6


def test_noise_strength_varies_per_sample(uniforms):
    u = uniforms(MANY)
    noise = Noise(ViewSpec(noise=0.5, noise_std=(0.02, 0.08)), u, channels=2, size=32)
    got = noise(torch.full((MANY, 2, 32, 32), 0.5), ALL_MANY) - 0.5
    on = u.chance("noise", 0.5)
    assert torch.equal(got.abs().amax((1, 2, 3)) > 0, on)
    torch.testing.assert_close(got[on].std((1, 2, 3)), noise.std[on], rtol=0.1, atol=0)
    assert got[on].mean().abs() < 0.001
    fields = (got[on] / noise.std[on][:, None, None, None]).flatten(1)
    assert abs(np.corrcoef(fields[:20].numpy())[~np.eye(20, dtype=bool)]).max() < 0.12  # all differ
    assert noise.std[on].min() >= 0.02 and noise.std[on].max() <= 0.08


def test_noise_is_clamped(uniforms):
    got = Noise(ViewSpec(noise=1.0, noise_std=(0.5, 0.5)), uniforms(4), 1, 16)(torch.ones(4, 1, 16, 16), slice(0, 4))
    assert got.max() == 1 and got.min() >= 0 and got.min() < 0.5


def test_cutout_matches_a_square_drawn_by_hand(uniforms, photos):
    images, u = photos(MANY, size=20), uniforms(MANY)
    got = Cutout(ViewSpec(cutout=0.5, cutout_side=(0.2, 0.5), cutout_fill=0.25), u, 20)(images.clone(), ALL_MANY)
    expected = images.numpy().copy()
    for i in range(MANY):
        if not u.chance("cutout", 0.5)[i]:
            continue
        side, x, y = u["cutout"][i].tolist()
        half = (0.2 + 0.3 * side) / 2
        for row in range(20):
            for column in range(20):
                if abs((row + 0.5) / 20 - y) < half and abs((column + 0.5) / 20 - x) < half:
                    expected[i, :, row, column] = 0.25
    assert (got.numpy() != expected).mean() < 1e-4  # a pixel center may lie on the edge, up to rounding
