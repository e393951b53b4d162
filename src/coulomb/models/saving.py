"""Saves encoders as safetensors (weights) and JSON (architecture). Loading executes and unpickles nothing."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.randomness import seeded_initialization
from coulomb.ground.reading import (
    Shape,
    check_file,
    check_shape,
    list_of,
    maybe,
    number,
    read_bytes,
    read_object,
    table,
    text,
    whole,
)
from coulomb.models.adapter import DESCRIPTION as ADAPTER
from coulomb.models.backbones import BACKBONES
from coulomb.models.encoder import Encoder
from coulomb.models.image_network import OWN_MODULE, PUBLISHED, ImageNetwork, assemble, wrap_encoder
from coulomb.models.lora import merged
from coulomb.models.own_texts import wrap_texts
from coulomb.models.preprocessing import Preprocessing
from coulomb.models.published_text import assemble_published_text
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.text_network import TextNetwork, assemble_text
from coulomb.models.tokenizing import LARGEST_FILE, TOKENIZER, parse_tokenizer
from coulomb.models.vector_network import VectorNetwork, assemble_vectors

WEIGHTS = "encoder.safetensors"
DESCRIPTION = "encoder.json"
FORMAT = 1


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Writes ``encoder.safetensors`` and ``encoder.json`` to ``folder``, which is created if needed, each atomically.

    An encoder of texts also has ``tokenizer.json``, in the format of the library tokenizers.

    The additions of ``tune=lora:R`` are merged into the weights that are written; the encoder is not changed.

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> save_encoder(encoder, "my-encoder")
    >>> from pathlib import Path
    >>> sorted(path.name for path in Path("my-encoder").iterdir())
    ['encoder.json', 'encoder.safetensors']
    """
    folder, encoder = Path(folder), merged(encoder)
    folder.mkdir(parents=True, exist_ok=True)
    # Copies, because modules may share tensors, which the format does not support.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in encoder.state_dict().items()}
    description = {"format": FORMAT, **encoder.config, "feature_dim": encoder.feature_dim}
    description |= encoder.description()
    for name, content in encoder.files().items():
        write_atomically(folder / name, content)
    write_atomically(folder / WEIGHTS, save(tensors))
    write_atomically(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())


def load_encoder(folder: str | Path, module: nn.Module | None = None) -> Encoder:
    """Loads the encoder saved in ``folder``, on the CPU and in eval mode.

    Args:
        folder: with ``encoder.safetensors`` and ``encoder.json``, and for texts ``tokenizer.json``.
        module: an instance of the user's module if the encoder was made of one; its weights are replaced in place.

    Raises:
        InputError: a file is missing or damaged, the files do not match, or ``module`` is missing or of another class.

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> save_encoder(encoder, "saved")
    >>> load_encoder("saved").feature_dim
    32
    """
    folder = Path(folder)
    description = read_description(folder / DESCRIPTION)
    weights = read_weights(folder / WEIGHTS)
    encoder = _blank_encoder(description, module, folder)
    check_tensors(encoder.state_dict(), weights, folder / WEIGHTS, encoder.name)
    for name in ("mean", "std") if "mean" in description else ():
        stored = weights[f"{encoder.statistics}.{name}"].flatten().tolist()
        if stored != description[name]:
            raise InputError(f"{folder}: {name} is {description[name]} in {DESCRIPTION} and {stored} in {WEIGHTS}")
    if module is not None and encoder.adapter is not None:
        encoder.adapter.to_empty(device="cpu")
    # A built-in encoder is on the meta device and takes the loaded tensors; a user's module is changed in place.
    encoder.load_state_dict(weights, assign=module is None)
    return encoder.eval()


def random_encoder(folder: str | Path, seed: int) -> Encoder:
    """Builds the architecture of the encoder saved in ``folder`` with random weights, from ``encoder.json`` alone.

    It has the saved normalization, or the saved tokenizer. Nothing is downloaded, and the global random state is not changed.

    Raises:
        InputError: the file is missing or damaged, or describes a user's module.
    """
    path = Path(folder) / DESCRIPTION
    description = read_description(path)
    if description["kind"] == OWN_MODULE:
        raise InputError(f"{folder} holds your module {description['name']!r}: its initial weights are unknown")
    name = description["name"]
    if "cells" in description:
        with seeded_initialization(seed, "encoder", name):
            return _assemble(description, Path(folder))
    with seeded_initialization(seed, "encoder", name):
        encoder = assemble(name, options=description["options"], **_shared(description))
    return _as_used(encoder, description, path)


