"""The files of a generation, memory-mapped and verified: by their checksums in ``index.json``, and as what they should be.

A small index is verified when it is opened. Of a larger one, a sample of the features is looked at when it is opened. Its
table, the places of its thumbnails and its features are verified when they are first used, but the features not by a search,
which takes less time than SHA-256; and the thumbnails by `check_all` only.
"""

import contextlib
import hashlib
import io
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.index.folder import Generation, IndexFolder, rebuild
from coulomb.index.kinds import IMAGES, kind_of
from coulomb.metrics.rows import as_tensor

SMALL = 64 * 2**20  # bytes of all files: SHA-256 takes 40 ms
SAMPLE = 32  # rows of a larger index whose length is looked at when it is opened
BLOCK = 2**20  # elements of the features that are converted at a time
OFF_BY = 0.01  # largest difference of a length from 1; float16 has 0.0005
HEADER = 2**10  # bytes of an .npy file, at most


class StoredFile:
    """One file of a generation, memory-mapped.

    Args:
        path: the file.
        entry: its size and checksum in ``index.json``.

    Raises:
        ValueError: it has another size.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        self.name, self._sha256, self._verified = path.name, entry["sha256"], False
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise ValueError(f"{self.name} has {size} bytes instead of {entry['bytes']}")
        self.content = np.memmap(path, mode="r") if size else np.empty(0, np.uint8)

    def verify(self) -> None:
        """Reads all of the file, once; raises ValueError if it has changed since it was written."""
        if not self._verified and hashlib.sha256(self.content.data).hexdigest() != self._sha256:
            raise ValueError(f"{self.name} has changed since it was written")
        self._verified = True

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns the array of an .npy file; raises ValueError if it has another shape or type."""
        head = io.BytesIO(self.content[:HEADER].tobytes())
        try:
            version = np.lib.format.read_magic(head)
            found, by_columns, kind = np.lib.format.read_array_header_1_0(head)
        except Exception as error:  # of a damaged header: ValueError, SyntaxError, …
            raise ValueError(f"{self.name} is no array of NumPy: {error}") from None
        wanted = np.dtype(dtype)
        values = self.content[head.tell() :]
        if version != (1, 0) or by_columns or found != shape or kind != wanted:
            raise ValueError(f"{self.name} holds {kind} {list(found)} instead of {wanted} {list(shape)}")
        if values.nbytes != int(np.prod(shape)) * wanted.itemsize:
            raise ValueError(f"{self.name} is cut short")
        return values.view(wanted).reshape(shape)


class Contents:
    """The open files of one generation.

    Args:
        folder: folder of the index.
        info: the content of ``index.json``.

    Attributes:
        features: memory-mapped [N, D].

    Raises:
        FileNotFoundError: a file is missing.
        InputError: a file is damaged, as far as that is verified here.
    """

    def __init__(self, folder: IndexFolder, info: dict[str, Any]) -> None:
        self.kind = kind_of(info)
        generation = folder.generation(info["generation"], self.kind)
        self._path, self._images = folder.path, info[self.kind.plural]
        with self.reading():
            self.files = [StoredFile(path, info["files"][path.name]) for path in generation.files]
            features, self._table, *self._pictures = self.files
            small = sum(file.content.nbytes for file in self.files) <= SMALL
            if small:
                self.verify()
                self._parquet()
            self.features = features.array((self._images, info["features"]), info["precision"])
            self.check_lengths(None if small else np.linspace(0, self._images - 1, SAMPLE).astype(np.int64))
            self._features_verified = small

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Context that converts errors of reading into an `InputError` with what to do."""
        import pyarrow as pa

        try:
            yield
        except (FileNotFoundError, InputError):
            raise
        except PermissionError as error:
            raise InputError(f"{visible(self._path)}: cannot be read ({error.strerror})") from None
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(self._path, [str(error)]) from None

    def verify(self) -> None:
        """Reads all files; raises `InputError` if one has changed since it was written."""
        with self.reading():
            for file in self.files:
                file.verify()

    def verify_features(self) -> None:
        """Reads all features, once; raises `InputError` if they have changed or are not of unit length."""
        with self.reading():
            if not self._features_verified:
                self.files[0].verify()
                self.check_lengths()
                self._features_verified = True

    def check_lengths(self, rows: np.ndarray | None = None) -> None:
        """Raises ValueError unless features have unit length; ``rows``: look at these only."""
        step = max(1, BLOCK // self.features.shape[1])
        whole = [slice(start, start + step) for start in range(0, self._images, step)]
        for part in whole if rows is None else [rows]:
            lengths = torch.linalg.vector_norm(as_tensor(self.features[part]).float(), dim=1)
            wrong = (~((lengths - 1).abs() <= OFF_BY)).nonzero().squeeze(1)  # NaN is wrong, too
            if len(wrong):
                row, length = np.arange(self._images)[part][wrong[0]], float(lengths[wrong[0]])
                raise ValueError(f"{self.files[0].name}: row {row} has length {length:.4g} instead of 1")

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._table.verify()
        opened = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._table.content)))
        wanted, found = (
            {field.name: str(field.type) for field in each} for each in (self.kind.schema(), opened.schema_arrow)
        )
        if found != wanted or len(opened.schema_arrow) != len(wanted):
            listed = first_few([f"{field.name}: {field.type}" for field in opened.schema_arrow], 10)
            raise ValueError(f"{self._table.name} has the columns {listed} instead of the columns of an index")
        if opened.metadata.num_rows != self._images:
            raise ValueError(f"{self._table.name} has {opened.metadata.num_rows} rows instead of {self._images}")
        return opened

    @cached_property
    def table(self) -> Any:
        """The table of the images; a ``pyarrow.Table``."""
        with self.reading():
            table = self._parquet().read()
            if missing := table.column("id").null_count:
                raise ValueError(f"{self._table.name}: {missing} {self.kind.plural} have no id")
            return table

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each thumbnail starts [N + 1]."""
        jpegs, places = self._pictures
        with self.reading():
            places.verify()
            offsets = places.array((self._images + 1,), np.int64)
            if offsets[0] != 0 or offsets[-1] != jpegs.content.nbytes or bool((np.diff(offsets) < 0).any()):
                raise ValueError(f"{places.name} does not fit {jpegs.name}")
            return offsets

    def thumbnail(self, row: int) -> bytes:
        """Returns the JPEG of one image."""
        start, end = (int(self.offsets[row + step]) for step in (0, 1))
        return self._pictures[0].content[start:end].tobytes()


