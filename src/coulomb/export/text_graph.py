"""The network of an encoder of texts as an ONNX graph: token ids and their mask [B, L] → features [B, F]."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.export.network_graph import convert
from coulomb.kinds.text import Tokens
from coulomb.models.published_text import PublishedStatic, PublishedTexts
from coulomb.models.text_backbones import StaticVectors, TextBlock, TextTransformer, mean_of_tokens
from coulomb.models.text_network import TextNetwork

TRIED = 5  # tokens of the texts with which the network is traced
NAMES = ("input_ids", "attention_mask")


class PaddedTexts(nn.Module):
    """An encoder of texts that computes on padded texts, whose shapes a graph can have.

    The backbones themselves compute tokens without their padding, which is faster; features are the same up to rounding.

    Args:
        network: the encoder.
        unit: features of unit length.
    """

    def __init__(self, network: TextNetwork, unit: bool) -> None:
        super().__init__()
        self.backbone, self.adapter, self.unit = network.backbone, network.adapter, unit

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns features [B, F] of int64 [B, L] and [B, L]."""
        features = padded_features(self.backbone, Tokens(input_ids, attention_mask > 0))
        if self.adapter is not None:
            features = self.adapter(features)
        return functional.normalize(features, dim=1) if self.unit else features


def padded_features(backbone: nn.Module, tokens: Tokens) -> Tensor:
    """Returns the features [B, F'] of a backbone, without operations whose result has as many rows as there are tokens."""
    if isinstance(backbone, StaticVectors):
        features = mean_of_tokens(functional.embedding(tokens.ids, backbone.vectors.weight), tokens.mask)
        return backbone.projected(features) if isinstance(backbone, PublishedStatic) else features
    if isinstance(backbone, TextTransformer):
        x = backbone.embed(tokens.ids) + backbone.positions[: tokens.ids.shape[1]]
        allowed = tokens.mask[:, None, None]
        for each in backbone.blocks:
            block = cast(TextBlock, each)
            query, key, value = (
                block.query_key_value(block.norm1(x)).unflatten(2, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
            )
            attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
            x = x + block.mix(attended.transpose(1, 2).flatten(2))
            x = x + block.mlp(block.norm2(x))
        return mean_of_tokens(backbone.norm(x), tokens.mask)
    if isinstance(backbone, PublishedTexts):
        return backbone.features_of(tokens)
    own: Tensor = backbone(tokens)  # the user's module
    return own


def text_graph(network: TextNetwork, unit: bool) -> Any:
    """Returns the ONNX model ``input_ids``, ``attention_mask`` → ``features`` for any number of texts and of tokens.

    Raises:
        InputError: PyTorch cannot convert the network.
    """
    length = min(TRIED, network.longest)
    ids = torch.zeros(2, length, dtype=torch.int64)
    mask = torch.ones(2, length, dtype=torch.int64)
    dims = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=1)}
    if network.longest > 1:
        dims[1] = torch.export.Dim("length", min=1, max=max(network.longest, TRIED))
    device = next(each.device for each in network.parameters())
    return convert(
        PaddedTexts(network, unit),
        {"input_ids": ids.to(device), "attention_mask": mask.to(device)},
        dict.fromkeys(NAMES, dims),
        network.name,
    )
