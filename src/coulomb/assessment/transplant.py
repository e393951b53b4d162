"""Region transplants: whether a narrow region of the image decides what an image is taken for."""

from typing import Any

from torch import Tensor
from torch.nn.functional import normalize

STRIP = 4  # a strip is this fraction of the side


def transplants(images: Tensor, embed: Any) -> dict[str, Any]:
    """The region on which the embedding of an image depends most: ``{"region", "share"}``.

    For each strip along an edge, a quarter of the side wide, the strip of every image is replaced by that of another image,
    the donor. ``share`` is the share of images whose embedding is then nearer to the donor's than to its own: three quarters
    of the picture still are the image's own.

    Args:
        images: [n, C, S, S] without augmentation, n ≥ 2.
        embed: images → embeddings [n, D].
    """
    wide = max(1, images.shape[-1] // STRIP)
    first, last = slice(0, wide), slice(-wide, None)
    every = slice(None)
    regions = {"top": (first, every), "bottom": (last, every), "left": (every, first), "right": (every, last)}
    donors = images.roll(1, 0)
    own = normalize(embed(images).float(), dim=1)
    shares = {}
    for name, (rows, columns) in regions.items():
        mixed = images.clone()
        mixed[:, :, rows, columns] = donors[:, :, rows, columns]
        found = normalize(embed(mixed).float(), dim=1)
        nearer = (found * own.roll(1, 0)).sum(1) > (found * own).sum(1)
        shares[name] = float(nearer.double().mean())
    region = max(shares, key=lambda name: shares[name])
    return {"region": region, "share": shares[region]}
