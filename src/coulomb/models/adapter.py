"""Adapters: small maps of a frozen backbone's features that are part of the encoder."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.models.heads import projection_head
from coulomb.reading import Shape, maybe, text, whole

KINDS = ("whitening", "linear", "mlp")  # with 0, 1 and more layers
ENTRIES = {"kind": text, "in": whole, "out": whole, "layers": whole, "hidden_dim": maybe(whole)}
DESCRIPTION = Shape(
    "an object with kind, in, out, layers and hidden_dim",
    lambda value: (
        isinstance(value, dict)
        and value.keys() == ENTRIES.keys()
        and all(shape.fits(value[name]) for name, shape in ENTRIES.items())
    ),
)


def describe_adapter(in_dim: int, out_dim: int, layers: int, hidden_dim: int | None = None) -> dict[str, Any]:
    """Returns the description of an adapter for `build_adapter` and ``encoder.json``."""
    kind = KINDS[min(layers, 2)]
    return {"kind": kind, "in": in_dim, "out": out_dim, "layers": layers, "hidden_dim": hidden_dim}


def build_adapter(description: Mapping[str, Any], seed: int = 0) -> nn.Sequential:
    """Builds an adapter, features x [B, in] → [B, out].

    ==========  ======  ================================================================================
    kind        layers  output
    ==========  ======  ================================================================================
    whitening   0       W x + b, which are constant (`coulomb.models.whitening`); 0 until `set_whitening`
    linear      1       A (W x + b) + c, where A begins as the identity and c as 0
    mlp         2, …    `coulomb.models.projection_head` of W x + b, with random weights drawn from ``seed``
    ==========  ======  ================================================================================

    Training in whitened coordinates is well conditioned, and a linear adapter begins as the whitening itself.

    Raises:
        InputError: the kind is unknown or does not match the layers, or the adapter is too large.
    """
    in_dim, dim, layers = description["in"], description["out"], description["layers"]
    if description["kind"] != KINDS[min(layers, 2)]:
        raise InputError(
            f"adapter kind={description['kind']!r} with layers={layers}: must be whitening with 0 layers, linear with 1, "
            "or mlp with more"
        )
    whitening = projection_head(in_dim, out_dim=dim, layers=1)[0].requires_grad_(False)  # checks the sizes
    nn.init.zeros_(whitening.weight)  # type: ignore[arg-type]
    nn.init.zeros_(whitening.bias)  # type: ignore[arg-type]
    head = projection_head(dim, out_dim=dim, layers=layers, hidden_dim=description["hidden_dim"], seed=seed)
    if layers == 1:
        nn.init.eye_(head[0].weight)  # type: ignore[arg-type]
        nn.init.zeros_(head[0].bias)  # type: ignore[arg-type]
    return nn.Sequential(whitening, *head)


@torch.no_grad()
def set_whitening(adapter: nn.Sequential, weight: Tensor, bias: Tensor) -> None:
    """Gives an adapter the whitening W [D, F] and b [D], rounded to its type."""
    adapter[0].weight.copy_(weight)  # type: ignore[operator]
    adapter[0].bias.copy_(bias)  # type: ignore[operator]
