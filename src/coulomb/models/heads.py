"""Projection head and predictor, the heads between features and loss; they are discarded after training."""

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import seeded_initialization
from coulomb.models.backbones import LARGEST, LARGEST_NETWORK


def projection_head(
    in_dim: int,
    *,
    hidden_dim: int | None = None,
    out_dim: int = 128,
    layers: int = 2,
    batch_norm: bool = True,
    last_batch_norm: bool = False,
    last_scale: bool = True,
    seed: int = 0,
) -> nn.Sequential:
    """Projection head, features [B, in_dim] → embeddings [B, out_dim]; the losses normalize embeddings to unit length.

    It is (Linear – BatchNorm – ReLU) × (layers − 1) – Linear. ``hidden_dim`` defaults to ``in_dim``. Weights are drawn from
    ``seed``.

    ==========================  =====================================================================
    SimCLR, as in the paper     the defaults; v2 on ImageNet: layers=3
    SimCLR, its authors' code   last_batch_norm=True (a last BatchNorm with a scale and no shift)
    SupCon                      batch_norm=False, hidden_dim=2048: 2048–2048–128 on a ResNet-50
    MoCo v2                     batch_norm=False
    SimSiam                     layers=3, last_batch_norm=True, last_scale=False (its last BatchNorm only normalizes)
    a linear head               layers=1
    the identity                layers=0, which requires out_dim = in_dim
    ==========================  =====================================================================

    A Linear before a BatchNorm has no bias, which the BatchNorm would remove. Raises `InputError` for a size below 1, more
    than 128 layers or more than 2³¹ parameters.

    >>> projection_head(64, out_dim=16)(torch.rand(4, 64)).shape
    torch.Size([4, 16])
    """
    if layers == 0 and in_dim == out_dim:
        return nn.Sequential()
    hidden = in_dim if hidden_dim is None else hidden_dim
    for name, value in (("in_dim", in_dim), ("hidden_dim", hidden), ("out_dim", out_dim), ("layers", layers)):
        if value < 1:
            raise InputError(f"{name}={value} must be at least 1")
    if layers > LARGEST["depth"] or in_dim * hidden + (layers - 2) * hidden**2 + hidden * out_dim > LARGEST_NETWORK:
        raise InputError(
            f"layers={layers}, hidden_dim={hidden}, out_dim={out_dim}: a projection head has at most "
            f"{LARGEST['depth']} layers and {LARGEST_NETWORK:.2g} parameters; make it smaller"
        )
    with seeded_initialization(seed, "projection head"):
        parts: list[nn.Module] = []
        width = in_dim
        for _ in range(layers - 1):
            parts.append(nn.Linear(width, hidden, bias=not batch_norm))
            if batch_norm:
                parts.append(nn.BatchNorm1d(hidden))
            parts.append(nn.ReLU(inplace=True))
            width = hidden
        parts.append(nn.Linear(width, out_dim, bias=not last_batch_norm))
        if last_batch_norm:
            parts.append(scale_only_batch_norm(out_dim) if last_scale else nn.BatchNorm1d(out_dim, affine=False))
        return nn.Sequential(*parts)


def predictor(dim: int, *, hidden_dim: int, batch_norm: bool = True, seed: int = 0) -> nn.Sequential:
    """Predictor of the embeddings of the other view, [B, dim] → [B, dim]: Linear – BatchNorm – ReLU – Linear.

    ``hidden_dim`` is 4096 for 256 dimensions in BYOL, and a bottleneck of 512 for 2048 in SimSiam. Weights are drawn from
    ``seed``. Raises `InputError` for a size below 1.

    >>> predictor(64, hidden_dim=16)(torch.rand(4, 64)).shape
    torch.Size([4, 64])
    """
    for name, value in (("dim", dim), ("hidden_dim", hidden_dim)):
        if value < 1:
            raise InputError(f"{name}={value} must be at least 1")
    with seeded_initialization(seed, "predictor"):
        norm = [nn.BatchNorm1d(hidden_dim)] if batch_norm else []
        first = nn.Linear(dim, hidden_dim, bias=not batch_norm)
        return nn.Sequential(first, *norm, nn.ReLU(inplace=True), nn.Linear(hidden_dim, dim))


def scale_only_batch_norm(width: int) -> nn.BatchNorm1d:
    """BatchNorm with a learned scale and a shift of zero."""
    norm = nn.BatchNorm1d(width)
    norm.bias.requires_grad_(False)
    return norm
