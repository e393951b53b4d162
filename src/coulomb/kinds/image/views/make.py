"""Makes random views of a batch of images: from a specification, by a user's function, or alternating."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.image.image import Canvases
from coulomb.kinds.image.views.canvas import check_aspect, check_canvas, chunks, plain_view, to_float, unstacked
from coulomb.kinds.image.views.describe import describe
from coulomb.kinds.image.views.geometry import Geometry
from coulomb.kinds.image.views.pixels import Blur, Color, Cutout, Intensity, Noise, Solarize
from coulomb.kinds.image.views.spec import PRESETS, ViewSpec, check_fields
from coulomb.kinds.image.views.uniforms import Uniforms
from coulomb.kinds.kind import Share

Operation = Callable[[Tensor, slice], Tensor]


class ViewMaker(Protocol):
    """The interface of views that training uses. `Views`, `OwnViews` and `TakingTurns` implement it.

    With several processes, views that have a true attribute ``by_row`` are called with one more argument, ``share``
    (`Share`), and draw the parameters of an image by its position in the batch of all processes.
    """

    size: int
    channels: int

    def __call__(
        self, canvas: Tensor | Canvases, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """Returns ``n`` random views, each float32 [B, C, S, S] in [0, 1]; S may differ from ``size``."""

    def plain(self, canvas: Tensor | Canvases, aspect: Tensor | None = None) -> Tensor:
        """Returns the evaluation view."""

    def describe(self) -> dict[str, Any]:
        """Returns a description for display, JSON-serializable."""

    def to_config(self) -> dict[str, Any]:
        """Returns a configuration for files, JSON-serializable."""


class Views:
    """Random views by a specification: ``views(canvas, generator, n=2, aspect=None)``.

    Args:
        spec: the specification.
        size: side of the evaluation view in pixels, and of the random views if ``spec.side`` is 1.
        channels: channels of the images.
        preset: name of the specification, for display.

    >>> views = Views(ViewSpec(flip=0.5), size=8, channels=1)
    >>> made = views(torch.rand(4, 1, 8, 8), torch.Generator().manual_seed(0), n=2)
    >>> [view.shape for view in made]
    [torch.Size([4, 1, 8, 8]), torch.Size([4, 1, 8, 8])]
    """

    by_row = True

    def __init__(self, spec: ViewSpec, size: int = 32, channels: int = 3, preset: str | None = None) -> None:
        for name, value in (("size", size), ("channels", channels)):
            if isinstance(value, bool) or not isinstance(value, int) or value < (2 if name == "size" else 1):
                raise InputError(f"{name}={value!r}: must be a whole number of at least {2 if name == 'size' else 1}")
        self.spec = spec
        self.size = size
        self.drawn_size = max(2, round(spec.side * size))
        self.channels = channels
        self.preset = preset

    @torch.no_grad()
    def __call__(
        self,
        canvas: Tensor | Canvases,
        generator: torch.Generator,
        n: int = 2,
        aspect: Tensor | None = None,
        share: Share | None = None,
    ) -> list[Tensor]:
        """Returns ``n`` random views of every image, on the device of the canvas.

        Args:
            canvas: the whole image, [B, C, H, W], uint8 or floats in [0, 1], or a stack of them; it is not modified.
            generator: a CPU generator, the only source of randomness.
            n: number of views.
            aspect: original width/height [B]; default: of the canvas.
            share: the rows of a larger batch that the images are, see `Uniforms`; default: they are the whole batch.

        Returns:
            A list of ``n`` tensors float32 [B, C, S, S] in [0, 1], S = ``size`` · ``spec.side`` rounded, without gradient.
            Autocast has no effect.

        Raises:
            InputError: an argument has a wrong type, shape or range.
        """
        canvas, aspect = unstacked(canvas, aspect)
        check_canvas(canvas, self.channels)
        check_call(generator, n)
        aspect_B = check_aspect(aspect, canvas)
        with torch.autocast(canvas.device.type, enabled=False):
            return [self._view(canvas, generator, aspect_B, share) for _ in range(n)]

    def _view(self, canvas: Tensor, generator: torch.Generator, aspect_B: Tensor, share: Share | None) -> Tensor:
        batch, channels, height, width = canvas.shape
        uniforms = Uniforms(batch, self.spec.elastic_grid, generator, share)
        size = self.drawn_size
        geometry = Geometry(self.spec, uniforms, aspect_B, size)
        operations = self.operations(uniforms)
        out = torch.empty(batch, channels, size, size, device=canvas.device, dtype=torch.float32)
        for rows in chunks(batch, channels * max(height * width, size**2), canvas.device):
            images = geometry(to_float(canvas[rows]), rows)
            for operation in operations:
                images = operation(images, rows)
            # Bilinear weights may sum to 1 + 1e-7.
            torch.clamp(images, 0, 1, out=out[rows])
        return out

    def operations(self, uniforms: Uniforms) -> list[Operation]:
        """Returns the operations that follow the geometry, in order, with their parameters drawn."""
        spec = self.spec
        operations: list[Operation] = []
        if self.channels == 3 and (spec.jitter > 0 or spec.gray > 0):
            operations.append(Color(spec, uniforms))
        if self.channels != 3 and spec.jitter > 0:
            operations.append(Intensity(spec, uniforms))
        if spec.blur > 0:
            operations.append(Blur(spec, uniforms, self.drawn_size))
        if spec.solarize > 0:
            operations.append(Solarize(spec, uniforms))
        if spec.noise > 0:
            operations.append(Noise(spec, uniforms, self.channels, self.drawn_size))
        if spec.cutout > 0:
            operations.append(Cutout(spec, uniforms, self.drawn_size))
        return operations

    def plain(self, canvas: Tensor | Canvases, aspect: Tensor | None = None) -> Tensor:
        """The evaluation view, see `plain_view`."""
        canvas, aspect = unstacked(canvas, aspect)
        check_canvas(canvas, self.channels)
        return plain_view(canvas, self.size, aspect)

    def describe(self) -> dict[str, Any]:
        """Describes operations by probability, range and unit, and lists those that need three channels and are left out."""
        return {"preset": self.preset, **describe(self.spec, self.drawn_size, self.channels)}

    def to_config(self) -> dict[str, Any]:
        """Returns the argument of `from_config`, JSON-serializable."""
        return {"preset": self.preset, "size": self.size, "channels": self.channels, "spec": self.spec.to_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Inverse of `to_config`. Raises InputError for a missing or unknown entry."""
        missing = {"size", "channels", "spec"} - set(config)
        if missing:
            raise InputError(
                f"the configuration of the views has no {', '.join(sorted(missing))}: write it by to_config()"
            )
        return cls(ViewSpec.from_config(config["spec"]), config["size"], config["channels"], config.get("preset"))


