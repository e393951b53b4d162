"""Objects as encoders of texts: models of transformers and sentence-transformers, and any module with a tokenizer.

================================  ===========================================================================
object                            network
================================  ===========================================================================
a `SentenceTransformer`           a copy of it: its tokenizer, pooling, dense layers and normalization
(model of transformers,           a copy of it, without its head; the mean over tokens
its tokenizer)
(any module, a tokenizer)         the module itself: called with ``input_ids`` and ``attention_mask`` [B, L],
                                  it returns features [B, F], or of each token [B, L, F], which are averaged
================================  ===========================================================================

The tokenizer may also be an attribute of the model. A copy is saved with its architecture; of any other module the weights are
saved, and the module is needed again to open them.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models.build_text import build_text_encoder
from coulomb.models.library_preprocessing import first_line
from coulomb.models.own_texts import wrap_texts
from coulomb.models.published import quiet
from coulomb.models.saving import TOKENIZER
from coulomb.models.text_layout import LONGEST, NO_LIMIT
from coulomb.models.text_network import TextNetwork
from coulomb.models.tokenizing import import_tokenizers, parse_tokenizer

LIBRARY, OWN = "model:", "custom:"  # names of objects: of a library's class, of any other module


def is_object(name: str) -> bool:
    """Returns True for the name of an object, see `name_objects`."""
    return name.startswith((LIBRARY, OWN))


def name_objects(encoder: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the option ``encoder`` as text, and its objects by the names that stand for them there.

    Args:
        encoder: a name; an object; or a name or object for each column, by its name.

    Raises:
        InputError: something is neither a name nor a module.

    >>> name_objects({"image": "lite0", "caption": (torch.nn.Embedding(9, 4), tokenizer)})[0]
    'image=lite0,caption=custom:Embedding'
    """
    objects: dict[str, Any] = {}
    if encoder is None or isinstance(encoder, str):
        return encoder, objects
    if not isinstance(encoder, Mapping):
        return _named(encoder, objects), objects
    if not encoder:
        raise InputError("encoder={}: is empty; give a name or a model for each column, or leave it out")
    parts = [f"{column}={_named(each, objects)}" for column, each in encoder.items()]
    return ",".join(parts), objects


def _named(given: Any, objects: dict[str, Any]) -> str:
    """Returns the name of an encoder; an object is added to ``objects``, once."""
    if isinstance(given, str | Path):
        return str(given)
    module = module_of(given)
    kind = LIBRARY if of_library(given) else OWN
    name = known = f"{kind}{type(module).__name__}"
    number = 1
    while name in objects and module_of(objects[name]) is not module:
        number += 1
        name = f"{known}-{number}"
    objects.setdefault(name, given)
    return name


def module_of(given: Any) -> nn.Module:
    """Returns the model of an object; raises `InputError` if it has none."""
    module = given[0] if isinstance(given, tuple) and len(given) == 2 else given
    if not isinstance(module, nn.Module):
        raise InputError(
            f"encoder={type(given).__name__}: must be a name, a torch.nn.Module, or of texts (model, tokenizer)"
        )
    return module


def of_library(given: Any) -> bool:
    """Returns True for objects whose architecture a library knows, so that files describe them in full."""
    return _is(given, "SentenceTransformer", "sentence_transformers") or (
        _tokenizer_of(given) is not None and _is(module_of(given), "PreTrainedModel", "transformers")
    )


def _is(given: Any, name: str, library: str) -> bool:
    return any(each.__name__ == name and each.__module__.startswith(library) for each in type(given).__mro__)


def _tokenizer_of(given: Any) -> Any:
    return given[1] if isinstance(given, tuple) else getattr(given, "tokenizer", None)


def build_text_object(given: Any, name: str, longest: int | None = None) -> TextNetwork:
    """Returns the network of an object; a library's model is copied, any other module is part of the network.

    Args:
        given: the object.
        name: of it, see `name_objects`, for messages.
        longest: tokens of a text that are used; default: what the tokenizer or the files say, at most 512.

    Raises:
        InputError: the object has no tokenizer, cannot be copied, or fails on texts.
    """
    if of_library(given):
        with tempfile.TemporaryDirectory() as folder:
            _save(given, folder, name)
            try:
                return build_text_encoder(folder, longest=longest)
            except InputError as error:
                raise InputError(str(error).replace(repr(folder), repr(name)).replace(folder, "its files")) from None
    tokenizer, padding, limit = _read_tokenizer(given, name)
    if longest is None:
        longest = min(LONGEST, limit or LONGEST)
    return wrap_texts(module_of(given), tokenizer, longest=longest, padding=padding)


def _save(given: Any, folder: str, name: str) -> None:
    """Writes a library's model as the library itself does."""
    try:
        with quiet():
            if _is(given, "SentenceTransformer", "sentence_transformers"):
                given.save_pretrained(folder, create_model_card=False)
                return
            module_of(given).save_pretrained(folder)  # type: ignore[operator]
            tokenizer = _tokenizer_of(given)
            if hasattr(tokenizer, "save_pretrained"):
                tokenizer.save_pretrained(folder)
            else:
                tokenizer.save(str(Path(folder) / TOKENIZER))
    except Exception as error:  # whatever a model or its tokenizer raises
        raise InputError(f"encoder={name!r}: cannot be saved, for a copy of it ({first_line(error)})") from error


def _read_tokenizer(given: Any, name: str) -> tuple[Any, int, int | None]:
    """Returns a copy of the tokenizer of an object, the id of its padding, and its limit in tokens if it has one."""
    found = _tokenizer_of(given)
    fast = getattr(found, "backend_tokenizer", found)
    if not isinstance(fast, import_tokenizers().Tokenizer):
        problem = "has no tokenizer" if found is None else f"its tokenizer is a {type(found).__name__}"
        raise InputError(
            f"encoder={name!r}: {problem}; to read texts, give (model, tokenizer), with a tokenizers.Tokenizer or a fast "
            "tokenizer of transformers"
        )
    padding = getattr(found, "pad_token_id", (fast.padding or {}).get("pad_id"))
    limit = getattr(found, "model_max_length", (fast.truncation or {}).get("max_length"))
    known = isinstance(limit, int) and 1 <= limit < NO_LIMIT
    return parse_tokenizer(fast.to_str(), name), padding or 0, limit if known else None
