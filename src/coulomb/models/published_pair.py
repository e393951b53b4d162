"""A published model for images and texts, CLIP or SigLIP, as an encoder of both."""

from pathlib import Path
from typing import Any

from coulomb.models.build_pair import NEEDED, build_pair, is_pair
from coulomb.models.encoder import Encoder
from coulomb.models.names import AT_WEIGHTS, is_local, is_published
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.published import import_library
from coulomb.models.text_layout import Repository

IMAGE, TEXT = "image", "text"  # the names of its columns


class PublishedPair(PairEncoder):
    """Both encoders of CLIP or SigLIP with their weights, in their common space, as `PairEncoder` has those of a run.

    Its columns are ``image`` and ``text``, and its temperature is that of the weights. Pictures and texts are prepared by the
    model's own image processor and tokenizer.

    Args:
        name: ``hf:NAME@weights``, or a folder that transformers saved.
        image_size: side of the square images in pixels; default: the size of the weights.

    Raises:
        InputError: see `coulomb.models.build_pair`.
    """

    def __init__(self, name: str, *, image_size: int | None = None) -> None:
        super().__init__(name)
        self.name = str(Path(name).expanduser().resolve()) if is_local(name) else name
        pair = build_pair(name, image_size=image_size)
        self._networks: dict[str, Encoder] = {IMAGE: pair.image.eval(), TEXT: pair.text.eval()}
        self.description: dict[str, Any] = {
            "format": 1,
            "canvas": None,
            "columns": {column: {"kind": column, "tower": column} for column in (IMAGE, TEXT)},
            "temperature": pair.temperature,
        }

    def _network(self, tower: str) -> Encoder:
        return self._networks[tower]


def is_published_pair(name: str) -> bool:
    """Returns True for a folder that transformers saved, or ``hf:NAME@weights``, with a model for images and texts.

    Of ``hf:NAME@weights``, the configuration is downloaded.
    """
    if is_local(name):
        folder = Path(name).expanduser()
        return (folder / "config.json").is_file() and is_pair(name)
    if not (is_published(name) and name.startswith("hf:") and name.endswith(AT_WEIGHTS)):
        return False
    model = name.removeprefix("hf:").removesuffix(AT_WEIGHTS)
    if model in import_library("hf").CONFIG_MAPPING:  # a model type, which has no weights
        return False
    entries = Repository(model, name).entries("config.json")
    return all(isinstance(entries.get(each), dict) for each in NEEDED)