def check_call(generator: torch.Generator, n: int) -> None:
    """Raises InputError unless ``generator`` is on the CPU and ``n`` is a positive whole number."""
    if not isinstance(generator, torch.Generator):
        raise InputError(
            f"generator is {generator!r}: must be a torch.Generator, e.g. coulomb.ground.randomness.generator(seed)"
        )
    if generator.device.type != "cpu":
        raise InputError(
            f"generator is on {generator.device}: must be on the CPU, so that a seed gives the same views on any device"
        )
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n={n!r} views: must be a whole number of at least 1")


class OwnViews:
    """Views by a user's function.

    Example:
        views = OwnViews(lambda images, generator: images.flip(3), size=32, channels=3)

    Args:
        make: maps the evaluation view, float32 [B, C, size, size] in [0, 1], and a generator to one random view of the same
            shape in [0, 1]. Runs are reproducible if it draws from the generator only.
        size: size of the views in pixels.
        channels: channels of the images.
    """

    def __init__(self, make: Callable[[Tensor, torch.Generator], Tensor], size: int, channels: int) -> None:
        self.make = make
        self.size = size
        self.channels = channels

    def __call__(
        self, canvas: Tensor | Canvases, generator: torch.Generator, n: int = 2, aspect: Tensor | None = None
    ) -> list[Tensor]:
        """Returns ``n`` views; raises InputError if the function returns another shape or values outside [0, 1]."""
        check_call(generator, n)
        images = self.plain(canvas, aspect)
        views = []
        for _ in range(n):
            view = self.make(images.clone(), generator)
            if not isinstance(view, Tensor) or view.shape != images.shape:
                got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
                raise InputError(f"the views function returned {got}: it must return a tensor {tuple(images.shape)}")
            check_canvas(view, self.channels)
            views.append(to_float(view.detach()))
        return views

    def plain(self, canvas: Tensor | Canvases, aspect: Tensor | None = None) -> Tensor:
        """The evaluation view, see `plain_view`."""
        canvas, aspect = unstacked(canvas, aspect)
        check_canvas(canvas, self.channels)
        return plain_view(canvas, self.size, aspect)

    def describe(self) -> dict[str, Any]:
        """Returns the name of the function, which is all that is known about it."""
        name = getattr(self.make, "__qualname__", type(self.make).__qualname__)
        return {"own": name, "size": self.size, "channels": self.channels}

    def to_config(self) -> dict[str, Any]:
        """The same as `describe`: a function cannot be restored from a file and must be passed again."""
        return self.describe()


