"""A learnable temperature, and the conversion of a temperature to the scale 1/τ of the similarities."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.checked import check_dense, checked_number, readable, transformed

ROUNDING = 1e-3  # of a temperature that was read as a rounded logarithm
ROUNDED = 1e-6  # of log(1/τ) in fp32


class LearnableTemperature(nn.Module):
    """Learns log(1/τ), as in CLIP (Radford et al., 2021). Pass it to a loss as ``temperature``.

    The parameter p = log(1/τ) is clamped in place to [log 1/maximum, log 1/minimum] whenever it is used, so that it still
    has a gradient at the limits and can return into the range; with a clamp inside the graph the gradient would be 0.
    CLIP clamps after each update instead, which gives the same losses. `at_limit` and `clamped` show it. Transforms of
    `torch.func` may not modify a captured tensor: there the parameter is left unchanged, its clamped value is used, and the
    gradient is the same.

    When to use: the best τ is not known. All losses with the option ``temperature`` have a gradient with respect to it.
    Needs: ``loss.parameters()`` in the optimizer, preferably without weight decay, as in CLIP.
    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    arXiv:2103.00020.

    Args:
        initial: initial τ; 0.07 in CLIP and MoCo. Values up to 0.1% outside the range are set to its limit, such as
            e^−4.6052, the rounded value of CLIP's published weights.
        minimum, maximum: range of τ; in CLIP 0.01 to 1, a scale of at most 100 and at least 1.

    Attributes:
        clamped: number of uses at which the parameter was outside the range, so that it was clamped; not counted in compiled
            graphs and transforms.

    >>> temperature = LearnableTemperature(0.2)
    >>> round(temperature().item(), 4), sum(p.numel() for p in temperature.parameters())
    (0.2, 1)
    """

    def __init__(self, initial: float = 0.07, minimum: float = 0.01, maximum: float = 1.0) -> None:
        super().__init__()
        initial, minimum, maximum = (
            checked_number(name, value)
            for name, value in (("initial", initial), ("minimum", minimum), ("maximum", maximum))
        )
        for limit in (minimum, maximum):
            initial = limit if abs(initial - limit) <= ROUNDING * limit else initial
        if not 0 < minimum <= initial <= maximum < math.inf:
            raise ValueError(f"0 < minimum <= initial <= maximum is required, got {minimum=}, {initial=}, {maximum=}")
        self.minimum, self.maximum = minimum, maximum
        self.log_scale = nn.Parameter(torch.tensor(-math.log(initial)))
        self.clamped = 0

    def scale(self) -> Tensor:
        """Returns 1/τ, with gradient."""
        low, high = -math.log(self.maximum), -math.log(self.minimum)
        if transformed():
            return (self.log_scale + (self.log_scale.clamp(low, high) - self.log_scale).detach()).exp()
        with torch.no_grad():
            if readable(self.log_scale):
                self.clamped += not low - ROUNDED <= float(self.log_scale) <= high + ROUNDED
            self.log_scale.clamp_(low, high)
        return self.log_scale.exp()

    @property
    def at_limit(self) -> str | None:
        """``"minimum"`` or ``"maximum"`` if τ is at this limit of its range or beyond, else None.

        At its minimum, CLIP's usual state late in training, the loss asks for a scale above 100.
        """
        log_scale = float(self.log_scale.detach())
        if log_scale >= -math.log(self.minimum) - ROUNDED:
            return "minimum"
        return "maximum" if log_scale <= -math.log(self.maximum) + ROUNDED else None

    def forward(self) -> Tensor:
        """Returns τ, with gradient."""
        return 1 / self.scale()

    def extra_repr(self) -> str:
        """Returns the options for ``print(loss)``."""
        now = f"now={math.exp(-float(self.log_scale.detach())):.4g}, " if readable(self.log_scale) else ""
        clamped = f", clamped={self.clamped}" if self.clamped else ""
        return f"{now}minimum={self.minimum:g}, maximum={self.maximum:g}{clamped}"


Temperature = float | LearnableTemperature


def checked_temperature(name: str, temperature: Any) -> Temperature:
    """Returns ``temperature`` if it is a positive number or a `LearnableTemperature`; else raises an error that names it."""
    if isinstance(temperature, LearnableTemperature):
        return temperature
    try:
        return checked_number(name, temperature, above=0)
    except TypeError as error:
        raise TypeError(f"{error}; to learn it, use a LearnableTemperature") from None


def scale_of(temperature: Temperature, scale: float | Tensor | None = None) -> float | Tensor:
    """Returns the scale of the similarities: 1/τ, with gradient for a `LearnableTemperature`, or the ``scale`` of this call.

    Raises:
        ValueError, TypeError: ``scale`` is given with a `LearnableTemperature`, or is no positive number or 0-dim tensor.
    """
    if scale is None:
        return temperature.scale() if isinstance(temperature, LearnableTemperature) else 1 / temperature
    if isinstance(temperature, LearnableTemperature):
        raise ValueError(
            "scale with a LearnableTemperature as temperature: both are 1/τ, and the parameter of the loss would get no "
            "gradient; leave out scale, or construct the loss with a number as temperature, which scale then replaces"
        )
    return checked_parameter("scale", scale, above=0)


def checked_parameter(name: str, value: Any, *, above: float = -math.inf) -> float | Tensor:
    """Returns a finite number, or a floating 0-dim tensor as it is, with its gradient, for one call of a loss.

    The value of a tensor is checked if it is `readable`.
    """
    if not isinstance(value, Tensor):
        return checked_number(name, value, above=above)
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating 0-dim tensor, got {value.dtype}")
    check_dense(name, value)
    if value.ndim != 0:
        raise ValueError(
            f"{name} must be a number or a 0-dim tensor, got shape {tuple(value.shape)}; use {name}.squeeze()"
        )
    if readable(value):
        checked_number(name, float(value.detach()), above=above)
    return value


def check_base(base: float | None, temperature: Temperature) -> None:
    """Raises ValueError if a ``base_temperature`` is given with a learned temperature."""
    if base is not None and isinstance(temperature, LearnableTemperature):
        raise ValueError(
            "base_temperature with a learned temperature: the factor τ/τ_base could be learned to 0; use None"
        )
