"""Random views of a batch of images."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from coulomb.data.views.canvas import check_aspect, check_canvas, chunks, plain_view, to_float
from coulomb.data.views.describe import describe
from coulomb.data.views.geometry import Geometry
from coulomb.data.views.pixels import Blur, Colour, Cutout, Intensity, Noise, Solarise
from coulomb.data.views.spec import PRESETS, ViewSpec, check_fields
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


def make_views(preset: str | ViewSpec = "small-natural", size: int = 32, channels: int = 3, **overrides: Any) -> Views:
    """Views for ``channels``-channel images, ``size`` × ``size`` pixels each.

    ``preset`` is a name of `PRESETS` or a specification of your own; ``overrides`` are fields of `ViewSpec`, as in
    ``make_views("natural", size=96, blur=0)``. Saturation, hue and grey of a preset are left out where there are not
    three channels (``describe()`` says so). Raises InputError for an unknown preset or field, a value outside its
    range, or colour asked for by name where there is none.
    """
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise InputError(f"unknown views preset {preset!r}; the presets are {', '.join(PRESETS)}")
        spec, name = PRESETS[preset](), preset
    elif isinstance(preset, ViewSpec):
        spec, name = preset, None
    else:
        raise InputError(f"preset={preset!r}: give one of {', '.join(PRESETS)}, or a ViewSpec")
    check_fields(overrides)
    coloured = [field for field in ("saturation", "hue", "grey") if overrides.get(field)]
    if coloured and channels != 3:
        raise InputError(f"{coloured[0]}={overrides[coloured[0]]!r} needs three channels, these images have {channels}")
    return Views(replace(spec, **overrides), size, channels, name)


def views_from_config(config: dict[str, Any]) -> Views | TakingTurns:
    """The inverse of ``to_config`` for `Views` and `TakingTurns`. Raises InputError for anything else."""
    if "own" in config:
        raise InputError(
            f"these views were made by a function of yours, {config['own']!r}: pass it in again as OwnViews"
        )
    if "taking_turns" in config:
        return TakingTurns([views_from_config(part) for part in config["taking_turns"]])
    return Views.from_config(config)
