"""The tokenizer of an encoder of texts as a file that needs nothing else: with its limit of tokens and its padding."""

import copy
from typing import Any

from coulomb.models.text_network import TextNetwork
from coulomb.models.tokenizing import import_tokenizers


def complete_tokenizer(network: TextNetwork, *, cut: bool = True, pad: bool = True) -> Any:
    """Returns a copy of a network's tokenizer that does what `TextNetwork.tokenize` does.

    It ignores whitespace around a text, with ``cut`` it cuts texts at ``network.longest`` tokens, and with ``pad`` it pads
    those of a batch to the longest.
    """
    library = import_tokenizers()
    tokenizer = copy.deepcopy(network.tokenizer)
    before = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = library.normalizers.Sequence([library.normalizers.Strip(), *before])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if cut:
        tokenizer.enable_truncation(network.longest)
    if pad:
        name = tokenizer.id_to_token(network.padding) or ""
        tokenizer.enable_padding(pad_id=network.padding, pad_token=name)
    return tokenizer
