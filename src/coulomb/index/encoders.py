"""The encoder of an index: how it is named in ``index.json``, opened again and compared."""

import hashlib
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.canvas import Canvas
from coulomb.models import Encoder
from coulomb.models.encode import canvas_for
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import load, of_images, run_path
from coulomb.models.named_encoder import NamedEncoder
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.published_pair import is_published_pair
from coulomb.models.text_encoder import TextEncoder
from coulomb.tables import Source

DEFAULT = "lite0"
DEFAULT_OF_TEXTS = "static"
IDENTITY = ("fingerprint", "image_size", "canvas", "longest")  # entries that are equal if features are

Given = str | Path | ImageEncoder | TextEncoder | PairEncoder  # an encoder, as a user gives it


def open_encoder(encoder: Given, image_size: int | None) -> ImageEncoder:
    """Opens the encoder of a run or by name, see `coulomb.load`; an opened one is returned as it is.

    Raises:
        InputError: there is no such encoder, or it has another image size.
    """
    if isinstance(encoder, str | Path):
        return of_images(load(encoder, image_size=image_size))
    encoder = of_images(encoder)
    if image_size not in (None, encoder.encoder.image_size):
        raise InputError(
            f"image_size={image_size}: the given encoder takes {encoder.encoder.image_size} pixels; leave it out"
        )
    return encoder


def open_text_encoder(encoder: Given, column: str) -> TextEncoder:
    """Opens the encoder of texts of a run or by name; of a run on several columns, that of ``column`` or the first one.

    Raises:
        InputError: there is no such encoder, or it does not take texts.
    """
    opened = load(_absolute(encoder)) if isinstance(encoder, str | Path) else encoder
    if isinstance(opened, PairEncoder):
        own = column in opened.columns and opened.columns[column]["kind"] == "text"
        opened = opened[column] if own else opened.of_kind("text")
    if not isinstance(opened, TextEncoder):
        raise InputError(
            f"encoder={visible(opened.name)!r}: takes images; texts need static, hf:NAME@weights, a folder with an encoder of "
            "texts, or a run on a column of texts"
        )
    return opened


def _absolute(encoder: str | Path) -> str:
    """Returns the name of an encoder; a folder as an absolute path, which is found from other folders, too."""
    path = Path(encoder).expanduser()
    return str(path.resolve()) if path.is_dir() else str(encoder)


def prepared_for(opened: ImageEncoder, source: Source) -> ImageEncoder:
    """Returns an encoder with a canvas for the images of ``source``, if it has neither a canvas nor a preprocessing."""
    if opened.canvas is None and opened.encoder.preprocessing is None:
        return opened.with_canvas(canvas_for(source, opened.encoder.image_size))
    return opened


def describe(opened: ImageEncoder) -> dict[str, Any]:
    """Returns the entry ``encoder`` of ``index.json``."""
    encoder, canvas = opened.encoder, opened.canvas
    return {
        "name": opened.name,
        "architecture": encoder.name,
        "fingerprint": fingerprint(encoder),
        "image_size": encoder.image_size,
        "canvas": None if canvas is None else canvas.to_dict(),
        "preparation": None if encoder.preprocessing is None else encoder.preprocessing.describe(),
    }


def describe_texts(opened: TextEncoder) -> dict[str, Any]:
    """Returns the entry ``encoder`` of ``index.json`` of an index of texts; the fingerprint includes the tokenizer."""
    encoder = opened.encoder
    digest = hashlib.sha256(fingerprint(encoder).encode() + encoder.tokenizer.to_str().encode())
    return {
        "name": opened.name,
        "architecture": encoder.name,
        "fingerprint": digest.hexdigest(),
        "longest": encoder.longest,
    }


def fingerprint(encoder: Encoder) -> str:
    """Returns the SHA-256 of the names and values of all weights and statistics."""
    digest = hashlib.sha256()
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().numpy())
    return digest.hexdigest()


def reopen(entry: dict[str, Any], given: Given | None, where: str) -> ImageEncoder:
    """Returns the encoder of an index.

    Args:
        entry: ``encoder`` of ``index.json``.
        given: where the encoder is now; default: where it was.
        where: the index, for messages.

    Raises:
        InputError: it cannot be opened, or its weights differ from the index's.
    """
    chosen = _existing(entry, where) if given is None else given
    fixed = not isinstance(chosen, str | Path) or run_path(chosen) is not None
    opened = open_encoder(chosen, None if fixed else entry["image_size"])
    if fingerprint(opened.encoder) != entry["fingerprint"]:
        raise _other_weights(where, chosen)
    return opened.with_canvas(None if entry["canvas"] is None else Canvas.from_dict(entry["canvas"]))


def reopen_texts(entry: dict[str, Any], column: str, given: Given | None, where: str) -> TextEncoder:
    """Returns the encoder of an index of texts.

    Args: as for `reopen`; and the name of the column.

    Raises:
        InputError: it cannot be opened, or its weights or tokenizer differ from the index's.
    """
    chosen = _existing(entry, where) if given is None else given
    opened = open_text_encoder(chosen, column)
    if not same(describe_texts(opened), entry):
        raise _other_weights(where, chosen)
    return opened


def _existing(entry: dict[str, Any], where: str) -> str:
    """Returns the name of the encoder of an index; raises `InputError` if it is a folder that was moved."""
    name = str(entry["name"])
    if Path(name).is_absolute() and not Path(name).exists():
        raise InputError(
            f"{where}: its encoder {visible(name)!r} no longer exists; give its new place as encoder (--encoder RUN)"
        )
    return name


def _other_weights(where: str, chosen: Any) -> InputError:
    return InputError(
        f"{where}: the weights of {visible(chosen)!r} are not those that the index was built "
        "with, so its features cannot be compared; build the index again in another folder"
    )


def pair_encoder(entry: dict[str, Any], given: Any, where: str) -> PairEncoder:
    """Returns the towers of the run that an index was built with, of which one reads images and one texts.

    Args: as for `reopen`.

    Raises:
        InputError: the encoder of the index has no texts, or, of an index of texts, no images.
    """
    opened = _existing(entry, where) if given is None or isinstance(given, NamedEncoder) else given
    if isinstance(opened, str | Path) and (run_path(opened) is not None or is_published_pair(str(opened))):
        opened = load(opened)
    own, other = ("texts", "images") if "longest" in entry else ("images", "words")
    if not isinstance(opened, PairEncoder) or not opened.has_kind("image" if other == "images" else "text"):
        raise InputError(
            f"{where}: its encoder, {visible(entry['name'])}, compares {own}, not {other}; to search by {other}, train one on "
            "images with captions (coulomb train pairs.parquet --columns image,caption), and build the index with that run"
        )
    return opened


def same(entry: dict[str, Any], other: dict[str, Any]) -> bool:
    """Returns True if two encoders give the same features."""
    return all(entry.get(name) == other.get(name) for name in IDENTITY)


def bands_of(entry: dict[str, Any]) -> Bands | None:
    """Returns the bands that the encoder of an index takes; None for photos and texts."""
    canvas = entry.get("canvas")
    return None if canvas is None else Canvas.from_dict(canvas).bands


def title(entry: dict[str, Any]) -> str:
    """Returns name and image size, or longest text, for messages; for bands also which of them pictures show."""
    if "longest" in entry:
        return f"{visible(entry['name'])} of at most {entry['longest']} tokens"
    bands = bands_of(entry)
    shown = "" if bands is None else f"; pictures show {bands.shown}"
    return f"{visible(entry['name'])} at {entry['image_size']} pixels{shown}"
