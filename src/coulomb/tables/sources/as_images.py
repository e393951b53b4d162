"""Opens whatever holds images as a :class:`~coulomb.tables.source.Source`: finds the module of its place."""

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, portable, visible
from coulomb.tables.labels import read_labels
from coulomb.tables.shards.addresses import (
    is_local,
    matching_files,
    named_shards,
    names_shards,
    require_one_part,
    shard_suffixes,
)
from coulomb.tables.source import Source
from coulomb.tables.sources.array_columns import array_column, open_array_column
from coulomb.tables.sources.arrays import MOST_CHANNELS, ArraySource, find_layout, open_array_file, open_digits
from coulomb.tables.sources.files import PATH_COLUMNS, open_file_list
from coulomb.tables.sources.folder import open_folder, scan_folder
from coulomb.tables.sources.frames import is_frame, is_series, open_frame
from coulomb.tables.sources.hub import HUB_NAME, HubSource, open_hub
from coulomb.tables.sources.objects import DatasetSource, ImageListSource, dataset_of
from coulomb.tables.sources.parquet import image_columns, open_parquet, read_footer
from coulomb.tables.sources.remote_parquet import open_remote_parquet
from coulomb.tables.sources.tar import open_tar

BUILT_IN: dict[str, Callable[[], Source]] = {"digits": open_digits}
_TABLES = {"file list", "parquet", "hub", "tar", "data frame"}


def open_source(data: Any, *, labels: Any = None, root: str | Path | None = None) -> Source:
    """Opens a data set of images.

    Args:
        data: "digits" · a folder of images or of Parquet or tar shards · a .parquet file (images or a list of paths) or a
            pattern such as ``data/train-*.parquet`` · .tar shards in the layout of WebDataset · an address of shards, local or
            ``https://…/train-{0000..0999}.tar``, ``s3://…``, ``hf://…`` · a .csv or .tsv list of paths · .npy, .npz ·
            ``user/name`` or ``hub:name`` of the hub, with ``:split`` · an array, an (images, labels) pair of arrays · a torch
            ``Dataset``, or a ``DataLoader``, of which the data set is used · ``datasets.Dataset`` · a data frame of pandas or
            polars, or a table of Arrow, with a column of paths, bytes, Pillow images or arrays · a ``Source``. Existing files
            take precedence over names.
        labels: None uses the labels of the source; False or "none" ignores them; another string names the label column of
            a table; a sequence gives one label per image (−1 = unknown).
        root: the folder that the paths of a file list are relative to and cannot leave; default the folder of the list.

    Raises:
        InputError: ``data`` cannot be opened, or the labels do not fit.
    """
    if isinstance(labels, str) and labels.lower() == "none":
        labels = False
    column = labels if isinstance(labels, str) else None
    folder = None if root is None else Path(root).expanduser()
    if isinstance(data, (str, Path)):
        source = _open_named(data, column, folder)
    else:
        source = _open_object(data, column, labels, folder)
    if column is not None and source.kind not in _TABLES and not str(data).lower().endswith(".npz"):
        raise InputError(
            f"labels={visible(column)!r}: a {source.kind} has no columns; give 'none' or one label per image"
        )
    if folder is not None and source.kind != "file list":
        raise InputError(
            f"root={visible(folder)}: {visible(source.name)} is not a list of paths; only a list of paths has a root"
        )
    return source if labels is None or column is not None else _with_labels(source, labels)


def open_images(images: Any) -> Source:
    """Opens one image or several, the argument of ``Run.encode``.

    Args:
        images: the path of an image file, a Pillow image, an array or a tensor, or a list of these; a batch as one array
            [N, H, W, C], [N, C, H, W] or [N, H, W], or as one tensor [N, C, H, W]; or a data set, see `open_source`. Values
            are uint8, uint16, or floats in [0, 1].

    Raises:
        InputError: these are not images, floats are outside [0, 1], or the axes of an array are ambiguous.
    """
    if isinstance(images, np.ndarray | torch.Tensor):
        return ImageListSource(_split_batch(images))
    if isinstance(images, Image.Image | tuple):
        return ImageListSource(list(images) if isinstance(images, tuple) else [images])
    return open_files(images, labels=False)


