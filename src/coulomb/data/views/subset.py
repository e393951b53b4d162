"""An operation applied only to the samples that drew yes."""

from collections.abc import Callable

from torch import Tensor


def where_on(images: Tensor, on_B: Tensor, rows: slice, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Replace, in ``images`` [b, …] (rows ``rows`` of the batch), those that are on by ``change(part, which)``.

    ``on_B`` is bool [B] on the CPU; ``which`` are the chosen samples' places in the batch, on the CPU, to index
    parameters with. Changes ``images`` in place and returns it.
    """
    chosen = on_B[rows].nonzero()[:, 0]
    if len(chosen) == 0:
        return images
    which = chosen + rows.start
    if len(chosen) == len(images):
        return change(images, which)
    places = chosen.to(images.device)
    images[places] = change(images[places], which)
    return images
