"""The encoders of a run on several columns: pictures and texts as vectors of one space."""

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.reading import Shape, maybe, number, read_object, text, whole
from coulomb.ground.text import safe_name
from coulomb.kinds.image.canvas import STORED_CANVAS, Canvas
from coulomb.models.build_text import build_text_encoder
from coulomb.models.encoder import Encoder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.image_network import OWN_MODULE, ImageNetwork
from coulomb.models.pretrained import Pretrained
from coulomb.models.saving import load_encoder, read_description
from coulomb.models.text_encoder import IMAGE_FILES, TextEncoder
from coulomb.models.text_network import TextNetwork

DESCRIPTION = "towers.json"


def _describes_columns(value: Any) -> bool:
    named = isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())
    return named and all(text.fits(each.get(name)) for each in value.values() for name in ("kind", "tower"))


_columns = Shape("an object with kind and tower of each column", _describes_columns)
ENTRIES: dict[str, Shape] = {
    "format": whole,
    "columns": _columns,
    "canvas": maybe(STORED_CANVAS),
    "temperature": maybe(number),
}


class PairEncoder(Pretrained):
    """The towers of a run on several columns.

    Args:
        path: the run folder, with ``towers.json`` and ``towers/NAME``.
        module: the user's own module, if a tower was trained with one, or modules by column; their weights are replaced by
            the run's.
    """

    def __init__(self, path: str | Path, module: nn.Module | Mapping[str, nn.Module] | None = None) -> None:
        self.path = Path(path)
        self._module = module
        self.name = str(self.path.resolve())
        self.device: torch.device | None = None

    @cached_property
    def description(self) -> dict[str, Any]:
        """The content of ``towers.json``."""
        return read_object(self.path / DESCRIPTION, ENTRIES)

    @property
    def columns(self) -> Mapping[str, Mapping[str, str]]:
        """``kind`` and ``tower`` of each column."""
        columns: dict[str, dict[str, str]] = self.description["columns"]
        return columns

    @property
    def temperature(self) -> float:
        """The temperature of the loss at the end of the training: probabilities are the softmax of cosine / temperature.

        Raises:
            InputError: the method of the run has none.
        """
        temperature = self.description.get("temperature")
        if temperature is None or not 0 < temperature < math.inf:
            raise InputError(
                f"{self.path / DESCRIPTION}: temperature={temperature}: the run has none, so cosines cannot become "
                "probabilities; train with clip or siglip"
            )
        return float(temperature)

    @cached_property
    def _opened(self) -> dict[str, Any]:
        return {}

    def __getitem__(self, column: str) -> Any:
        """Returns the encoder of a column: an `ImageEncoder`, a `TextEncoder`, or a network of vectors.

        Raises:
            InputError: there is no such column.
        """
        if column not in self.columns:
            names = ", ".join(self.columns)
            raise InputError(f"column={column!r}: {self.name} has {names}{did_you_mean(column, list(self.columns))}")
        tower = self.columns[column]["tower"]
        if tower not in self._opened:
            network = self._network(tower)
            encoder: Any = network
            if isinstance(network, TextNetwork):
                encoder = TextEncoder(network, self.name)
            elif isinstance(network, ImageNetwork):
                canvas = self.description.get("canvas")
                encoder = ImageEncoder(network, self.name).with_canvas(
                    None if canvas is None else Canvas.from_dict(canvas)
                )
            encoder.device = self.device
            self._opened[tower] = encoder
        return self._opened[tower]

    def _network(self, tower: str) -> Encoder:
        """Opens the network of a tower."""
        folder = self.path / "towers" / safe_name(tower)
        if not isinstance(self._module, Mapping):
            return open_tower(folder, self._module)
        columns = [name for name, column in self.columns.items() if column["tower"] == tower]
        return open_tower(folder, next((self._module[name] for name in columns if name in self._module), None))

    def of_kind(self, kind: str) -> Any:
        """Returns the encoder of the first column of a kind: "image", "text" or "vector".

        Raises:
            InputError: there is none.
        """
        for name, column in self.columns.items():
            if column["kind"] == kind:
                return self[name]
        kinds = ", ".join(f"{name} ({column['kind']})" for name, column in self.columns.items())
        raise InputError(f"{self.name}: has no column of {kind}s; it has {kinds}")

    def has_kind(self, kind: str) -> bool:
        """Whether a column is of a kind."""
        return any(column["kind"] == kind for column in self.columns.values())

    def encode(self, cells: Any, *args: Any, column: str | None = None, **options: Any) -> Any:
        """Returns the embeddings [N, D] of pictures, texts or vectors in the space that all columns share; float32, CPU.

        Args:
            cells: texts; or pictures, see `ImageEncoder.encode`.
            args, options: of `ImageEncoder.encode` or `TextEncoder.encode`.
            column: whose encoder to use; default: the only one, else pictures and paths of picture files go to the first
                column of images, other strings to the first column of texts.

        Raises:
            InputError: there is no such column, or it cannot read these cells.

        Example:
            >>> run.encode("a red flower").shape, run.encode("rose.jpg").shape
            (torch.Size([1, 256]), torch.Size([1, 256]))
        """
        if column is None and len(self.columns) == 1:
            (column,) = self.columns
        encoder = self[column] if column is not None else self.of_kind(kind_of(cells))
        if isinstance(encoder, ImageEncoder | TextEncoder):
            return encoder.encode(cells, *args, **options)
        with torch.no_grad():
            return encoder(torch.as_tensor(np.asarray(cells), dtype=torch.float32))

    def similarity(self, a: Any, b: Any) -> Tensor:
        """Returns the cosines [N, M] of N and M pictures or texts, or embeddings [N, D]; float32, on the CPU.

        Example:
            >>> run.similarity("photos/", ["a red flower", "a dog"]).argmax(0)
        """
        first, second = (functional.normalize(self._embeddings(each), dim=1) for each in (a, b))
        return first @ second.T

    def _embeddings(self, given: Any) -> Tensor:
        if isinstance(given, np.ndarray | Tensor) and given.ndim == 2:
            rows = torch.as_tensor(given).detach().float().cpu()
            if not bool(rows.isfinite().all()):
                raise InputError("embeddings have values that are NaN or infinite")
            return rows
        encoded: Tensor = self.encode(given)
        return encoded

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


