"""Random views of a batch: the specification turned into tensor operations."""

from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from coulomb.data.views.blur import Blur
from coulomb.data.views.canvas import check_aspect, check_canvas, to_float
from coulomb.data.views.chunks import chunks
from coulomb.data.views.colour import Colour, Intensity
from coulomb.data.views.cutout import Cutout
from coulomb.data.views.describe import describe
from coulomb.data.views.geometry import Geometry
from coulomb.data.views.noise import Noise
from coulomb.data.views.plain import plain_view
from coulomb.data.views.solarise import Solarise
from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.uniforms import Uniforms
from coulomb.errors import InputError

Operation = Callable[[Tensor, slice], Tensor]


class ViewMaker(Protocol):
    """What training asks of views; `Views`, `OwnViews` and `TakingTurns` are ones, and yours may be."""

    size: int
    channels: int

    def __call__(
        self, canvas: Tensor, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """``n`` random views, each float32 [B, C, size, size] in [0, 1]."""

    def plain(self, canvas: Tensor, aspect: Tensor | None = None) -> Tensor:
        """The evaluation view."""

    def describe(self) -> dict[str, Any]:
        """For people, json-able."""

    def to_config(self) -> dict[str, Any]:
        """For files, json-able."""


class Views:
    """``views(canvas, generator, n=2, aspect=None)`` → ``n`` random views of every image, on the canvas' device.

    Args of a call:
        canvas: uint8, or floats in [0, 1], [B, C, H, W]; the whole image, squashed if ``aspect`` says so. Not modified.
        generator: a CPU generator, the only source of randomness; its state moves on.
        n: how many views.
        aspect: [B], width/height of the originals; None: the canvases are not squashed.

    A call returns a list of ``n`` float32 [B, C, size, size] in [0, 1], without gradient and untouched by autocast.
    Raises InputError for anything else handed over.
    """

    def __init__(self, spec: ViewSpec, size: int = 32, channels: int = 3, preset: str | None = None) -> None:
        for name, value in (("size", size), ("channels", channels)):
            if isinstance(value, bool) or not isinstance(value, int) or value < (2 if name == "size" else 1):
                raise InputError(f"{name}={value!r}: give a whole number, at least {2 if name == 'size' else 1}")
        self.spec = spec
        self.size = size
        self.channels = channels
        self.preset = preset

    @torch.no_grad()
    def __call__(
        self, canvas: Tensor, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """``n`` random views, each float32 [B, C, size, size] in [0, 1]."""
        check_canvas(canvas, self.channels)
        check_call(generator, n)
        aspect_B = check_aspect(aspect, canvas)
        with torch.autocast(canvas.device.type, enabled=False):
            return [self._view(canvas, generator, aspect_B) for _ in range(n)]

    def _view(self, canvas: Tensor, generator: torch.Generator, aspect_B: Tensor) -> Tensor:
        batch, channels, height, width = canvas.shape
        uniforms = Uniforms(batch, self.spec.elastic_grid, generator)
        geometry = Geometry(self.spec, uniforms, aspect_B, self.size)
        operations = self.operations(uniforms)
        out = torch.empty(batch, channels, self.size, self.size, device=canvas.device, dtype=torch.float32)
        for rows in chunks(batch, channels * max(height * width, self.size**2), canvas.device):
            images = geometry(to_float(canvas[rows]), rows)
            for operation in operations:
                images = operation(images, rows)
            # Bilinear weights may sum to 1 + 1e-7.
            torch.clamp(images, 0, 1, out=out[rows])
        return out

    def operations(self, uniforms: Uniforms) -> list[Operation]:
        """What follows the geometry, in order, every parameter already drawn."""
        spec = self.spec
        made: list[Operation] = []
        if self.channels == 3 and (spec.jitter > 0 or spec.grey > 0):
            made.append(Colour(spec, uniforms))
        if self.channels != 3 and spec.jitter > 0:
            made.append(Intensity(spec, uniforms))
        if spec.blur > 0:
            made.append(Blur(spec, uniforms, self.size))
        if spec.solarise > 0:
            made.append(Solarise(spec, uniforms))
        if spec.noise > 0:
            made.append(Noise(spec, uniforms, self.channels, self.size))
        if spec.cutout > 0:
            made.append(Cutout(spec, uniforms, self.size))
        return made

    def plain(self, canvas: Tensor, aspect: Tensor | None = None) -> Tensor:
        """The evaluation view, see `plain_view`."""
        check_canvas(canvas, self.channels)
        return plain_view(canvas, self.size, aspect)

    def describe(self) -> dict[str, Any]:
        """Operations in order with probability, range and unit, and what was left out for want of three channels."""
        return {"preset": self.preset, **describe(self.spec, self.size, self.channels)}

    def to_config(self) -> dict[str, Any]:
        """Everything that `from_config` needs, json-able."""
        return {"preset": self.preset, "size": self.size, "channels": self.channels, "spec": self.spec.to_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `to_config`. Raises InputError for a missing or unknown entry."""
        missing = {"size", "channels", "spec"} - set(config)
        if missing:
            raise InputError(f"the views' configuration lacks {', '.join(sorted(missing))}: write it with to_config()")
        return cls(ViewSpec.from_config(config["spec"]), config["size"], config["channels"], config.get("preset"))


def check_call(generator: torch.Generator, n: int) -> None:
    """Raise InputError unless ``generator`` draws on the CPU and ``n`` is a positive whole number."""
    if not isinstance(generator, torch.Generator):
        raise InputError(f"generator is {generator!r}: give a torch.Generator, e.g. coulomb.randomness.generator(seed)")
    if generator.device.type != "cpu":
        raise InputError(
            f"generator is on {generator.device}: give a CPU one, so that a seed means the same everywhere"
        )
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n={n!r} views: give a whole number, at least 1")
