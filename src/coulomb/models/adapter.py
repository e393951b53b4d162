"""Adapters: linear maps of a backbone's features that are part of the encoder."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator, seeded_initialization
from coulomb.ground.reading import Shape, text, whole
from coulomb.models.heads import projection_head

KINDS = ("whitening", "linear", "unit")
ENTRIES = {"kind": text, "in": whole, "out": whole}
DESCRIPTION = Shape(
    "an object with kind, in and out",
    lambda value: (
        isinstance(value, dict)
        and value.keys() == ENTRIES.keys()
        and all(shape.fits(value[name]) for name, shape in ENTRIES.items())
    ),
)


def build_adapter(description: Mapping[str, Any], seed: int = 0) -> nn.Linear:
    """Builds an adapter, features x [B, in] → [B, out], from its description in ``encoder.json``.

    ==========  ==============================================================================
    kind        output
    ==========  ==============================================================================
    whitening   W x + b, which are constant (`coulomb.models.whitening`); 0 until `set_whitening`
    linear      A x with A [out, in], which is learned. With in = out it begins as the identity,
                so that the features of the first step are exactly the backbone's; else with
                orthonormal rows or columns, drawn from ``seed``
    unit        A x/‖x‖ + b, which are learned; A begins as that of linear, b as 0. For towers in
                one space: features of unit length can be centered, so that a closed form fits
    ==========  ==============================================================================

    A linear adapter works in the coordinates of the backbone, not in whitened ones: there, directions without meaning weigh
    as much as the others, and classifiers trained on a few labels get worse.

    Raises:
        InputError: the kind is unknown, or the adapter is too large.
    """
    kind, in_dim, out_dim = (description[name] for name in ENTRIES)
    if kind not in KINDS:
        raise InputError(f"adapter kind={kind!r}: must be one of {', '.join(KINDS)}")
    adapter = projection_head(in_dim, out_dim=out_dim, layers=1)[0]  # checks the sizes
    assert isinstance(adapter, nn.Linear)
    if kind != "whitening":
        if kind == "linear":
            adapter.register_parameter("bias", None)
        else:
            with seeded_initialization(seed, "adapter"):  # which leaves the global random state as it was
                adapter = UnitLinear(in_dim, out_dim)
            nn.init.zeros_(adapter.bias)
        with torch.no_grad():  # nn.init.eye_ makes a tensor on the default device, which may be meta
            if in_dim == out_dim:
                adapter.weight.zero_().fill_diagonal_(1)
            elif not adapter.weight.is_meta:
                nn.init.orthogonal_(adapter.weight, generator=generator(seed, "adapter"))
        return adapter
    nn.init.zeros_(adapter.weight)
    nn.init.zeros_(adapter.bias)
    return adapter.requires_grad_(False)


class UnitLinear(nn.Linear):
    """A x/‖x‖ + b; a row of zeros becomes b."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns the adapted features [B, out]."""
        return functional.linear(functional.normalize(input, dim=1), self.weight, self.bias)


@torch.no_grad()
def set_whitening(adapter: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """Gives an adapter the whitening W [D, F] and b [D], rounded to its type."""
    adapter.weight.copy_(weight)
    adapter.bias.copy_(bias)
