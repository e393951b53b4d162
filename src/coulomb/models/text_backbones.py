"""Backbones of texts that are built in: averaged token vectors, and a small transformer. Tokens in, features out."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.kinds.text import Tokens

DROPOUT = 0.1  # of transformer-small, which makes the two views of SimCSE


class StaticVectors(nn.Module):
    """Mean of the vectors of a text's tokens, one vector per entry of the vocabulary; the order of the tokens has no effect.

    Tokens are summed without their padding: a batch of B texts with T tokens needs memory for [B, width] and T ids.
    """

    def __init__(self, *, vocabulary: int, longest: int, width: int = 256) -> None:
        super().__init__()
        del longest  # any number of tokens
        self.vectors = nn.EmbeddingBag(vocabulary, width, mode="mean")
        self.feature_dim = width

    def forward(self, tokens: Tokens) -> Tensor:
        """Returns features [B, width]; a text without tokens has zeros."""
        lengths = tokens.lengths
        features: Tensor = self.vectors(tokens.ids[tokens.mask], lengths.cumsum(0) - lengths)
        return features


class TextBlock(nn.Module):
    """Pre-norm transformer block: x + attention(LN(x)), then x + MLP(LN(x)) with GELU and four times the width.

    Dropout acts on what is added to x.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Maps the tokens [T, width] of all texts to [T, width]; ``mask``, bool [B, L], has their places in the padded batch.

        Only attention is computed on padded texts, so that a long text among short ones costs little.
        """
        packed = self.query_key_value(self.norm1(x))
        padded = packed.new_zeros(*mask.shape, packed.shape[1])
        padded[mask] = packed
        query, key, value = padded.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        x = x + self.dropout(self.mix(attended.transpose(1, 2).flatten(2)[mask]))
        return x + self.dropout(self.mlp(self.norm2(x)))


class TextTransformer(nn.Module):
    """Small pre-norm transformer with learned positions: the mean of the last layer over the tokens of a text."""

    def __init__(self, *, vocabulary: int, longest: int, width: int = 256, depth: int = 4, heads: int = 4) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width={width} must be a multiple of heads={heads}")
        self.embed = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(longest, width))
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(TextBlock(width, heads, DROPOUT) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.feature_dim = width
        nn.init.trunc_normal_(self.positions, std=0.02)
        nn.init.trunc_normal_(self.embed.weight, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tokens) -> Tensor:
        """Returns features [B, width]."""
        mask = tokens.mask
        text, place = mask.nonzero(as_tuple=True)
        x = self.dropout(self.embed(tokens.ids[text, place]) + self.positions[place])
        for block in self.blocks:
            x = block(x, mask)
        total = x.new_zeros(len(tokens), x.shape[1]).index_add_(0, text, self.norm(x))
        return total / tokens.lengths.clamp_min(1).unsqueeze(1)


def mean_of_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean [B, F] of token features [B, L, F] where ``mask``, bool [B, L], is True."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)


TEXT_BACKBONES: dict[str, Callable[..., StaticVectors | TextTransformer]] = {
    "static": StaticVectors,
    "static-random": StaticVectors,
    "transformer-small": TextTransformer,
}
TEXT_OPTIONS = {
    "static": (),
    "static-random": ("width",),
    "transformer-small": ("width", "depth", "heads"),
}
LONGEST = {"static": 256, "static-random": 256, "transformer-small": 128}  # tokens of a text, by default
