"""Adapters: linear maps of a frozen backbone's features that are part of the encoder."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.ground.reading import Shape, text, whole
from coulomb.models.heads import projection_head

KINDS = ("whitening", "linear")
ENTRIES = {"kind": text, "in": whole, "out": whole}
DESCRIPTION = Shape(
    "an object with kind, in and out",
    lambda value: (
        isinstance(value, dict)
        and value.keys() == ENTRIES.keys()
        and all(shape.fits(value[name]) for name, shape in ENTRIES.items())
    ),
)


def build_adapter(description: Mapping[str, Any]) -> nn.Linear:
    """Builds an adapter, features x [B, in] → [B, out], from its description in ``encoder.json``.

    ==========  ==============================================================================
    kind        output
    ==========  ==============================================================================
    whitening   W x + b, which are constant (`coulomb.models.whitening`); 0 until `set_whitening`
    linear      A x with A [in, in], which is learned and begins as the identity, so that the
                features of the first step are exactly the backbone's
    ==========  ==============================================================================

    A linear adapter works in the coordinates of the backbone, not in whitened ones: there, directions without meaning weigh
    as much as the others, and classifiers trained on a few labels get worse.

    Raises:
        InputError: the kind is unknown, a linear adapter would change the width, or the adapter is too large.
    """
    kind, in_dim, out_dim = (description[name] for name in ENTRIES)
    if kind not in KINDS or (kind == "linear" and in_dim != out_dim):
        raise InputError(
            f"adapter kind={kind!r}, in={in_dim}, out={out_dim}: must be whitening, or linear with in = out"
        )
    adapter = projection_head(in_dim, out_dim=out_dim, layers=1)[0]  # checks the sizes
    assert isinstance(adapter, nn.Linear)
    if kind == "linear":
        adapter.register_parameter("bias", None)
        with torch.no_grad():  # nn.init.eye_ makes a tensor on the default device, which may be meta
            adapter.weight.zero_().fill_diagonal_(1)
        return adapter
    nn.init.zeros_(adapter.weight)
    nn.init.zeros_(adapter.bias)
    return adapter.requires_grad_(False)


@torch.no_grad()
def set_whitening(adapter: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """Gives an adapter the whitening W [D, F] and b [D], rounded to its type."""
    adapter.weight.copy_(weight)
    adapter.bias.copy_(bias)