def open_files(data: Any, *, labels: Any = None) -> Source:
    """Opens a list of images or the path of a single image file, and everything else by `open_source`."""
    if isinstance(data, list) or is_series(data):
        return ImageListSource(list(data))
    path = Path(data).expanduser() if isinstance(data, str | Path) and "\0" not in str(data) else None
    if path is not None and path.is_file() and path.suffix.lower() not in _FILES:
        return ImageListSource([path])
    return open_source(data, labels=labels)


def _split_batch(images: Any) -> list[Any]:
    """Returns the images of an array or tensor, which may be a single image."""
    shape = tuple(images.shape)
    if len(shape) == 4:
        if isinstance(images, np.ndarray) and find_layout(shape, None, "images") == "NCHW":
            images = np.moveaxis(images, 1, -1)
        return list(images)
    if len(shape) == 2 or (len(shape) == 3 and isinstance(images, torch.Tensor)):
        return [images]
    if len(shape) != 3:
        raise InputError(
            f"images: an array of shape {list(shape)}; one image is [H, W] or [H, W, C] (a tensor [C, H, W]), "
            "a batch has one more axis in front"
        )
    first, height, last = shape
    if last <= MOST_CHANNELS and last < min(first, height):
        return [images]
    if first <= MOST_CHANNELS and first < min(height, last):
        raise InputError(
            f"images: an array of shape {list(shape)} may be one image [C, H, W] or {first} gray ones [N, H, W]; "
            "give images.transpose(1, 2, 0) for one, or images[..., None] for a batch"
        )
    return list(images)  # [N, H, W]


def _with_labels(source: Source, labels: Any) -> Source:
    source = copy.copy(source)
    source.labels, source.class_names = None, None
    if labels is not False:
        source.labels, source.class_names = read_labels(labels, len(source), "labels=")
    return source


def _open_object(data: Any, column: str | None, labels: Any, root: Path | None) -> Source:
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__array__") for part in data):
        source = _open_object(data[0], column, labels, root)
        if labels is None:
            source.labels, source.class_names = read_labels(np.asarray(data[1]), len(source), "labels")
        return source
    if isinstance(data, Source):
        return data
    if isinstance(data, np.ndarray):
        return ArraySource(data)
    if isinstance(data, torch.Tensor):
        return ArraySource(data.detach().cpu().numpy(), layout="NCHW" if data.ndim == 4 else None)
    if is_frame(data):
        return open_frame(data, label_column=column, root=root)
    if isinstance(data, torch.utils.data.DataLoader):
        data = dataset_of(data)
    if type(data).__module__.split(".")[0] == "datasets":
        if type(data).__name__.startswith("Iterable"):
            raise InputError(
                f"data={type(data).__name__}: a streamed data set has no items by number; load it without streaming=True, or "
                "give the addresses of its shards (hf://datasets/USER/NAME/data/train-*.parquet)"
            )
        if hasattr(data, "features"):
            return HubSource(data, name="datasets.Dataset", label_column=column)
        raise InputError(f"data={type(data).__name__}: choose one split, for example data['train']")
    is_map = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, torch.utils.data.Dataset) or (is_map and not isinstance(data, (list, tuple, dict, bytes))):
        return DatasetSource(data, labels=None if column is not None else labels)
    raise InputError(
        f"data is a {type(data).__name__}; give 'digits', a path, a hub name, a NumPy array, a data frame, a torch Dataset or "
        "a Source"
    )


def _open_named(data: str | Path, column: str | None, root: Path | None) -> Source:
    text = str(data)
    path = Path(text).expanduser()
    if not text or "\0" in text:
        raise InputError(f"data={visible(text)!r} is not a path; give a folder, a file or 'digits'")
    try:
        if path.is_dir():
            return _open_directory(path, column)
        if path.exists():
            return _open_file(path, column, root)
    except PermissionError:
        raise InputError(f"{visible(text)}: permission denied") from None
    except OSError as error:
        raise InputError(f"{visible(text)}: {error.strerror}") from None
    if text in BUILT_IN:
        return BUILT_IN[text]()
    if names_shards(text):
        return _open_addresses(text, column)
    if "*" in path.name and path.parent.is_dir():
        shards = matching_files(path)
        if not shards:
            raise InputError(f"{visible(text)}: no file matches this pattern")
        return _open_shards(shards, path.name, column)
    if text.startswith("hub:"):
        return open_hub(text.removeprefix("hub:"), label_column=column)
    if HUB_NAME.fullmatch(text) and path.suffix.lower() not in _FILES:
        return open_hub(text, label_column=column)
    raise InputError(
        f"{visible(text)}: no such file or folder (built in: {', '.join(BUILT_IN)}; a hub data set is user/name or hub:name)"
    )


