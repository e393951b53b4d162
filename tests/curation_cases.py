"""Features for the tests of curation, and references in fp64."""

import numpy as np
from PIL import Image


def normal(n, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def crowded(n=400, dim=16, seed=0, dtype=np.float16):
    """Rows around 25 centers at all distances, with copies and a row of zeros."""
    random = np.random.default_rng(seed)
    centers = random.normal(size=(25, dim))
    spread = 0.4 * random.random((n, 1)) ** 3
    x = centers[random.integers(0, 25, n)] + spread * random.normal(size=(n, dim))
    x[5], x[9] = 0, x[n // 2]
    return x.astype(dtype)


def cosine_table(x, keys=None):
    first, second = (part.astype(np.float64) for part in (x, x if keys is None else keys))
    lengths = np.sqrt((first**2).sum(1)[:, None] * (second**2).sum(1)[None])
    return first @ second.T / np.maximum(lengths, 1e-300)


def classes_of(n, count, dim=16, seed=0, noise=0.35):
    """Unit features in ``count`` classes, and the classes."""
    random = np.random.default_rng(seed)
    y = random.integers(0, count, n)
    centers = random.normal(size=(count, dim)) / np.sqrt(dim)
    x = centers[y] + noise * random.normal(size=(n, dim)) / np.sqrt(dim)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def photo(seed, width=240, height=180):
    """Structure at all scales, as photos have."""
    random = np.random.default_rng(seed)
    image = np.zeros((height, width, 3))
    for cells in (3, 6, 12, 24, 48):
        noise = Image.fromarray(random.integers(0, 255, (cells, cells, 3)).astype(np.uint8))
        image += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC), float) / cells**0.7
    image -= image.min()
    return Image.fromarray((image / image.max() * 255).astype(np.uint8))
