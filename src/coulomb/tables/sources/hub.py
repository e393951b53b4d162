"""Data sets of the ``datasets`` library, in memory or by their name on the hub: their images, or their columns."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.pictures import PictureRows
from coulomb.tables.sheet import Sheet
from coulomb.tables.source import EncodedSource
from coulomb.tables.sources.files import is_inside
from coulomb.tables.sources.parquet import IMAGE_COLUMNS

HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(:[\w.-]+)?")
_PLAIN_TYPES = ("int", "uint", "float", "string", "large_string", "bool", "date", "timestamp")
_ROWS = 1000  # that are read together to find missing images


class HubPictures(EncodedSource):
    """A column of images of a ``datasets.Dataset``, read undecoded from its memory-mapped tables."""

    kind = "hub"

    def __init__(self, dataset: Any, *, name: str, column: str) -> None:
        from datasets import Image

        self.name, self.column = name, column
        self.dataset = dataset.with_format(None).select_columns([column]).cast_column(column, Image(decode=False))

    def __len__(self) -> int:
        return len(self.dataset)

    def item_id(self, index: int) -> str:
        """Returns the row number with leading zeros; paths of hub rows are not unique."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def encoded(self, index: int) -> bytes | Path:
        """Returns the stored bytes, or a file inside the download folder of the hub."""
        from datasets import config

        value = self.dataset[int(index)][self.column]
        if value is None or (value["bytes"] is None and value["path"] is None):
            raise CorruptImage(self.item_id(index), "the row holds no image")
        if value["bytes"] is not None:
            return bytes(value["bytes"])
        downloads = [Path(folder).expanduser().resolve() for folder in (config.HF_CACHE_HOME, config.HF_DATASETS_CACHE)]
        path = Path(value["path"])
        if not any(is_inside(path, folder) for folder in downloads):
            raise CorruptImage(self.item_id(index), f"its path {path} leads outside the hub's download folder")
        return path


class HubSource(HubPictures):
    """A ``datasets.Dataset`` with an Image column.

    Labels are in ``label_column``, by default the first column with a usual name, or the only ClassLabel.
    """

    def __init__(
        self, dataset: Any, *, name: str, label_column: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        from datasets import ClassLabel, Image

        features = dataset.features
        images = [column for column, feature in features.items() if isinstance(feature, Image)]
        if not images:
            raise InputError(f"{visible(name)}: no image column among {first_few(list(features))}")
        column = next((column for column in IMAGE_COLUMNS if column in images), images[0])
        self.notes = notes
        classes = [column for column, feature in features.items() if isinstance(feature, ClassLabel)]
        label_column = choose_label_column(list(features), label_column, classes, visible(name))
        if label_column is not None:
            names = getattr(features[label_column], "names", None)
            values = dataset.with_format(None)[label_column]
            self.labels, self.class_names = read_labels(list(values), len(dataset), visible(name), names)
        self._others = dataset.with_format(None).remove_columns([*images, *([label_column] if label_column else [])])
        super().__init__(dataset, name=name, column=column)
        if not len(dataset):
            raise InputError(f"{visible(name)}: the data set is empty")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_others": None}  # workers read images only

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of numbers, text, booleans or dates that are not the labels."""
        kinds = {name: getattr(feature, "dtype", "") for name, feature in self._others.features.items()}
        plain = [name for name, kind in kinds.items() if str(kind).startswith(_PLAIN_TYPES)]
        return {name: list(self._others[name]) for name in plain}


@contextmanager
def _offline_without_network() -> Iterator[None]:
    """Uses the download cache only if the address of the hub cannot be resolved; retries would take half a minute."""
    import datasets
    import huggingface_hub.constants as hub

    host = urlsplit(datasets.config.HF_ENDPOINT).hostname
    flags = ((datasets.config, "HF_HUB_OFFLINE"), (hub, "HF_HUB_OFFLINE"))
    before = [getattr(module, name) for module, name in flags]
    try:
        if not getproxies():  # behind a proxy, names need not resolve here
            socket.getaddrinfo(host, 443)
    except OSError:
        for module, name in flags:
            setattr(module, name, True)
    try:
        yield
    finally:
        for (module, name), value in zip(flags, before, strict=True):
            setattr(module, name, value)


def open_hub(name: str, *, label_column: str | None = None) -> HubSource:
    """Opens the images of a data set of the hub, see `load_hub`."""
    dataset, name, notes = load_hub(name)
    return HubSource(dataset, name=name, label_column=label_column, notes=notes)


def load_hub(name: str) -> tuple[Any, str, tuple[str, ...]]:
    """Loads a data set of the hub, ``user/name`` or ``user/name:split``, without running code of the data set.

    The default split is ``train``, or the only one. Raises :class:`InputError` if the data set is not available.

    Returns:
        The ``datasets.Dataset``, its name with the split, and notes.
    """
    import datasets

    name, _, split = name.partition(":")
    try:
        with _offline_without_network():
            loaded = datasets.load_dataset(name)
    except Exception as error:  # every layer of the loader has its own errors for a missing network or name
        raise InputError(
            f"{visible(name)}: no such file or folder here, and not available as a data set of the hub "
            f"({type(error).__name__}: {visible(error, 160)}); check the spelling and the network, or download it first"
        ) from None
    splits = list(loaded)
    chosen = split or ("train" if "train" in splits else splits[0])
    if chosen not in splits or (not split and len(splits) > 1 and "train" not in splits):
        raise InputError(f"{visible(name)}: choose a split, {visible(name)}:SPLIT with one of {first_few(splits)}")
    notes = () if len(splits) == 1 else (f"Split {chosen!r} of {first_few(splits)}.",)
    return loaded[chosen], f"{name}:{chosen}", notes


def open_hub_sheet(name: str) -> Sheet:
    """Opens a data set of the hub, ``user/name`` or ``user/name:split``, see `load_hub`."""
    dataset, name, notes = load_hub(name)
    return open_dataset(dataset, name, notes)


def open_dataset(dataset: Any, name: str = "datasets.Dataset", notes: tuple[str, ...] = ()) -> Sheet:
    """Opens a ``datasets.Dataset``; images stay in its memory-mapped tables.

    Raises:
        InputError: it is a dictionary of splits.
    """
    from datasets import ClassLabel, Image

    if not hasattr(dataset, "features") or not hasattr(dataset, "with_format"):
        raise InputError(f"data={type(dataset).__name__}: choose one split, for example data['train']")
    if dataset.features is None or not hasattr(dataset, "__len__"):
        raise InputError(f"{visible(name)}: a stream has no rows to choose from; load the data set without streaming")
    features = dataset.features
    pictures = [column for column, feature in features.items() if isinstance(feature, Image)]
    names = {column: list(feature.names) for column, feature in features.items() if isinstance(feature, ClassLabel)}
    plain = dataset.with_format("arrow")

    def read(column: str) -> Any:
        if column not in pictures:
            return plain.select_columns([column])[:].column(column)
        source = HubPictures(dataset, name=name, column=column)
        if not dataset.data.column(column).null_count:
            return source
        cells = plain.select_columns([column])
        missing = [batch.column(column).is_null().to_numpy() for batch in cells.iter(_ROWS)]
        return PictureRows(source, np.where(np.concatenate(missing), -1, np.arange(len(source))))

    return Sheet(name, "hub", len(dataset), list(features), read, notes=notes, class_names=names)
