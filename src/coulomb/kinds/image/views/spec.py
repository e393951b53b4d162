"""Specification of the views: one field per strength, and presets by kind of image."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError, did_you_mean

PADDINGS = ("reflection", "border", "zeros")
HUE_MODELS = ("hsv", "linear")
PROBABILITIES = ("flip", "flip_vertical", "affine", "elastic", "jitter", "gray", "blur", "solarize", "noise", "cutout")
# Ranges (low, high), and the interval that each must lie in.
RANGES: dict[str, tuple[float, float]] = {
    "crop_area": (1e-4, 1.0),
    "crop_ratio": (1e-2, 1e2),
    "zoom": (0.05, 20.0),
    "blur_sigma": (1e-3, 1e3),
    "noise_std": (0.0, 10.0),
    "cutout_side": (0.0, 1.0),
}
STRENGTHS: dict[str, tuple[float, float]] = {
    "rotate": (0.0, 180.0),
    "translate": (0.0, 1.0),
    "shear": (0.0, 44.0),
    "elastic_amplitude": (0.0, 1.0),
    "elastic_grid": (4, 64),
    "brightness": (0.0, 10.0),
    "contrast": (0.0, 10.0),
    "saturation": (0.0, 10.0),
    "hue": (0.0, 0.5),
    "blur_kernel": (0.0, 1.0),
    "solarize_threshold": (0.0, 1.0),
    "cutout_fill": (0.0, 1.0),
    "side": (0.1, 1.0),
}


@dataclass(frozen=True)
class ViewSpec:
    """Specification of a random view. Operations are listed in the order they are applied; parameters vary per sample.

    A field named after an operation (``flip``, ``affine``, ``elastic``, ``jitter``, ``gray``, ``blur``, ``solarize``,
    ``noise``, ``cutout``) is the probability that it is applied to a sample. The defaults only crop the center square.
    Raises InputError for a value outside its range.

    >>> ViewSpec(flip=0.5, noise=1.0).flip
    0.5
    """

    side: float = 1.0
    """Side of the random views as a fraction of the network's input. Smaller views are faster to learn from, and show objects
    at the size that they have in the whole image, which crops enlarge (Touvron et al., 2019)."""
    crop_area: tuple[float, float] = (1.0, 1.0)
    """Area of the crop as a fraction of the image, uniform (Szegedy et al., 2015; SimCLR: .08 to 1)."""
    crop_ratio: tuple[float, float] = (1.0, 1.0)
    """Width/height of the crop in pixels of the original image, log-uniform (SimCLR: 3/4 to 4/3)."""
    flip: float = 0.0
    """Probability of a horizontal flip (SimCLR: .5)."""
    flip_vertical: float = 0.0
    """Probability of a vertical flip, for images without an upright orientation (microscopy, aerial images)."""

    affine: float = 0.0
    """Probability of the affine map: rotate, shear and zoom about the center, then translate."""
    rotate: float = 0.0
    """Largest rotation angle in degrees, uniform in ±."""
    translate: float = 0.0
    """Largest shift along each axis as a fraction of the side, uniform in ±."""
    zoom: tuple[float, float] = (1.0, 1.0)
    """Magnification, log-uniform; values below 1 shrink the content."""
    shear: float = 0.0
    """Largest shear angle along each axis in degrees, uniform in ±."""
    elastic: float = 0.0
    """Probability of the elastic warp (after Simard et al., 2003, with a spline instead of a filtered random field)."""
    elastic_amplitude: float = 0.0
    """Largest displacement along each axis as a fraction of the side; the typical one is about .3 of it."""
    elastic_grid: int = 6
    """Control points per side (at least 4); more points give finer waves."""
    padding: str = "reflection"
    """Values outside the image: "reflection", "border" (the edge pixel) or "zeros" (black)."""

    jitter: float = 0.0
    """Probability of color jitter, with its factors in a random order per sample (SimCLR: .8)."""
    brightness: float = 0.0
    """Factor uniform in [max(0, 1 − b), 1 + b] (SimCLR: .8 × strength)."""
    contrast: float = 0.0
    """Factor about the mean gray of the sample, uniform like brightness (SimCLR: .8 × strength)."""
    saturation: float = 0.0
    """Factor about the gray of each pixel, uniform like brightness (SimCLR: .8 × strength)."""
    hue: float = 0.0
    """Largest rotation of the hue as a fraction of the full circle, uniform in ± (SimCLR: .2 × strength)."""
    hue_model: str = "hsv"
    """"hsv": the exact rotation in HSV, as in SimCLR; "linear": a rotation about the gray axis, which is faster."""
    gray: float = 0.0
    """Probability of conversion to gray = .299 R + .587 G + .114 B (SimCLR: .2)."""

    blur: float = 0.0
    """Probability of Gaussian blur (SimCLR: .5 on ImageNet, 0 on CIFAR-10)."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Standard deviation in pixels of the view, uniform (SimCLR: .1 to 2)."""
    blur_kernel: float = 0.1
    """Kernel width as a fraction of the side, rounded to an odd number of at least 3 pixels (SimCLR: .1)."""
    solarize: float = 0.0
    """Probability of inverting pixels at or above the threshold (BYOL: .2 for the second view)."""
    solarize_threshold: float = 0.5
    """Threshold in [0, 1] (BYOL: .5)."""
    noise: float = 0.0
    """Probability of adding Gaussian noise."""
    noise_std: tuple[float, float] = (0.0, 0.05)
    """Standard deviation of the noise, uniform; 1 is the full range from black to white."""
    cutout: float = 0.0
    """Probability of masking one square (DeVries & Taylor, 2017)."""
    cutout_side: tuple[float, float] = (0.2, 0.5)
    """Side of the square as a fraction of the view, uniform; it is clipped at the edges, as in the paper."""
    cutout_fill: float = 0.5
    """Fill value of the square in [0, 1]."""

    def __post_init__(self) -> None:
        for name in PROBABILITIES:
            require_option(name, getattr(self, name), float, at_least=0.0, at_most=1.0)
        for name, (low, high) in STRENGTHS.items():
            require_option(name, getattr(self, name), float, at_least=low, at_most=high)
        for name, (low, high) in RANGES.items():
            pair = getattr(self, name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"{name}={pair!r}: must be a pair (low, high), such as ({low:g}, {high:g})")
            for value in pair:
                require_option(name, value, float, at_least=low, at_most=high)
            if pair[0] > pair[1]:
                raise InputError(f"{name}={pair!r}: the lower limit is above the upper one; swap them")
            object.__setattr__(self, name, tuple(pair))
        require_option("elastic_grid", self.elastic_grid, int)
        require_option("padding", self.padding, str, choices=PADDINGS)
        require_option("hue_model", self.hue_model, str, choices=HUE_MODELS)

    def to_config(self) -> dict[str, Any]:
        """Returns all fields, JSON-serializable."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Inverse of `to_config`; missing fields have their defaults. Raises InputError for an unknown field."""
        check_fields(config)
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in config.items()}
        return cls(**values)


