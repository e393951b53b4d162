"""A linear matcher of views: whether the views of an image have anything in common that could be learned."""

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from coulomb.data.views import ViewMaker
from coulomb.diagnostics import separation
from coulomb.randomness import generator
from coulomb.runs.prepare import Part

SIDE, DIRECTIONS, VIEWS = 8, 16, 4
LEAST, MOST, PIXELS = 64, 1_000, 2**22  # training images, and pixels of them
RIDGE = 1e-2  # of the mean variance


def matcher_separation(train: Part, held_out: Part, views: ViewMaker, seed: int, size: int) -> float | None:
    """P(two held-out views of an image are nearer than views of two images) under a linear map fitted to match views.

    Views are reduced to at most 8 × 8 pixels. The map is Fisher's linear discriminant with every training image as a class:
    the 16 directions in which images differ most in comparison with the views of an image, of four views of up to 1,000
    training images. .5 is chance. It needs no network, so it tells views that are too strong from a network that learned
    nothing. Returns None for fewer than 64 training images.
    """
    fitted = train.sample(min(MOST, max(LEAST, PIXELS // size**2)), seed, "matcher")
    if len(fitted.indices) < LEAST or len(held_out.indices) < 2:
        return None
    known = _small_views(fitted, views, seed, "matcher views", VIEWS)
    mean, project = _discriminant(known)
    first, second = ((_small_views(held_out, views, seed, "matched views", 2) - mean) @ project).float()
    return separation(first, second)


def _small_views(part: Part, views: ViewMaker, seed: int, purpose: str, n: int) -> Tensor:
    """Views [n, images, features] of at most 8 × 8 pixels."""
    found = []
    for number, batch in enumerate(part.images.batches(part.indices, 256)):
        drawn = views(batch["image"], generator(seed, purpose, number), n=n, aspect=batch["aspect"])
        side = min(SIDE, drawn[0].shape[-1])
        found.append(torch.stack([adaptive_avg_pool2d(view, side).flatten(1).double() for view in drawn]))
    return torch.cat(found, dim=1)


def _discriminant(views: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [F] of views [n, images, F], and a map [F, 16] to directions of unit variance within an image."""
    mean, images = views.mean((0, 1)), views.mean(0)
    within = _covariance(views - images) * len(views) / (len(views) - 1)
    between = _covariance(views - mean) - within
    features = len(mean)
    within += torch.eye(features, dtype=views.dtype) * (RIDGE * within.trace() / features + 1e-9)
    root = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(root, between, upper=False)
    whitened = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((whitened + whitened.T) / 2)
    gain = values[-DIRECTIONS:].clamp_min(0)
    directions = torch.linalg.solve_triangular(root.T, vectors[:, -DIRECTIONS:], upper=True)
    return mean, directions * (gain / (1 + gain)).sqrt()


def _covariance(rows: Tensor) -> Tensor:
    flat = rows.flatten(0, 1)
    return flat.T @ flat / len(flat)
