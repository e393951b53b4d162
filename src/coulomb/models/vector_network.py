"""Encoders of vectors: standardization, a perceptron or the identity, and perhaps an adapter."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.randomness import seeded_initialization
from coulomb.models.backbones import LARGEST_SIZE
from coulomb.models.encoder import Encoder


class Standardization(nn.Module):
    """Maps vectors [B, F] to (x − mean) / std per value. It is saved with the encoder.

    Args:
        dim: F.
        mean: [F]; default 0.
        std: [F], positive; default 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        super().__init__()
        for name, values, default in (("mean", mean, 0.0), ("std", std, 1.0)):
            numbers = torch.full((dim,), default) if values is None else torch.as_tensor(values, dtype=torch.float32)
            if numbers.shape != (dim,):
                raise InputError(
                    f"{name} has shape {list(numbers.shape)} and must have one number for each of {dim} values"
                )
            if not numbers.is_meta and not bool(numbers.isfinite().all()):
                raise InputError(f"{name}: has values that are NaN or infinite; leave those columns out")
            self.register_buffer(name, numbers.clone())
        if not self.std.is_meta and not bool((self.std > 0).all()):
            raise InputError("std: must be positive; leave constant columns out, or set their std to 1")

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns the standardized vectors."""
        return (vectors - self.mean) / self.std


class VectorNetwork(Encoder):
    """Maps vectors [B, in] to features [B, F] by standardization, a backbone and perhaps an adapter.

    Vector networks are made by `build_vector_encoder`.

    Attributes:
        standardize: the standardization.

    Shape:
        vectors: [B, in].
        output: [B, F].

    >>> build_vector_encoder("mlp", dim=5, width=16)(torch.rand(3, 5)).shape
    torch.Size([3, 16])
    """

    cells = "vectors"
    statistics = "standardize"

    def __init__(
        self, backbone: nn.Module, standardize: Standardization, *, feature_dim: int, config: Mapping[str, Any]
    ) -> None:
        super().__init__(backbone, feature_dim=feature_dim, config=config, column="vector")
        self.standardize = standardize

    @property
    def dim(self) -> int:
        """Values of a vector."""
        return self.config["dim"]

    def description(self) -> dict[str, Any]:
        """Returns the standardization."""
        return {"mean": self.standardize.mean.tolist(), "std": self.standardize.std.tolist()}

    def backbone_pass(self, cells: Tensor) -> Tensor:
        """Returns the features [B, F'] of vectors [B, in]; raises `InputError` for another shape or type."""
        if not isinstance(cells, Tensor) or cells.ndim != 2 or cells.shape[1] != self.dim:
            what = (
                f"a tensor of shape {list(cells.shape)}" if isinstance(cells, Tensor) else f"a {type(cells).__name__}"
            )
            raise InputError(f"vectors: {self.name} takes a tensor [B, {self.dim}], got {what}")
        features: Tensor = self.backbone(self.standardize(cells.to(self.standardize.mean.dtype)))
        return features

    def trial_cells(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns vectors of zeros, or normally distributed ones."""
        shape = count, self.dim
        return torch.zeros(shape) if generator is None else torch.randn(shape, generator=generator)


NAMES = ("mlp", "identity")


def build_vector_encoder(
    name: str,
    *,
    dim: int,
    width: int = 256,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
) -> VectorNetwork:
    """Builds an encoder of vectors by name.

    ========  ========  ========================================================
    name      features  network
    ========  ========  ========================================================
    mlp       width     Linear – LayerNorm – GELU – Linear, both of ``width``
    identity  dim       none
    ========  ========  ========================================================

    Args:
        name: from the table.
        dim: values of a vector.
        width: features of mlp.
        mean: [dim], of the training vectors; default 0.
        std: [dim], of the training vectors; default 1.
        seed: seed of the random weights. The global random state is neither used nor changed.

    Raises:
        InputError: the name is unknown, or a size or a statistic is out of range.

    >>> build_vector_encoder("identity", dim=5).feature_dim
    5
    """
    with seeded_initialization(seed, "encoder", name):
        return assemble_vectors(name, dim=dim, width=width, mean=mean, std=std)


def assemble_vectors(
    name: str, *, dim: int, width: int, mean: Sequence[float] | None, std: Sequence[float] | None
) -> VectorNetwork:
    """Builds an architecture with the current generator and device, so that loading need not initialize weights."""
    if name not in NAMES:
        raise InputError(f"encoder={name!r}: of vectors must be one of {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
    for what, size in (("dim", dim), ("width", width)):
        if not 1 <= size <= LARGEST_SIZE:
            raise InputError(f"{what}={size}: must be from 1 to {LARGEST_SIZE}")
    backbone: nn.Module = nn.Identity()
    if name == "mlp":
        backbone = nn.Sequential(nn.Linear(dim, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))
    config = {"cells": VectorNetwork.cells, "kind": "built-in", "name": name, "dim": dim, "options": {"width": width}}
    features = width if name == "mlp" else dim
    return VectorNetwork(backbone, Standardization(dim, mean, std), feature_dim=features, config=config)
