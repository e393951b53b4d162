"""Weights for photos in a network for images of more channels: its first convolution is adapted."""

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.models.image_network import PUBLISHED, ImageNetwork, Normalization

PHOTO = 3  # channels that weights of photos are for


def adapted_stem(weight: Tensor, channels: int) -> Tensor:
    """Returns a first weight [F, 3, k, k] for images of ``channels``, as timm adapts it (``adapt_input_conv``).

    Three channels keep the weight. One gets the sum of the three kernels: its response to a gray image is exactly the response
    to three equal channels. Others get the kernels in turn, R, G, B, R, G, …, times 3 / channels: the response to an image
    whose channels are all equal stays the same if ``channels`` is a multiple of 3, and about the same otherwise.
    """
    if channels == PHOTO:
        return weight
    wide = weight.float()
    if channels == 1:
        return wide.sum(1, keepdim=True).to(weight.dtype)
    repeated = wide.repeat(1, -(-channels // PHOTO), 1, 1)[:, :channels]
    return (repeated * (PHOTO / channels)).to(weight.dtype)


def adapts(expected: int, channels: int) -> bool:
    """Returns True if weights for ``expected`` channels are adapted to ``channels``; gray is repeated for three instead."""
    return expected == PHOTO and channels not in (1, PHOTO)


def adapt(encoder: ImageNetwork, channels: int, normalize: Normalization) -> ImageNetwork:
    """Makes an encoder of photos one for images of ``channels``, in place: its first convolution, and the normalization.

    Its preprocessing, which is for photos, is dropped.

    Raises:
        InputError: the network has no convolution of three channels, or its library cannot build it for others.
    """
    for part in encoder.backbone.modules():
        if isinstance(part, nn.Conv2d) and part.in_channels == PHOTO and part.groups == 1:
            with torch.no_grad():
                part.weight = nn.Parameter(adapted_stem(part.weight, channels), part.weight.requires_grad)
            part.in_channels = channels
            break
    else:
        raise InputError(f"encoder={encoder.name!r}: has no convolution of 3 channels to adapt to {channels}")
    if (
        encoder.config["kind"] == PUBLISHED
        and (architecture := encoder.config["options"].get("architecture")) is not None
    ):
        if "num_channels" not in architecture:
            raise InputError(f"encoder={encoder.name!r}: takes 3 channels only; give an encoder without weights")
        encoder.config["options"]["architecture"] = architecture | {"num_channels": channels}
        for part in encoder.backbone.modules():  # they compare it with the images
            if getattr(part, "num_channels", None) == PHOTO:
                part.num_channels = channels  # type: ignore[assignment]
    encoder.config["channels"] = channels
    encoder.normalize, encoder.preprocessing = normalize, None
    return encoder


def stem_sentence(name: str, channels: int) -> str:
    """Returns a sentence on the adaptation, for logs and pages."""
    return (
        f"{name} begins from its own weights for 3 channels: the kernels of its first convolution are repeated for the "
        f"{channels} channels and scaled by 3/{channels}, and the normalization is measured on the training images."
    )
