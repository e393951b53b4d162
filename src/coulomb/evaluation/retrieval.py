"""How good features are when nobody has labelled anything: do two views of an image find each other?"""

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.evaluation.labelled import Features, features_of
from coulomb.evaluation.neighbours import nearest


def view_retrieval(view0_x: Features, view1_x: Features) -> float:
    """R@1: share of images whose view 0 has, among view 1 of ALL images, its own as the nearest by cosine.

    Chance is 1/n, so n belongs with the figure. Raises `InputError` unless both are [n,F] with n ≥ 2.
    """
    return float(views_retrieved(view0_x, view1_x).double().mean())


def views_retrieved(view0_x: Features, view1_x: Features) -> Tensor:
    """Whether view 0 of each image has its own view 1 as the nearest, bool [n]; see `view_retrieval`."""
    first, second = features_of(view0_x, "view0_x"), features_of(view1_x, "view1_x")
    if first.shape != second.shape or len(first) < 2:
        raise InputError(
            f"view0_x {list(first.shape)} and view1_x {list(second.shape)} must be features [n, F] of the same n ≥ 2 "
            "images."
        )
    own = torch.arange(len(first))
    return torch.cat([columns[:, 0] == own[rows] for rows, _, columns in nearest(first, second, 1)])
