import pytest
import torch

from coulomb.data.views.pixels import FEW_TAPS, Blur, gaussian_blur, gaussian_kernels, kernel_taps
from coulomb.data.views.spec import ViewSpec


@pytest.mark.parametrize(("size", "taps"), [(16, 3), (32, 3), (33, 5), (96, 9), (224, 23)])
@pytest.mark.parametrize("channels", [1, 3])
def test_matches_kornia_sample_by_sample(kornia, photos, size, taps, channels):
    """kornia's gaussian_blur2d, border reflect; both ways of computing it (few taps, many taps)."""
    images = photos(3, channels=channels, size=size)
    sigma = torch.tensor([0.1, 0.9, 2.0])
    got = gaussian_blur(images, sigma, taps)
    expected = kornia.filters.gaussian_blur2d(images, (taps, taps), sigma[:, None].expand(3, 2), border_type="reflect")
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_both_ways_are_among_the_cases():
    assert 9 <= FEW_TAPS < 23


def test_taps_follow_simclr():
    assert [kernel_taps(size, 0.1) for size in (8, 16, 32, 64, 96, 224)] == [3, 3, 3, 7, 9, 23]
    assert kernel_taps(2, 1.0) == 3  # reflection needs more pixels than the radius


def test_kernels_sum_to_one_and_are_gaussian():
    kernels = gaussian_kernels(torch.tensor([0.5, 2.0]), 9)
    torch.testing.assert_close(kernels.sum(1), torch.ones(2))
    torch.testing.assert_close((kernels[1, 4] / kernels[1, 6]).log(), torch.tensor(0.5))  # 2² / (2 · 2²)


def test_only_those_who_drew_yes(uniforms, photos):
    images, u = photos(16), uniforms(16)
    blur = Blur(ViewSpec(blur=0.5, blur_sigma=(1.0, 2.0)), u, 32)
    got = blur(images.clone(), slice(0, 16))
    changed = (got - images).abs().amax((1, 2, 3)) > 0
    assert torch.equal(changed, u.chance("blur", 0.5))
    assert blur.sigma.min() >= 1.0 and blur.sigma.max() <= 2.0 and blur.sigma.unique().numel() == 16
