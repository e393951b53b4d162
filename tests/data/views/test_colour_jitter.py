import pytest
import torch

from coulomb.data.views.pixels import Colour, Intensity, factor
from coulomb.data.views.spec import ViewSpec

B = 24
ALL = slice(0, B)


def by_steps(kornia, spec, u, images):
    """kornia's operations, one sample and one factor at a time: the multiplicative brightness, the contrast about the
    mean grey and the saturation about the pixel's grey (PIL's and torchvision's), hue in HSV, in radians."""
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
        if u.chance("grey", spec.grey)[i]:
            x = kornia.color.rgb_to_grayscale(x).expand(1, 3, -1, -1)
        out.append(x)
    return torch.cat(out)


def test_chain_matches_kornia_step_by_step(kornia, uniforms, photos):
    """Where nothing leaves [0, 1] on the way, one clamp and a clamp per step are the same."""
    images, u = photos(B, low=0.3, high=0.6), uniforms(B)
    spec = ViewSpec(jitter=0.8, brightness=0.3, contrast=0.3, saturation=0.3, hue=0.2, grey=0.2)
    assert len({tuple(row) for row in u["jitter_order"].argsort(1).tolist()}) > 10  # many orders are in this batch
    expected = by_steps(kornia, spec, u, images)
    got = Colour(spec, u)(images.clone(), ALL)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)
    assert (got - images).abs().amax((1, 2, 3)).max() > 0.05


def test_one_clamp_differs_from_many_only_where_values_were_clipped(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, brightness=0.8, contrast=0.8, saturation=0.8)
    expected = by_steps(kornia, spec, u, images)
    got = Colour(spec, u)(images.clone(), ALL)
    assert got.min() >= 0 and got.max() <= 1
    assert (got - expected).abs().mean() < 0.05


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_each_factor_alone_clips_like_kornia(kornia, uniforms, photos, name):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, **{name: 0.9})
    torch.testing.assert_close(
        Colour(spec, u)(images.clone(), ALL), by_steps(kornia, spec, u, images), atol=2e-5, rtol=0
    )


def test_hue_alone_matches_kornia(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, hue=0.5)
    torch.testing.assert_close(
        Colour(spec, u)(images.clone(), ALL), by_steps(kornia, spec, u, images), atol=2e-5, rtol=0
    )


def test_linear_hue_stays_within_a_third_of_the_chroma(kornia, uniforms, photos):
    images, u = photos(B), uniforms(B)
    spec = ViewSpec(jitter=1.0, hue=0.2, hue_model="linear")
    expected = by_steps(kornia, spec, u, images)
    got = Colour(spec, u)(images.clone(), ALL)
    chroma = images.amax(1) - images.amin(1)
    assert ((got - expected).abs().amax(1) <= chroma / 3 + 1e-5).all()


def test_the_composed_map_matches_plain_numpy(uniforms, photos):
    """Contrast after brightness after …: the mean is that of the picture so far, tracked without looking at pixels."""
    images, u = photos(B, low=0.4, high=0.6), uniforms(B, seed=3)
    spec = ViewSpec(jitter=1.0, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.3, hue_model="linear")
    got = Colour(spec, u)(images.clone(), ALL)
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    for i in range(B):
        x = images[i].double()
        b, c, s = (0.8 + 0.4 * u["jitter"][i, k].double() for k in range(3))
        angle = 2 * torch.pi * 0.3 * (2 * u["jitter"][i, 3].double() - 1)
        axis = torch.full((3,), 3**-0.5, dtype=torch.float64)
        for which in u["jitter_order"][i].argsort().tolist():
            grey = torch.einsum("c,chw->hw", luma, x)
            if which == 0:
                x = b * x
            elif which == 1:
                x = c * x + (1 - c) * grey.mean()
            elif which == 2:
                x = s * x + (1 - s) * grey
            else:
                flat = x.flatten(1).T
                along = (flat @ axis)[:, None] * axis
                turned = (
                    (flat - along) * angle.cos() + torch.linalg.cross(axis.expand_as(flat), flat) * angle.sin() + along
                )
                x = turned.T.view_as(x)
        torch.testing.assert_close(got[i].double(), x, atol=2e-6, rtol=0)


def test_who_drew_no_is_left_as_is(uniforms, photos):
    images, u = photos(B), uniforms(B)
    got = Colour(ViewSpec(jitter=0.5, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.2), u)(images.clone(), ALL)
    on = u.chance("jitter", 0.5)
    assert on.any() and not on.all()
    torch.testing.assert_close(got[~on], images[~on], atol=0, rtol=0)
    assert ((got[on] - images[on]).abs().amax((1, 2, 3)) > 0.01).all()


def test_grey_has_three_equal_channels(uniforms, photos):
    got = Colour(ViewSpec(grey=1.0), uniforms(B))(photos(B), ALL)
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
