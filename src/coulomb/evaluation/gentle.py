"""The views that a fine-tuning sees: those of the training without what changes light and colour."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from coulomb.data.views import ViewMaker, Views

GentleView = Callable[[Tensor, torch.Generator, Tensor | None], Tensor]
LEAST_AREA = 0.5  # of a crop; labels, unlike instances, are often wrong for less


def gentle(views: ViewMaker) -> tuple[GentleView, str]:
    """(canvas [B,C,H,W], generator, aspect [B]) → one view [B,C,S,S] in [0,1], and what it is in words.

    Of `Views` the geometry is kept (crops of at least half the area, flips, small affine maps and warps); views of the
    user's own may do anything, so the plain view stands in for them.
    """
    if not isinstance(views, Views):
        return lambda canvas, generator, aspect: views.plain(canvas, aspect), "the plain view"
    spec = views.spec
    low, high = spec.crop_area
    area = (max(low, min(LEAST_AREA, high)), high)
    mild = replace(spec, crop_area=area, jitter=0, grey=0, blur=0, solarise=0, noise=0, cutout=0)
    made = Views(mild, views.size, views.channels)
    return (
        lambda canvas, generator, aspect: made(canvas, generator, n=1, aspect=aspect)[0],
        f"geometry of the training's views, crops of {area[0]:g} to {area[1]:g} of the area",
    )
