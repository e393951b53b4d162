"""Adapters: small maps of an encoder's features that are part of the encoder."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.models.heads import projection_head
from coulomb.reading import Shape, maybe, text, whole

ENTRIES = {"kind": text, "in": whole, "out": whole, "layers": whole, "hidden_dim": maybe(whole)}
DESCRIPTION = Shape(
    "an object with kind, in, out, layers and hidden_dim",
    lambda value: (
        isinstance(value, dict)
        and value.keys() == ENTRIES.keys()
        and all(shape.fits(value[name]) for name, shape in ENTRIES.items())
    ),
)


def describe_adapter(in_dim: int, out_dim: int, *, layers: int = 1, hidden_dim: int | None = None) -> dict[str, Any]:
    """Returns the description of an adapter, features [B, in_dim] → [B, out_dim], for `build_adapter` and ``encoder.json``.

    ``linear`` (one layer) is W x + b; ``mlp`` (more) is `coulomb.models.projection_head` with batch norm.
    """
    kind = "linear" if layers == 1 else "mlp"
    return {"kind": kind, "in": in_dim, "out": out_dim, "layers": layers, "hidden_dim": hidden_dim}


def build_adapter(description: Mapping[str, Any], seed: int = 0) -> nn.Sequential:
    """Builds an adapter; its weights are drawn from ``seed``.

    Raises:
        InputError: the description is of an unknown kind, contradicts itself, or is too large.
    """
    kind, layers = description["kind"], description["layers"]
    if kind not in ("linear", "mlp") or (kind == "linear") is not (layers == 1):
        raise InputError(f"adapter kind={kind!r} with layers={layers}: must be linear with 1 layer, or mlp with more")
    return projection_head(
        description["in"], out_dim=description["out"], layers=layers, hidden_dim=description["hidden_dim"], seed=seed
    )


@torch.no_grad()
def set_linear(adapter: nn.Sequential, weight: Tensor, bias: Tensor) -> None:
    """Gives a linear adapter the weight [D, F] and bias [D], rounded to its type."""
    adapter[0].weight.copy_(weight)  # type: ignore[operator]
    adapter[0].bias.copy_(bias)  # type: ignore[operator]
