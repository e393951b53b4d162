"""What an encoder may return, brought to [B,F]."""

from torch import Tensor

from coulomb.errors import InputError


def pooled(output: object, batch: int, name: str) -> Tensor:
    """[B,F] as it is; maps [B,F,h,w] averaged over h and w; anything else is an `InputError`."""
    if not isinstance(output, Tensor):
        raise InputError(
            f"{name} returned a {type(output).__name__}; an encoder returns one tensor [B,F] or [B,F,h,w]: "
            "wrap it in a module whose forward picks that tensor."
        )
    if output.ndim not in (2, 4) or output.shape[0] != batch:
        raise InputError(
            f"{name} returned a tensor of shape {list(output.shape)} for {batch} images; an encoder returns [B,F] or "
            "maps [B,F,h,w] (averaged over h and w): wrap it in a module that pools its output."
        )
    return output if output.ndim == 2 else output.mean(dim=(2, 3))