class TakingTurns:
    """Alternating views: view k is made by maker k mod len(makers).

    This gives asymmetric pairs as in BYOL, or crops of several sizes as in SwAV. ``plain``, ``size`` and ``channels`` are
    those of the first maker.

    >>> views = TakingTurns([make_views("natural", size=32), make_views("natural", size=32, blur=0)])
    >>> views.size
    32
    """

    def __init__(self, makers: Sequence[ViewMaker]) -> None:
        if not makers or len({maker.channels for maker in makers}) != 1:
            raise InputError("TakingTurns needs at least one view maker, and all must have the same number of channels")
        self.makers = list(makers)
        self.size = self.makers[0].size
        self.channels = self.makers[0].channels
        self.by_row = all(getattr(maker, "by_row", False) for maker in self.makers)

    def __call__(
        self,
        canvas: Tensor | Canvases,
        generator: torch.Generator,
        n: int = 2,
        aspect: Tensor | None = None,
        share: Share | None = None,
    ) -> list[Tensor]:
        """Returns ``n`` views, drawn one after the other; with ``share``, all makers must take it."""
        check_call(generator, n)
        shared = {} if share is None else {"share": share}
        return [self.makers[k % len(self.makers)](canvas, generator, 1, aspect, **shared)[0] for k in range(n)]

    def plain(self, canvas: Tensor | Canvases, aspect: Tensor | None = None) -> Tensor:
        """Returns the evaluation view of the first maker."""
        return self.makers[0].plain(canvas, aspect)

    def describe(self) -> dict[str, Any]:
        """Returns the descriptions of all makers."""
        return {"taking_turns": [maker.describe() for maker in self.makers]}

    def to_config(self) -> dict[str, Any]:
        """Returns the configurations of all makers."""
        return {"taking_turns": [maker.to_config() for maker in self.makers]}


def make_views(preset: str | ViewSpec = "small-natural", size: int = 32, channels: int = 3, **overrides: Any) -> Views:
    """Makes `Views` by name, as in ``make_views("natural", size=96, blur=0)``.

    Args:
        preset: a name of `PRESETS`, or a `ViewSpec`. Its saturation, hue and gray are left out for images that do not have
            three channels, and ``describe()`` lists them.
        size: side of the evaluation view in pixels, and of the random views unless ``side`` is given.
        channels: channels of the images.
        overrides: fields of `ViewSpec`.

    Raises:
        InputError: the preset or a field is unknown, a value is outside its range, or ``overrides`` hold a color operation
            for images that do not have three channels.

    >>> make_views("natural", size=96, blur=0).size
    96
    """
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise InputError(f"unknown views preset {preset!r}; the presets are {', '.join(PRESETS)}")
        spec, name = PRESETS[preset](), preset
    elif isinstance(preset, ViewSpec):
        spec, name = preset, None
    else:
        raise InputError(f"preset={preset!r}: must be one of {', '.join(PRESETS)}, or a ViewSpec")
    check_fields(overrides)
    colored = [field for field in ("saturation", "hue", "gray") if overrides.get(field)]
    if colored and channels != 3:
        raise InputError(
            f"{colored[0]}={overrides[colored[0]]!r} needs three channels, and these images have {channels}"
        )
    return Views(replace(spec, **overrides), size, channels, name)


def views_from_config(config: dict[str, Any]) -> Views | TakingTurns:
    """Inverse of ``to_config`` for `Views` and `TakingTurns`. Raises InputError for other configurations.

    >>> views = make_views("natural", size=96)
    >>> views_from_config(views.to_config()).size
    96
    """
    if "own" in config:
        raise InputError(f"these views were made by your function {config['own']!r}: pass it again as OwnViews")
    if "taking_turns" in config:
        return TakingTurns([views_from_config(part) for part in config["taking_turns"]])
    return Views.from_config(config)
