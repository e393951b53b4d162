import numpy as np
import torch

from coulomb.data.views.pixels import Cutout, Noise, Solarise
from coulomb.data.views.spec import ViewSpec

B = 400
ALL = slice(0, B)


def test_solarise_matches_kornia(kornia, uniforms, photos):
    images, u = photos(B, size=8), uniforms(B)
    got = Solarise(ViewSpec(solarise=0.5, solarise_threshold=0.4), u)(images.clone(), ALL)
    on = u.chance("solarise", 0.5)
    torch.testing.assert_close(got[on], kornia.enhance.solarize(images[on], thresholds=0.4), atol=1e-6, rtol=0)
    assert torch.equal(got[~on], images[~on]) and 0.4 < on.float().mean() < 0.6


def test_noise_has_each_samples_own_strength(uniforms):
    u = uniforms(B)
    noise = Noise(ViewSpec(noise=0.5, noise_std=(0.02, 0.08)), u, channels=2, size=32)
    got = noise(torch.full((B, 2, 32, 32), 0.5), ALL) - 0.5
    on = u.chance("noise", 0.5)
    assert torch.equal(got.abs().amax((1, 2, 3)) > 0, on)
    torch.testing.assert_close(got[on].std((1, 2, 3)), noise.std[on], rtol=0.1, atol=0)
    assert got[on].mean().abs() < 0.001
    fields = (got[on] / noise.std[on][:, None, None, None]).flatten(1)
    assert abs(np.corrcoef(fields[:20].numpy())[~np.eye(20, dtype=bool)]).max() < 0.12  # no two alike
    assert noise.std[on].min() >= 0.02 and noise.std[on].max() <= 0.08


def test_noise_is_clamped(uniforms):
    got = Noise(ViewSpec(noise=1.0, noise_std=(0.5, 0.5)), uniforms(4), 1, 16)(torch.ones(4, 1, 16, 16), slice(0, 4))
    assert got.max() == 1 and got.min() >= 0 and got.min() < 0.5


def test_cutout_matches_a_square_drawn_by_hand(uniforms, photos):
    images, u = photos(B, size=20), uniforms(B)
    got = Cutout(ViewSpec(cutout=0.5, cutout_side=(0.2, 0.5), cutout_fill=0.25), u, 20)(images.clone(), ALL)
    expected = images.numpy().copy()
    for i in range(B):
        if not u.chance("cutout", 0.5)[i]:
            continue
        side, x, y = u["cutout"][i].tolist()
        half = (0.2 + 0.3 * side) / 2
        for row in range(20):
            for column in range(20):
                if abs((row + 0.5) / 20 - y) < half and abs((column + 0.5) / 20 - x) < half:
                    expected[i, :, row, column] = 0.25
    assert (got.numpy() != expected).mean() < 1e-4  # a pixel's centre may lie on the edge to rounding
