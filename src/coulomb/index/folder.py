"""The folder of an index: paths, ``index.json``, and the files of one generation.

    photos.index/
      index.json                     what the index holds and how it was made; names the current generation
      generation-000002/
        features.npy                 [N, D] float16 or float32, unit length
        images.parquet               one row per image, see `coulomb.index.table`
        thumbnails.jpgs              JPEG files one after the other
        thumbnails.npy               [N + 1] int64: where each of them starts
      unfinished/                    work of a build that has not ended, see `coulomb.index.work`
      lock

An update writes a new generation and then replaces ``index.json``, so that a reader finds the old or the new index, never a
part of one. The old generation is removed afterwards; files that a reader has open remain readable.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.data.source import visible
from coulomb.errors import InputError
from coulomb.reading import Shape, check_shape, maybe, read_json, table, text, whole
from coulomb.runs.folder import locked, write_json

FORMAT = 1  # of the folder; raised when an older coulomb could not read it
REBUILD = "build it again with: coulomb index DATA --out INDEX"
PRECISIONS = ("float16", "float32")
INFO = {
    "generation": whole,
    "images": whole,
    "features": whole,
    "precision": Shape("float16 or float32", lambda value: value in PRECISIONS),
    "encoder": table,
    "data": table,
    "thumbnail": whole,
    "failed": table,
    "last_update": table,
}
ENCODER = {"name": text, "fingerprint": text, "image_size": whole, "canvas": maybe(table)}
DATA = {"name": text, "root": maybe(text)}


class IndexFolder:
    """Paths inside the folder of an index.

    Args:
        path: the folder; need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.info = self.path / "index.json"
        self.unfinished = self.path / "unfinished"
        self.lock = self.path / "lock"

    def generation(self, number: int) -> "Generation":
        """Returns the paths of one generation."""
        return Generation(self.path / f"generation-{number:06d}")

    def create(self) -> None:
        """Creates the folder unless it exists.

        Raises:
            InputError: it cannot be created, or holds other files.
        """
        where = f"out={visible(self.path)!r}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.path.iterdir()]
        except OSError as error:
            raise InputError(f"{where}: cannot be created ({error.strerror}); choose another folder") from None
        if others and not (self.info.exists() or self.unfinished.exists() or set(others) <= {"lock"}):
            raise InputError(f"{where}: holds other files ({visible(others[0])}, …); choose another folder")

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Holds the lock; afterwards removes unfinished work without images, and the folder if nothing is in it."""
        try:
            with locked(self.lock, "building this index"):
                try:
                    yield
                finally:
                    if not any(path.stat().st_size for path in self.unfinished.glob("part-*/photos.jsonl")):
                        shutil.rmtree(self.unfinished, ignore_errors=True)
        finally:
            with contextlib.suppress(OSError):  # not empty
                self.path.rmdir()

    def read_info(self) -> dict[str, Any]:
        """Returns the content of ``index.json``.

        Raises:
            InputError: the folder is not an index, its first build has not finished, it was written by a newer version, or
                the file is damaged.
        """
        where = visible(self.path)
        if not self.info.is_file():
            if self.unfinished.is_dir():
                raise InputError(f"{where}: is half-written: its build was interrupted; finish it by the same command")
            if not self.path.is_dir():
                raise InputError(f"{where}: no such folder; build one with: coulomb index DATA --out {where}")
            name = visible(self.path.resolve().name)
            build = f"coulomb index {where} --out {name}.index"
            if (self.path / "encoder.json").is_file():
                build = f"coulomb index DATA --encoder {where} --out DATA.index"
            raise InputError(f"{where}: not an index (no index.json in it); build one with: {build}")
        content = check_shape(self.info, read_json(self.info, remedy=REBUILD), {"format": whole}, REBUILD)
        if content["format"] > FORMAT:
            raise InputError(
                f"{where}: was written by coulomb {visible(content.get('coulomb'), 20)} in format {content['format']}, and "
                f"this version reads up to {FORMAT}; pip install -U coulomb"
            )
        check_shape(self.info, content, INFO, REBUILD)
        check_shape(self.info, content["encoder"], ENCODER, REBUILD)
        check_shape(self.info, content["data"], DATA, REBUILD)
        return content

    def publish(self, info: dict[str, Any]) -> None:
        """Makes ``info`` and its generation the current ones, and removes all others and the unfinished work."""
        write_json(self.info, info)
        current = self.generation(info["generation"]).path
        for path in [*self.path.glob("generation-*"), self.unfinished]:
            if path != current:
                shutil.rmtree(path, ignore_errors=True)  # on Windows, files that a reader has open remain


class Generation:
    """Paths of the files of one generation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.features = path / "features.npy"
        self.table = path / "images.parquet"
        self.thumbnails = path / "thumbnails.jpgs"
        self.offsets = path / "thumbnails.npy"
        self.files = (self.features, self.table, self.thumbnails, self.offsets)


class Thumbnails:
    """The memory-mapped thumbnails of a generation.

    Raises:
        InputError: the files do not belong together.
    """

    def __init__(self, generation: Generation, images: int) -> None:
        self.offsets = np.lib.format.open_memmap(generation.offsets, mode="r")
        size = generation.thumbnails.stat().st_size
        if self.offsets.shape != (images + 1,) or self.offsets.dtype != np.int64 or self.offsets[-1] != size:
            raise ValueError("its thumbnails do not fit its table")
        self.bytes = np.memmap(generation.thumbnails, mode="r") if size else np.empty(0, np.uint8)

    def __getitem__(self, row: int) -> bytes:
        start, end = (int(self.offsets[row + step]) for step in (0, 1))
        return self.bytes[max(0, start) : max(0, end)].tobytes()


def open_features(path: Path, info: dict[str, Any]) -> np.memmap:
    """Returns the memory-mapped features [N, D]; raises ValueError if the file does not fit ``info``."""
    features = np.lib.format.open_memmap(path, mode="r")
    if features.shape != (info["images"], info["features"]) or features.dtype != np.dtype(info["precision"]):
        raise ValueError(f"its features are {features.dtype} {list(features.shape)}")
    return features


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context that converts an `OSError` of writing into an `InputError` with what to do."""
    try:
        yield
    except OSError as error:
        where = visible(path)
        raise InputError(
            f"out={where!r}: cannot be written ({error.strerror or error}); finished work is kept: "
            "run the same command again when there is space"
        ) from None


def sync(path: Path) -> None:
    """Makes sure that a written file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
