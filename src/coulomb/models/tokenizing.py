"""Tokenizers: read from files, and trained on texts. Needs the library ``tokenizers``."""

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.kinds.text.tokens import reason_against

VOCABULARY = 8192  # entries of a trained vocabulary, twice as many from MUCH_TEXT on
MUCH_TEXT = 10_000_000  # characters
PADDING = "[PAD]"
TOKENIZER = "tokenizer.json"  # the file of an encoder's tokenizer
LARGEST_FILE = 256 * 2**20  # bytes; the largest known, of multilingual models, has about 35 MB


def import_tokenizers() -> ModuleType:
    """Imports the library; raises `InputError` with the command that installs it."""
    try:
        return import_module("tokenizers")
    except ModuleNotFoundError as error:
        if error.name != "tokenizers":
            raise
        raise InputError("encoders of texts need tokenizers: pip install 'coulomb[text]'") from None


def parse_tokenizer(content: str, where: object, *, special_tokens: bool = True) -> Any:
    """Returns the tokenizer of a ``tokenizer.json``, without its limits of length and its padding.

    Args:
        content: of the file.
        where: the file, for messages.
        special_tokens: False for a tokenizer that adds none, such as [CLS].

    Raises:
        InputError: it is damaged, or of a newer format.
    """
    tokenizer_class = import_tokenizers().Tokenizer
    try:
        if not special_tokens:
            content = json.dumps(json.loads(content) | {"post_processor": None})
        tokenizer = tokenizer_class.from_str(content)
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{where}: is damaged, or no tokenizer of the library tokenizers ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def train_tokenizer(texts: Iterable[Any] | None, name: str) -> Any:
    """Returns a byte-level BPE of a column's texts (Sennrich et al., 2016): lower case, any language, no unknown characters.

    The vocabulary has at most 8,192 entries, from ten million characters on 16,384; id 0 is padding.

    Args:
        texts: the training texts; cells without a text are ignored.
        name: the encoder, for messages.

    Raises:
        InputError: there are no texts.
    """
    library = import_tokenizers()
    characters = 0

    def usable() -> Iterator[str]:
        nonlocal characters
        for text in () if texts is None else texts:
            if reason_against(text) is None:
                characters += len(text)
                yield text.strip().encode("utf-8", "replace").decode()

    words = list(usable())
    if not words:
        problem = "None" if texts is None else "no texts in it"
        raise InputError(
            f"texts={problem}: {name} learns its vocabulary from the training texts; give a list of strings"
        )
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.normalizer = library.normalizers.Sequence([library.normalizers.NFKC(), library.normalizers.Lowercase()])
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=VOCABULARY * (1 + (characters >= MUCH_TEXT)),
        min_frequency=2,
        special_tokens=[PADDING],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(words, trainer, length=len(words))
    return tokenizer