def open_contents(folder: IndexFolder) -> tuple[dict[str, Any], Contents]:
    """Returns the content of ``index.json`` and the open files of its generation, also while an update replaces them.

    Raises:
        InputError: the folder is not an index, or damaged.
    """
    read = -1
    while True:
        info = folder.read_info()
        try:
            return info, Contents(folder, info)
        except FileNotFoundError:
            if info["generation"] == read:
                generation = folder.generation(info["generation"], kind_of(info))
                missing = next((path.name for path in generation.files if not path.exists()), generation.path.name)
                raise InputError(
                    f"{visible(folder.path)}: is half-written, {missing} is missing; {rebuild(folder.path)}"
                ) from None
            read = info["generation"]  # an update has just replaced it


def check_all(folder: IndexFolder) -> dict[str, Any]:
    """Verifies all files of an index.

    Returns:
        ``images`` or ``texts``, their number; ``bytes``; and ``files``, their names.

    Raises:
        InputError: the folder is not an index, or files are damaged; the message names all of them.
    """
    while True:
        info = folder.read_info()
        generation = folder.generation(info["generation"], kind_of(info))
        damages = [damage for path in generation.files if (damage := _damage(path, info["files"][path.name]))]
        if not damages or folder.read_info()["generation"] == info["generation"]:
            break  # else an update has just replaced the files
    if damages:
        raise damaged(folder.path, damages)
    info, contents = open_contents(folder)
    with contents.reading():
        contents.verify_features()
        if contents.kind is IMAGES:
            contents.offsets  # noqa: B018 — verified when they are read
        if len(set(contents.table.column("id").to_pylist())) < info[contents.kind.plural]:  # 1 s for 5 million
            raise ValueError(f"{contents.kind.files[1]}: an id occurs twice")
    sizes = {file.name: file.content.nbytes for file in contents.files}
    plural = contents.kind.plural
    return {plural: info[plural], "bytes": sum(sizes.values()), "files": list(sizes)}


def _damage(path: Path, entry: dict[str, Any]) -> str | None:
    try:
        StoredFile(path, entry).verify()
    except FileNotFoundError:
        return f"{path.name} is missing"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def damaged(path: Path, damages: list[str]) -> InputError:
    """Returns the error of an index with these damages."""
    return InputError(f"{visible(path)}: is damaged ({visible('; '.join(damages), 500)}); {rebuild(path)}")


def checksums(generation: Generation) -> dict[str, dict[str, Any]]:
    """Returns size and SHA-256 of the files of a generation by name, the entry ``files`` of ``index.json``."""
    entries = {}
    for path in generation.files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        entries[path.name] = {"bytes": path.stat().st_size, "sha256": digest}
    return entries
