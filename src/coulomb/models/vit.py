"""A small vision transformer (Dosovitskiy et al., 2021), in plain torch."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.errors import InputError


def patch_size(image_size: int) -> int:
    """16 pixels from 128 on, 8 from 64, 4 from 24, else 2: between 49 and 256 patches for the usual sizes."""
    for least, patch in ((128, 16), (64, 8), (24, 4)):
        if image_size >= least:
            return patch
    return 2


class Block(nn.Module):
    """x + attention(LN(x)), then x + MLP(LN(x)) with a GELU and four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[B,T,width] → [B,T,width]."""
        batch, tokens, width = x.shape
        packed = self.query_key_value(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches, learned positions, ``depth`` pre-norm blocks, the mean over patches: [B,C,S,S] → [B,width].

    No class token. A size that the patch does not divide is padded on the right and below with zeros, which are the
    mean colour after the encoder's normalisation. Positions are learned for one size, so others are refused.
    """

    def __init__(
        self,
        *,
        channels: int,
        image_size: int,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        patch: int | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width={width} must be a multiple of heads={heads}.")
        self.image_size = image_size
        self.patch = patch_size(image_size) if patch is None else patch
        side = -(-image_size // self.patch)
        self.padding = side * self.patch - image_size
        self.embed = nn.Conv2d(channels, width, self.patch, stride=self.patch)
        self.positions = nn.Parameter(torch.empty(1, side * side, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.feature_dim = width
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Features [B,width] of normalised images [B,C,S,S]."""
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise InputError(
                f"this ViT has positions for {self.image_size}×{self.image_size} images, got {x.shape[-2]}×"
                f"{x.shape[-1]}: resize the images, or build one with image_size={x.shape[-1]}."
            )
        if self.padding:
            x = functional.pad(x, (0, self.padding, 0, self.padding))
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.norm(self.blocks(tokens + self.positions)).mean(dim=1)
