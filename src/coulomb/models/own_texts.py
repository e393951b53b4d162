"""A user's module as an encoder of texts."""

from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.kinds.text import Tokens
from coulomb.models.image_network import OWN_MODULE, restored
from coulomb.models.library_preprocessing import first_line
from coulomb.models.text_backbones import mean_of_tokens
from coulomb.models.text_network import TextNetwork


class OwnTexts(nn.Module):
    """Backbone around the user's module: tokens → features [B, F].

    Args:
        module: called as ``module(input_ids=…, attention_mask=…)`` with int64 [B, L].
        padding: the id of the padding.
    """

    def __init__(self, module: nn.Module, padding: int) -> None:
        super().__init__()
        self.module, self.padding = module, padding

    def forward(self, tokens: Tokens) -> Tensor:
        """Returns features [B, F]; raises `InputError` for an output of another shape."""
        ids = tokens.ids.masked_fill(~tokens.mask, self.padding)
        output = self.module(input_ids=ids, attention_mask=tokens.mask.long())
        output = getattr(output, "last_hidden_state", output)
        name = type(self.module).__name__
        if not isinstance(output, Tensor) or output.ndim not in (2, 3) or len(output) != len(ids):
            shape = f"shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise InputError(
                f"encoder={name}: returned {shape} for {len(ids)} texts; it must return one tensor, of texts [B, F] or of "
                "tokens [B, L, F]"
            )
        return output if output.ndim == 2 else mean_of_tokens(output, tokens.mask)


def wrap_texts(module: nn.Module, tokenizer: Any, *, longest: int, padding: int) -> TextNetwork:
    """Makes an encoder of texts of a user's module, after a trial that measures its features.

    Raises:
        InputError: the module fails on texts of ``longest`` tokens, or returns something else than features.
    """
    name = type(module).__name__
    config = {
        "cells": TextNetwork.cells,
        "kind": OWN_MODULE,
        "name": name,
        "longest": longest,
        "padding": padding,
        "options": {},
    }
    network = TextNetwork(
        OwnTexts(module, padding), tokenizer, longest=longest, feature_dim=0, config=config, padding=padding
    )
    parameter = next(iter(module.parameters()), None)
    ids = torch.full((2, longest), padding, device=None if parameter is None else parameter.device)
    with restored(network):
        try:
            network.feature_dim = int(network(Tokens(ids, torch.ones_like(ids, dtype=torch.bool))).shape[1])
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"encoder={name!r}: failed on two texts of {longest} tokens, called with input_ids and attention_mask "
                f"({type(error).__name__}: {first_line(error)}); if they are too long, give longest=…"
            ) from error
    return network
