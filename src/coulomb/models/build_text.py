"""Encoders of texts by name: random weights, or weights that exist."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.randomness import seeded_initialization
from coulomb.models import wordllama
from coulomb.models.backbones import LARGEST, LARGEST_NETWORK, LARGEST_SIZE
from coulomb.models.text_backbones import LONGEST, TEXT_BACKBONES, TEXT_OPTIONS
from coulomb.models.text_network import TextNetwork
from coulomb.models.tokenizing import train_tokenizer


def build_text_encoder(
    name: str,
    *,
    texts: Iterable[Any] | None = None,
    longest: int | None = None,
    seed: int = 0,
    weights: bool = True,
    **options: Any,
) -> TextNetwork:
    """Builds an encoder of texts by name.

    =================  ========  ==========================================================================
    name               features  network; options (defaults)
    =================  ========  ==========================================================================
    static             256       mean of the token vectors of wordllama (``pip install 'coulomb[text]'``)
    static-random      256       mean of random token vectors; width=256
    transformer-small  256       a transformer with random weights; width=256, depth=4, heads=4
    =================  ========  ==========================================================================

    Args:
        name: from the table.
        texts: the training texts, from which static-random and transformer-small learn their vocabulary.
        longest: tokens of a text that are used; longer texts are cut. Default: 256 of static ones, 128 of transformer-small.
        seed: seed of the random weights. The global random state is neither used nor changed.
        weights: False builds the same architecture with random weights, and the same vocabulary.
        options: options of the architecture.

    Raises:
        InputError: the name or an option is unknown or out of range, texts or a library are missing.
    """
    require_text_architecture(name)
    known, chosen = TEXT_OPTIONS[name], LONGEST[name] if longest is None else longest
    if unknown := [option for option in options if option not in known]:
        raise InputError(
            f"{unknown[0]}={options[unknown[0]]!r}: {name} has no such option; its options are {', '.join(known) or 'none'}"
        )
    if name == "static":
        tokenizer, vectors = wordllama.read_tokenizer(), wordllama.read_vectors()
        options = {"vocabulary": len(vectors), "width": vectors.shape[1]} | options
    else:
        vectors = None
        tokenizer = train_tokenizer(texts, name)
        options = {"vocabulary": tokenizer.get_vocab_size()} | options
    with torch.device("meta"):  # uses no memory
        blank = assemble_text(name, tokenizer, longest=chosen, options=options)
    if vectors is not None and weights:
        blank.backbone.load_state_dict({"vectors.weight": vectors}, assign=True)
        return blank
    with seeded_initialization(seed, "encoder", name):
        return assemble_text(name, tokenizer, longest=chosen, options=options)


def require_text_architecture(name: str) -> None:
    """Raises `InputError` unless ``name`` is known."""
    if name not in TEXT_BACKBONES:
        raise InputError(
            f"encoder={name!r}: of texts is unknown: use one of {', '.join(TEXT_BACKBONES)}"
            + did_you_mean(name, TEXT_BACKBONES)
        )


def assemble_text(name: str, tokenizer: Any, *, longest: int, options: Mapping[str, Any]) -> TextNetwork:
    """Builds an architecture with the current generator and device, so that loading need not initialize weights."""
    if not isinstance(longest, int) or isinstance(longest, bool) or not 1 <= longest <= LARGEST_SIZE:
        raise InputError(f"longest={longest!r}: must be a whole number from 1 to {LARGEST_SIZE}")
    for option, value in options.items():
        largest = LARGEST_NETWORK if option == "vocabulary" else LARGEST.get(option, LARGEST_SIZE)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise InputError(f"{option}={value!r} of {name}: must be a whole number from 1 to {largest}")
    if (size := options["vocabulary"] * options.get("width", 256)) > LARGEST_NETWORK:
        raise InputError(
            f"encoder={name!r}: has {size:.2g} parameters, more than {LARGEST_NETWORK:.2g}; make it narrower"
        )
    require_vocabulary(tokenizer, options["vocabulary"], name)
    backbone = TEXT_BACKBONES[name](longest=longest, **options)
    config = {
        "cells": TextNetwork.cells,
        "kind": "built-in",
        "name": name,
        "longest": longest,
        "padding": 0,
        "options": dict(options),
    }
    return TextNetwork(backbone, tokenizer, longest=longest, feature_dim=backbone.feature_dim, config=config)


def require_vocabulary(tokenizer: Any, size: int, name: str) -> None:
    """Raises `InputError` if a tokenizer has ids for which a network with ``size`` token vectors has none."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= size:
        raise InputError(
            f"{name}: its tokenizer has ids up to {largest}, and the network has {size} token vectors; use files of one model"
        )
