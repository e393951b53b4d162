"""A data set of the hub by its name, or a ``datasets.Dataset`` that is already there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from coulomb.data.encoded import EncodedSource
from coulomb.data.file_list import LABEL_COLUMNS
from coulomb.data.files import is_inside
from coulomb.data.labels import read_labels
from coulomb.data.names import some, visible
from coulomb.data.source import CorruptImage
from coulomb.errors import InputError


class HubSource(EncodedSource):
    """A ``datasets.Dataset`` with an Image column, read undecoded from its memory-mapped tables.

    ``label_column`` None takes the first of the usual names, or the only ClassLabel.
    """

    kind = "hub"

    def __init__(
        self, dataset: Any, *, name: str, label_column: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        from datasets import ClassLabel, Image

        features = dataset.features
        images = [column for column, feature in features.items() if isinstance(feature, Image)]
        if not images:
            raise InputError(f"{visible(name)}: no image column among {some(list(features))}")
        self.column = next((column for column in ("image", "img") if column in images), images[0])
        self.name = name
        self.notes = notes
        classes = [column for column, feature in features.items() if isinstance(feature, ClassLabel)]
        if label_column is not None and label_column not in features:
            raise InputError(
                f"{visible(name)}: no label column {visible(label_column)!r}; there are {some(list(features))}"
            )
        if label_column is None:
            label_column = next((usual for usual in LABEL_COLUMNS if usual in features), None)
        if label_column is None and len(classes) > 1:
            raise InputError(f"{visible(name)}: several label columns ({some(classes)}); choose one with labels=")
        if label_column is None and classes:
            label_column = classes[0]
        if label_column is not None:
            names = getattr(features[label_column], "names", None)
            values = dataset.with_format(None)[label_column]
            self.labels, self.class_names = read_labels(list(values), len(dataset), visible(name), names)
        self._others = dataset.with_format(None).remove_columns([*images, *([label_column] if label_column else [])])
        self.dataset = (
            dataset.with_format(None).select_columns([self.column]).cast_column(self.column, Image(decode=False))
        )
        if not len(dataset):
            raise InputError(f"{visible(name)}: the data set is empty")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_others": None}  # workers read images only

    def other_columns(self) -> dict[str, list[Any]]:
        """The columns of integers, text or truth values that are not the labels."""
        kinds = {name: getattr(feature, "dtype", "") for name, feature in self._others.features.items()}
        plain = [name for name, kind in kinds.items() if str(kind).startswith(("int", "uint", "string", "bool"))]
        return {name: list(self._others[name]) for name in plain}

    def __len__(self) -> int:
        return len(self.dataset)

    def item_id(self, index: int) -> str:
        """The row number, with leading zeros: paths of hub rows are not unique."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def encoded(self, index: int) -> bytes | Path:
        """The stored bytes, or a file inside the hub's own download folder."""
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


@contextmanager
def _offline_where_there_is_no_network() -> Iterator[None]:
    """Look into the download cache at once where the hub's address is unknown: the loader would retry for half a minute."""
    import datasets
    import huggingface_hub.constants as hub

    host = urlsplit(datasets.config.HF_ENDPOINT).hostname
    places = ((datasets.config, "HF_HUB_OFFLINE"), (hub, "HF_HUB_OFFLINE"))
    before = [getattr(place, name) for place, name in places]
    try:
        if not getproxies():  # behind a proxy names need not resolve here
            socket.getaddrinfo(host, 443)
    except OSError:
        for place, name in places:
            setattr(place, name, True)
    try:
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


def open_hub(name: str, *, label_column: str | None = None) -> HubSource:
    """``user/name`` or ``user/name:split`` (default split: ``train``, or the only one). A data set's own code never runs."""
    import datasets

    name, _, split = name.partition(":")
    try:
        with _offline_where_there_is_no_network():
            found = datasets.load_dataset(name)
    except Exception as error:  # every layer below has its own errors for "no network" and "no such name"
        raise InputError(
            f"{visible(name)}: no such file or folder here, and not available as a data set of the hub "
            f"({type(error).__name__}: {visible(error, 160)}); check the spelling and the network, or download it first"
        ) from None
    splits = list(found)
    wanted = split or ("train" if "train" in splits else splits[0])
    if wanted not in splits or (not split and len(splits) > 1 and "train" not in splits):
        raise InputError(f"{visible(name)}: choose a split, {visible(name)}:SPLIT with one of {some(splits)}")
    notes = () if len(splits) == 1 else (f"Split {wanted!r} of {some(splits)}.",)
    return HubSource(found[wanted], name=f"{name}:{wanted}", label_column=label_column, notes=notes)
