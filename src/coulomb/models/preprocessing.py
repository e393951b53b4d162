"""How a published network expects its images: resizing, cropping and normalization of its authors."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # of Pillow, by its own numbers


@dataclass(frozen=True)
class Preprocessing:
    """Prepares a photo as the authors of published weights did: resize, center crop.

    Attributes:
        side: S, side of the network's input in pixels.
        resize: R ≥ S in pixels: the short side of the resized photo, whose aspect ratio is kept.
        squash: resize to R×R instead, whatever the aspect ratio.
        resample: Pillow's filter, one of ``FILTERS``; it averages over the area of a pixel (antialiasing).
        offset_down: round the offset of the crop down, as transformers does, instead of to the nearest, as torchvision does.
        mean: [C], for values in [0, 1]. The encoder normalizes, this class does not.
        std: [C].

    >>> Preprocessing(side=224, resize=256).side
    224
    """

    side: int
    resize: int
    squash: bool = False
    resample: str = "bicubic"
    offset_down: bool = False
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        for name in (
            "mean",
            "std",
        ):  # rounded as the encoder stores them, so that a saved one equals its copy in memory
            object.__setattr__(self, name, tuple(float(np.float32(value)) for value in getattr(self, name)))
        if not 1 <= self.side <= self.resize <= 65536:
            raise InputError(
                f"preprocessing: side={self.side}, resize={self.resize}: must be 1 ≤ side ≤ resize ≤ 65536"
            )
        if self.resample not in FILTERS:
            raise InputError(f"preprocessing: resample={self.resample!r} must be one of {', '.join(FILTERS)}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise InputError(
                f"preprocessing: mean={self.mean} and std={self.std} must have one value per channel, 1 or 3"
            )

    def at(self, side: int) -> "Preprocessing":
        """Returns the same preprocessing for another image size: R changes in proportion to S, rounded."""
        return dataclasses.replace(self, side=side, resize=max(side, round(self.resize * side / self.side)))

    def to_json(self) -> dict[str, Any]:
        """Returns the entries for a file, without mean and deviation, which an encoder saves anyway."""
        entries = dataclasses.asdict(self)
        return {name: value for name, value in entries.items() if name not in ("mean", "std")}

    def describe(self) -> str:
        """Returns one line, such as "bicubic, short side to 256 pixels, center crop of 224"."""
        to = f"to {self.resize}×{self.resize} pixels" if self.squash else f"short side to {self.resize} pixels"
        crop = "" if self.squash and self.side == self.resize else f", center crop of {self.side}"
        return f"{self.resample}, {to}{crop}"

    def __call__(self, picture: "np.ndarray[Any, Any] | Image") -> Tensor:
        """Returns a photo as float32 [C, S, S] in [0, 1], before normalization: `pixels` divided by 255."""
        return self.pixels(picture).float() / 255

    def pixels(self, picture: "np.ndarray[Any, Any] | Image") -> Tensor:
        """Returns a photo as uint8 [C, S, S]: resized and cropped.

        Args:
            picture: uint8 [H, W] or [H, W, C], or a Pillow image, whose alpha channel is dropped. Gray is repeated for three
                channels; color becomes luma for one.
        """
        image = as_pil(picture)
        mode = "RGB" if len(self.mean) == 3 else "L"
        image = image if image.mode == mode else image.convert(mode)
        size = self.resized(*image.size)
        image = image.resize(size, FILTERS.index(self.resample))
        left, top = ((n - self.side) // 2 if self.offset_down else round((n - self.side) / 2) for n in size)
        values = np.array(image.crop((left, top, left + self.side, top + self.side)))
        return torch.from_numpy(values.reshape(self.side, self.side, -1)).permute(2, 0, 1).contiguous()

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of the resized photo; the long side is rounded down."""
        if self.squash:
            return self.resize, self.resize
        short = min(width, height)
        return self.resize * width // short, self.resize * height // short


def as_pil(picture: "np.ndarray[Any, Any] | Image") -> "Image":
    """Returns a Pillow image with 8 bits per channel; raises `InputError` for arrays of other types and deeper images."""
    from PIL import Image

    if isinstance(picture, np.ndarray):
        if (
            picture.dtype != np.uint8
            or picture.ndim not in (2, 3)
            or (picture.ndim == 3 and picture.shape[2] not in (1, 3))
        ):
            raise InputError(f"picture: {picture.dtype} {list(picture.shape)}; must be uint8 [H, W] or [H, W, 1 or 3]")
        return Image.fromarray(np.ascontiguousarray(picture[..., 0] if picture.shape[2:] == (1,) else picture))
    if picture.mode.startswith("I") or picture.mode == "F":
        raise InputError(f"picture: a Pillow image of mode {picture.mode}; convert it to 8 bits per channel")
    return picture