def _shared(description: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of every kind of encoder, with the image size that the architecture was built for."""
    size = description.get("built_for") or description["image_size"]
    return {key: description[key] for key in ("channels", "mean", "std")} | {"image_size": size}


def _as_used(encoder: ImageNetwork, description: dict[str, Any], path: Path) -> ImageNetwork:
    """Gives an encoder the preprocessing of a description, and the image size that it is used with."""
    if description.get("built_for"):
        encoder.config |= {key: description[key] for key in ("image_size", "built_for")}
    encoder.preprocessing = _preprocessing(description, path)
    return encoder


def _preprocessing(description: dict[str, Any], path: Path) -> Preprocessing | None:
    """Returns the preprocessing of a description; None if it has none, as for an encoder trained from random weights."""
    if (entries := description.get("preprocessing")) is None:
        return None
    check_shape(path, entries, PREPROCESSING, SAVE_AGAIN)
    chosen = {name: entries[name] for name in PREPROCESSING}
    try:
        return Preprocessing(**chosen, mean=tuple(description["mean"]), std=tuple(description["std"]))
    except InputError as error:
        raise InputError(f"{path}: {error}; {SAVE_AGAIN}") from None


def _blank_encoder(description: dict[str, Any], module: nn.Module | None, folder: Path) -> Encoder:
    """Builds the architecture of a description; on the meta device, without memory, if it is built in."""
    path = folder / DESCRIPTION
    wrapped = description["kind"] == OWN_MODULE
    if wrapped and module is None:
        raise InputError(
            f"{folder} holds the weights of your module {description['name']!r}: pass an instance, "
            f"load_encoder(folder, module={description['name']}(...))"
        )
    if not wrapped and module is not None:
        raise InputError(f"{folder} holds the built-in encoder {description['name']!r}: omit module")
    encoder: Encoder
    if module is not None and "cells" in description:
        tokenizer = read_tokenizer(folder / TOKENIZER, description["tokenizer"])
        encoder = wrap_texts(module, tokenizer, longest=description["longest"], padding=description["padding"])
    elif "cells" in description:
        with _building(description["kind"] == "built-in"):
            encoder = _assemble(description, folder)
    elif module is not None:
        encoder = _as_used(wrap_encoder(module, **_shared(description)), description, path)
    else:
        with _building(description["name"] in BACKBONES):
            encoder = assemble(description["name"], options=description["options"], **_shared(description))
        encoder = _as_used(encoder, description, path)
    if (adapter := description.get("adapter")) is not None:
        try:
            with torch.device("meta"):
                encoder.attach_adapter(adapter)
        except InputError as error:
            raise InputError(f"{path}: {error}; {SAVE_AGAIN}") from None
    if encoder.feature_dim != description["feature_dim"]:
        raise InputError(
            f"{path} declares {description['feature_dim']} features, but {encoder.name} has {encoder.feature_dim}"
        )
    return encoder


@contextmanager
def _building(built_in: bool) -> Iterator[None]:
    """Context in which an architecture is built whose weights are loaded: on the meta device if it is ``built_in``.

    Other libraries have buffers that are not saved and need values.
    """
    with torch.device("meta") if built_in else seeded_initialization(0, "loading"):
        yield


def _assemble(description: dict[str, Any], folder: Path) -> TextNetwork | VectorNetwork:
    """Builds the architecture of a description of texts or vectors, with the current generator and device."""
    name, options = description["name"], description["options"]
    if description["cells"] == VectorNetwork.cells:
        shape = {"width": whole}
        width = check_shape(folder / DESCRIPTION, options, shape, SAVE_AGAIN)["width"]
        statistics = {each: description[each] for each in ("mean", "std")}
        return assemble_vectors(name, dim=description["dim"], width=width, **statistics)
    tokenizer = read_tokenizer(folder / TOKENIZER, description["tokenizer"])
    if description["kind"] == PUBLISHED:
        shared = {"longest": description["longest"], "padding": description["padding"], "options": options}
        return assemble_published_text(name, tokenizer, **shared, where=folder / DESCRIPTION, remedy=SAVE_AGAIN)
    if name not in TEXT_BACKBONES or "vocabulary" not in options:
        raise InputError(f"{folder / DESCRIPTION}: describes no encoder of texts that is known; {SAVE_AGAIN}")
    try:
        return assemble_text(name, tokenizer, longest=description["longest"], options=options)
    except TypeError as error:  # an option that the architecture does not have
        raise InputError(f"{folder / DESCRIPTION}: {error}; {SAVE_AGAIN}") from None


def read_tokenizer(path: Path, digest: str) -> Any:
    """Returns the tokenizer of a saved encoder, whose file has the SHA-256 ``digest``."""
    content = read_bytes(path, most=LARGEST_FILE, remedy=SAVE_AGAIN)
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(
            f"{path}: is not the tokenizer that the encoder was saved with (its SHA-256 differs); {SAVE_AGAIN}"
        )
    return parse_tokenizer(content.decode(errors="replace"), path)


SAVE_AGAIN = "restore it from a copy, or save the encoder again"
SHARED: dict[str, Shape] = {"kind": text, "name": text, "feature_dim": whole, "adapter": maybe(ADAPTER)}
STATISTICS: dict[str, Shape] = {"mean": list_of(number), "std": list_of(number)}
IMAGES: dict[str, Shape] = (
    SHARED
    | STATISTICS
    | {
        "channels": whole,
        "image_size": whole,
        "preprocessing": maybe(table),
        "built_for": maybe(whole),
    }
)
ENTRIES: dict[str, dict[str, Shape]] = {  # of the entry ``cells``, which images do not have
    TextNetwork.cells: SHARED | {"longest": whole, "padding": whole, "tokenizer": text, "options": table},
    VectorNetwork.cells: SHARED | STATISTICS | {"dim": whole, "options": table},
}
_flag = Shape("true or false", lambda value: isinstance(value, bool))
PREPROCESSING = {"side": whole, "resize": whole, "squash": _flag, "resample": text, "offset_down": _flag}


def read_description(path: Path) -> dict[str, Any]:
    """Returns the content of ``encoder.json`` after checking its entries."""
    remedy = f"is {path.parent} a folder with a saved encoder?" if not path.exists() else SAVE_AGAIN
    description = read_object(path, remedy=remedy)
    if description.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {description.get('format')!r}, this version of coulomb reads {FORMAT}: update coulomb, or "
            "save the encoder again"
        )
    if "cells" in description:
        cells = description["cells"]
        if cells not in ENTRIES:
            raise InputError(f"{path}: 'cells' is {cells!r}, and must be one of {', '.join(ENTRIES)}; {SAVE_AGAIN}")
        return check_shape(path, description, ENTRIES[cells], SAVE_AGAIN)
    own = description.get("kind") == OWN_MODULE
    return check_shape(path, description, IMAGES if own else {**IMAGES, "options": table}, SAVE_AGAIN)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file by name."""
    check_file(path, remedy=SAVE_AGAIN if path.exists() else f"is {path.parent} a folder with a saved encoder?")
    try:
        # Clones, because the loader may map the file to memory and the file may change.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}; {SAVE_AGAIN}") from error


def check_tensors(expected: dict[str, Tensor], loaded: dict[str, Tensor], path: Path, name: str) -> None:
    """Raises `InputError` unless names, shapes and types of the ``loaded`` tensors are the ``expected`` ones."""
    missing, extra = sorted(expected.keys() - loaded.keys()), sorted(loaded.keys() - expected.keys())
    if missing or extra:
        parts = [f"{len(missing)} missing (first {missing[0]!r})"] if missing else []
        parts += [f"{len(extra)} unknown (first {extra[0]!r})"] if extra else []
        raise InputError(f"{path} does not match this {name}: of its tensors, {' and '.join(parts)}")
    for key, tensor in expected.items():
        if tensor.shape != loaded[key].shape or tensor.dtype != loaded[key].dtype:
            raise InputError(
                f"{path}: {key!r} is {loaded[key].dtype} {list(loaded[key].shape)}, but {name} has "
                f"{tensor.dtype} {list(tensor.shape)}"
            )
