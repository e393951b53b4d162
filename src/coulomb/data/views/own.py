"""Your own views: a function of yours, or several view makers by turns."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.data.views.canvas import check_canvas, to_float
from coulomb.data.views.plain import plain_view
from coulomb.data.views.views import ViewMaker, check_call
from coulomb.errors import InputError


class OwnViews:
    """Views by a function of yours.

    ``make(images, generator)`` takes float32 [B, C, size, size] in [0, 1] (the evaluation view, so never squashed) and
    returns one random view of the same shape in [0, 1]; draw from ``generator`` alone and runs can be repeated.

        views = OwnViews(lambda images, generator: images.flip(3), size=32, channels=3)
    """

    def __init__(self, make: Callable[[Tensor, torch.Generator], Tensor], size: int, channels: int) -> None:
        self.make = make
        self.size = size
        self.channels = channels

    def __call__(
        self, canvas: Tensor, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """``n`` views; raises InputError when the function returns another shape, or values outside [0, 1]."""
        check_call(generator, n)
        images = self.plain(canvas, aspect)
        views = []
        for _ in range(n):
            view = self.make(images.clone(), generator)
            if not isinstance(view, Tensor) or view.shape != images.shape:
                got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
                raise InputError(f"your views function returned {got}: it must return a tensor {tuple(images.shape)}")
            check_canvas(view, self.channels)
            views.append(to_float(view.detach()))
        return views

    def plain(self, canvas: Tensor, aspect: Tensor | None = None) -> Tensor:
        """The evaluation view, see `plain_view`."""
        check_canvas(canvas, self.channels)
        return plain_view(canvas, self.size, aspect)

    def describe(self) -> dict[str, Any]:
        """The function's name; what it does, only you know."""
        name = getattr(self.make, "__qualname__", type(self.make).__qualname__)
        return {"own": name, "size": self.size, "channels": self.channels}

    def to_config(self) -> dict[str, Any]:
        """As `describe`; a function cannot be re-created from a file, so pass it in again."""
        return self.describe()


class TakingTurns:
    """View k comes from maker k mod len(makers): asymmetric pairs as in BYOL, or crops of several sizes as in SwAV.

    ``plain``, ``size`` and ``channels`` are the first one's.
    """

    def __init__(self, makers: Sequence[ViewMaker]) -> None:
        if not makers or len({maker.channels for maker in makers}) != 1:
            raise InputError("TakingTurns needs at least one view maker, all for the same number of channels")
        self.makers = list(makers)
        self.size = self.makers[0].size
        self.channels = self.makers[0].channels

    def __call__(
        self, canvas: Tensor, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """``n`` views, drawn one after the other."""
        check_call(generator, n)
        return [self.makers[k % len(self.makers)](canvas, generator, 1, aspect)[0] for k in range(n)]

    def plain(self, canvas: Tensor, aspect: Tensor | None = None) -> Tensor:
        """The first maker's evaluation view."""
        return self.makers[0].plain(canvas, aspect)

    def describe(self) -> dict[str, Any]:
        """Each maker's description, in turn."""
        return {"taking_turns": [maker.describe() for maker in self.makers]}

    def to_config(self) -> dict[str, Any]:
        """Each maker's configuration, in turn."""
        return {"taking_turns": [maker.to_config() for maker in self.makers]}