def open_tower(folder: Path, module: nn.Module | None = None) -> Encoder:
    """Opens the network of a tower: as a run saves it, or of texts as `coulomb.export.to_hub` does.

    ``module``: the user's, for a tower that was trained with one.
    """
    if (folder / "modules.json").is_file() and not (folder / "encoder.json").is_file():
        return build_text_encoder(str(folder)).eval()
    description = read_description(folder / "encoder.json")
    if description["kind"] != OWN_MODULE:
        return load_encoder(folder)
    if module is None:
        raise InputError(
            f"{folder}: holds the weights of your module {description['name']!r}; give it: coulomb.load(RUN, "
            f"module={description['name']}(…)), or module={{COLUMN: …}} for one of several"
        )
    return load_encoder(folder, module)


def kind_of(cells: Any) -> str:
    """Returns the kind of some cells: "image" for pictures, their files and folders, "text" for other strings."""
    first = cells
    if isinstance(cells, list | tuple) and cells:
        first = cells[0]
    if isinstance(first, str):
        path = Path(first).expanduser() if "\0" not in first and len(first) < 1000 else None
        names_images = path is not None and (path.suffix.lower() in IMAGE_FILES or (cells is first and path.is_dir()))
        return "image" if names_images else "text"
    if isinstance(first, Path | Image.Image | np.ndarray | Tensor):
        return "image"
    return "text" if hasattr(cells, "__len__") and len(cells) and isinstance(next(iter(cells)), str) else "image"