def check_fields(names: dict[str, Any]) -> None:
    """Raises InputError if a name is not a field of ViewSpec."""
    known = [field.name for field in fields(ViewSpec)]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the options are {', '.join(known)}"
            raise InputError(f"unknown view option {name!r}{hint}")


IMAGENET_RATIO = (3 / 4, 4 / 3)


def natural() -> ViewSpec:
    """Photos of about 64 pixels and more: SimCLR on ImageNet (Chen et al., 2020, appendix A), strength 1."""
    return ViewSpec(
        crop_area=(0.08, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.8,
        contrast=0.8,
        saturation=0.8,
        hue=0.2,
        gray=0.2,
        blur=0.5,
        blur_sigma=(0.1, 2.0),
    )


def small_natural() -> ViewSpec:
    """Photos of about 32 pixels: SimCLR on CIFAR-10 (Chen et al., 2020, appendix B.9), strength .5, no blur.

    Unlike in the paper, crops keep at least .2 of the area instead of .08, because 8% of 32×32 are only 9×9 pixels. For
    the paper's value use ``crop_area=(.08, 1)``.
    """
    return ViewSpec(
        crop_area=(0.2, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        gray=0.2,
    )


def digits() -> ViewSpec:
    """Digits, letters and documents: no flips; a small affine map, a mild elastic warp, brightness, noise, blur, cutout.

    The outside of the image is black; for dark ink on white paper use ``padding="border"``. The strengths were measured on
    handwritten digits (docs/experiments/recipes.md): without changes of brightness, noise, blur and cutout, the encoder tells
    images apart by their brightness instead of their shapes.
    """
    return ViewSpec(
        affine=1.0,
        rotate=15.0,
        translate=0.1,
        zoom=(0.8, 1.2),
        shear=10.0,
        elastic=0.8,
        elastic_amplitude=0.08,
        padding="zeros",
        jitter=1.0,
        brightness=0.6,
        contrast=0.6,
        blur=0.5,
        blur_sigma=(0.3, 1.2),
        noise=1.0,
        noise_std=(0.0, 0.15),
        cutout=0.5,
    )


def single_channel() -> ViewSpec:
    """Gray-scale photos, microscopy, medical images: intensity changes less, because it may be informative.

    For images without an upright orientation use ``flip_vertical=.5``, ``rotate=180`` and ``affine=1``. The strengths are
    not from a paper.
    """
    return ViewSpec(
        crop_area=(0.2, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        blur=0.5,
        blur_sigma=(0.1, 1.0),
        noise=0.5,
        noise_std=(0.0, 0.05),
    )


def captioned() -> ViewSpec:
    """Pictures with captions: most of the picture stays, and its colors, which captions name.

    CLIP (Radford et al., 2021) only crops, at least .9 of the area; the strengths here are not from a paper.
    """
    return ViewSpec(
        crop_area=(0.6, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.2,
        contrast=0.2,
        saturation=0.2,
    )


PRESETS: dict[str, Callable[[], ViewSpec]] = {
    "natural": natural,
    "small-natural": small_natural,
    "digits": digits,
    "documents": digits,
    "single-channel": single_channel,
    "captioned": captioned,
}
