import warnings

import pytest
import torch

from coulomb.kinds.image.views.uniforms import Uniforms


@pytest.fixture(scope="session")
def kornia():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations in its dependencies
        return pytest.importorskip("kornia", reason="kornia, the oracle, is not installed")


@pytest.fixture
def seeded():
    return lambda seed=0: torch.Generator().manual_seed(seed)


@pytest.fixture
def uniforms(seeded):
    return lambda batch, seed=0, grid=6: Uniforms(batch, grid, seeded(seed))


@pytest.fixture
def photos(seeded):
    """Smooth random color images, float32 [B, C, S, S], in [0, 1]."""

    def make(batch=8, channels=3, size=32, low=0.0, high=1.0, seed=0):
        coarse = torch.rand(batch, channels, 6, 6, generator=seeded(seed))
        fine = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=True)
        return fine.clamp(0, 1) * (high - low) + low

    return make
