"""What every loss asks of its arguments: shapes, finite values, unit rows, labels; and how it reduces its result."""

import torch
from torch import Tensor

from coulomb.checked import readable, warn
from coulomb.losses.unit_rows import rows_of

REDUCTIONS = ("mean", "sum", "none")
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # what labels may be


def checked_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """``value`` if it is one of ``choices``; else an error naming the argument."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def embeddings(
    name: str, value: Tensor, *, normalize: bool, ndim: tuple[int, ...] = (2,), like: Tensor | None = None
) -> Tensor:
    """Checked rows, in fp32 or wider, of unit length if ``normalize``.

    A row of zeros has no direction: it stays zero, gets no gradient, and is counted in a warning.

    Raises:
        TypeError: not a floating tensor.
        ValueError: wrong number of dimensions, empty, another device or width than ``like``, NaN or infinite values
            (checked at each call by the norms; on a GPU this waits for the device).
    """
    check_shape(name, value, ndim=ndim, like=like)
    return rows_of((name,), value, normalize=normalize)


def paired_embeddings(names: tuple[str, str], first: Tensor, second: Tensor, *, normalize: bool) -> Tensor:
    """The rows of two tensors [N, D] of equal shape, one after the other, [2N, D]; otherwise as `embeddings`."""
    check_pair(names, first, second)
    if first.dtype != second.dtype:
        wide = torch.promote_types(first.dtype, second.dtype)
        first, second = first.to(wide), second.to(wide)
    return rows_of(names, torch.cat([first, second]), normalize=normalize, fresh=True)


def check_pair(names: tuple[str, str], first: Tensor, second: Tensor) -> None:
    """Two tensors [N, D] of equal shape, with a sample at least."""
    check_shape(names[0], first)
    check_shape(names[1], second, like=first)
    if first.shape != second.shape:
        raise ValueError(f"{names[1]} has shape {tuple(second.shape)}, {names[0]} {tuple(first.shape)}: they are pairs")
    require_batch(names[0], first)


def check_shape(name: str, value: Tensor, *, ndim: tuple[int, ...] = (2,), like: Tensor | None = None) -> None:
    """A floating tensor with the right number of dimensions, and the device and width of ``like``."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(value, 'dtype', type(value).__name__)}")
    if value.layout is not torch.strided:
        require_dense(name, value)
    if value.ndim not in ndim:
        shapes = " or ".join(f"{n}" for n in ndim)
        raise ValueError(f"{name} must have {shapes} dimensions, got shape {tuple(value.shape)}")
    if value.shape[-1] == 0:
        raise ValueError(f"{name} has no dimensions: shape {tuple(value.shape)}")
    if like is not None and value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, the other features on {like.device}")
    if like is not None and value.shape[-1] != like.shape[-1]:
        raise ValueError(f"{name} has {value.shape[-1]} dimensions, the other features {like.shape[-1]}")


def require_dense(name: str, value: Tensor) -> None:
    """An ordinary strided tensor."""
    if value.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {value.layout}; use {name}.to_dense()")


def checked_labels(labels: Tensor, length: int, like: Tensor) -> Tensor:
    """Integer class labels [B], −1 for unknown (values are checked only where they are `readable`)."""
    labels = label_tensor(labels, length, like)
    if length and readable(labels) and int(labels.min()) < -1:
        raise below_unknown(int(labels.min()))
    return labels


def flat_labels(labels: Tensor) -> Tensor:
    """Labels given as a column [B, 1], as in the authors' code of SupCon, as [B]; anything else as it is."""
    return labels.squeeze(1) if isinstance(labels, Tensor) and labels.ndim == 2 and labels.shape[1] == 1 else labels


def label_tensor(labels: Tensor, length: int, like: Tensor) -> Tensor:
    """Integers [B], also from a column [B, 1]; their values are not read."""
    labels = flat_labels(labels)
    if not isinstance(labels, Tensor) or labels.dtype not in WHOLE:
        raise TypeError(f"labels must be an integer tensor, got {getattr(labels, 'dtype', type(labels).__name__)}")
    if labels.layout is not torch.strided:
        require_dense("labels", labels)
    if labels.shape != (length,):
        raise ValueError(f"labels must have shape [{length}], one for each sample, got {tuple(labels.shape)}")
    if labels.device != like.device:
        raise ValueError(f"labels is on {labels.device}, features on {like.device}")
    return labels.long()


def below_unknown(least: int) -> ValueError:
    """What is wrong with a label below −1."""
    return ValueError(f"labels must be classes from 0, or −1 for unknown; got {least}")


def require_batch(name: str, value: Tensor) -> None:
    """At least one sample."""
    if len(value) == 0:
        raise ValueError(f"{name} is an empty batch: shape {tuple(value.shape)}")


def warn_counted(count: int, total: int, what: str) -> None:
    """A visible, counted `CoulombWarning`."""
    warn(f"{count} of {total} {what}")


def reduced(loss_N: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or the values themselves."""
    if reduction == "none":
        return loss_N
    return loss_N.mean() if reduction == "mean" else loss_N.sum()