def _open_directory(path: Path, column: str | None) -> Source:
    scan = scan_folder(path)
    if not scan.images and not scan.parquet and (tars := matching_files(path / "*.tar")):
        return open_tar([str(tar) for tar in tars], name=path.resolve().name, label_column=column)
    if scan.images or not scan.parquet:
        return open_folder(path, scan)
    return _open_shards([path / shard for shard in scan.parquet], path.resolve().name, column)


def _open_addresses(text: str, column: str | None) -> Source:
    """Opens shards given by URLs, braces or the names of tar files."""
    addresses = named_shards(text)
    kinds = shard_suffixes(addresses)
    if kinds == {"tar"}:
        return open_tar(addresses, name=_shared_name(addresses), label_column=column)
    if kinds == {"parquet"} and not is_local(addresses):
        return open_remote_parquet(addresses, name=_shared_name(addresses), label_column=column)
    if kinds == {"parquet"}:
        return open_parquet([Path(each) for each in addresses], name=_shared_name(addresses), label_column=column)
    raise InputError(
        f"{visible(text)}: shards are .tar or .parquet files, not {first_few(sorted(kinds))}; unpack compressed archives"
    )


def _shared_name(addresses: list[str]) -> str:
    """Returns what the names of shards have in common: ``train`` for ``train-0000.tar`` and ``train-0001.tar``."""
    last = [address.split("?", 1)[0].rsplit("/", 1)[-1] for address in addresses]
    shared = os.path.commonprefix(last)  # noqa: RUF071  of the text
    return portable(re.sub(r"[-_.]?\d*(\.\w+)?$", "", shared) or "shards") if len(last) > 1 else portable(last[0])


def _open_shards(shards: list[Path], name: str, column: str | None) -> Source:
    require_one_part(shards, name)
    if (arrays := _arrays(read_footer(shards[0]))) is not None:
        return open_array_column(shards, arrays, name=portable(name), label_column=column)
    return open_parquet(shards, name=portable(name), label_column=column)


def _arrays(footer: Any) -> str | None:
    """Returns the column of arrays of a table without encoded images and without paths; None if there is none."""
    fields = footer.schema.to_arrow_schema()
    paths = [field for field in fields if field.name in PATH_COLUMNS and str(field.type).endswith("string")]
    return None if image_columns(footer) or paths else array_column(footer)


def _open_parquet_file(path: Path, column: str | None, root: Path | None) -> Source:
    footer = read_footer(path)
    if image_columns(footer):
        return open_parquet([path], name=portable(path.name), label_column=column)
    if (arrays := _arrays(footer)) is not None:
        return open_array_column([path], arrays, name=portable(path.name), label_column=column)
    return open_file_list(path, label_column=column, root=root)


def _open_list(path: Path, column: str | None, root: Path | None) -> Source:
    return open_file_list(path, label_column=column, root=root)


def _open_tar_file(path: Path, column: str | None, root: Path | None) -> Source:
    del root  # members are not paths of files
    return open_tar([str(path)], name=portable(path.name), label_column=column)


def _open_arrays(path: Path, column: str | None, root: Path | None) -> Source:
    del root  # arrays hold no paths
    return open_array_file(path, label_column=column)


_FILES: dict[str, Callable[[Path, str | None, Path | None], Source]] = {
    ".parquet": _open_parquet_file,
    ".csv": _open_list,
    ".tsv": _open_list,
    ".npy": _open_arrays,
    ".npz": _open_arrays,
    ".tar": _open_tar_file,
}


def _open_file(path: Path, column: str | None, root: Path | None) -> Source:
    opener = _FILES.get(path.suffix.lower())
    if opener is None or not path.is_file():
        raise InputError(
            f"{visible(path)}: not a data set ({', '.join(_FILES)} or a folder of images can be opened); "
            "pickles and archives are never unpacked"
        )
    return opener(path, column, root)
