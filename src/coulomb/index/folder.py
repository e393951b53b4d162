"""The folder of an index: paths, ``index.json``, and the files of one generation.

    photos.index/
      index.json                     what the index holds and how it was made; names the current generation, with checksums
      generation-000002/
        features.npy                 [N, D] float16 or float32, unit length
        images.parquet               one row per image, see `coulomb.index.table`
        thumbnails.jpgs              JPEG files one after the other
        thumbnails.npy               [N + 1] int64: where each of them starts
      unfinished/                    work of a build that has not ended, see `coulomb.index.work`
      browse/                        decisions of `coulomb browse`
      lock

An index of texts has ``texts.parquet`` in place of the last three files, see `coulomb.index.texts`.

An update writes a new generation and then replaces ``index.json``, so that a reader finds the old or the new index, never a
part of one. The old generation is removed afterwards; files that a reader has open remain readable.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.files import locked, write_json
from coulomb.ground.reading import Shape, check_shape, maybe, read_json, table, text, whole
from coulomb.ground.text import visible
from coulomb.index.kinds import COLUMN, IMAGES, IndexKind, kind_of, sha256

FORMAT = 2  # of the folder; raised when an older coulomb could not read it
PRECISIONS = ("float16", "float32")
OURS = ("index.json", "lock", "browse", "unfinished")
_file = {"bytes": whole, "sha256": sha256}
FILES = IMAGES.files
INFO = {
    "generation": whole,
    "features": whole,
    "precision": Shape("float16 or float32", lambda value: value in PRECISIONS),
    "encoder": table,
    "data": table,
    "failed": table,
    "last_update": table,
    "files": table,
}
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

    def generation(self, number: int, kind: IndexKind = IMAGES) -> "Generation":
        """Returns the paths of one generation of an index of a kind."""
        return Generation(self.path / f"generation-{number:06d}", kind)

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
        others = [name for name in others if name not in OURS and not name.startswith("generation-")]
        if others and not (self.info.exists() or self.unfinished.exists()):
            raise InputError(f"{where}: holds other files ({visible(others[0])}, …); choose another folder")

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Holds the lock; afterwards removes unfinished work without images or texts, and the folder if nothing is in it."""
        try:
            with locked(self.lock, "building this index"):
                try:
                    yield
                finally:
                    if not any(path.stat().st_size for path in self.unfinished.glob("part-*/*.jsonl")):
                        shutil.rmtree(self.unfinished, ignore_errors=True)
        finally:
            with contextlib.suppress(OSError):  # not empty
                self.path.rmdir()

    def read_info(self) -> dict[str, Any]:
        """Returns the content of ``index.json``.

        Raises:
            InputError: the folder is not an index, its first build has not finished, it was written by another version, or
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
            if any((self.path / name).is_file() for name in ("encoder.json", "towers.json")):  # a run
                build = f"coulomb index DATA --encoder {where} --out DATA.index"
            raise InputError(f"{where}: not an index (no index.json in it); build one with: {build}")
        remedy = rebuild(self.path)
        content = check_shape(self.info, read_json(self.info, remedy=remedy), {"format": whole}, remedy)
        if content["format"] != FORMAT:
            raise InputError(
                f"{where}: was written by coulomb {visible(content.get('coulomb'), 20)} in format {content['format']}, and "
                f"this version reads {FORMAT}; pip install -U coulomb, or {remedy}"
            )
        if content.get("checksum") != checksum(content):
            raise InputError(f"{self.info}: has changed since it was written; {remedy}")
        if "column" in content:
            check_shape(self.info, content["column"], COLUMN, remedy)
        kind = kind_of(content)
        check_shape(self.info, content, INFO | kind.more, remedy)
        check_shape(self.info, content["encoder"], kind.encoder, remedy)
        check_shape(self.info, content["data"], DATA, remedy)
        check_shape(self.info, content["files"], dict.fromkeys(kind.files, table), remedy)
        for name in kind.files:
            check_shape(f"{self.info}: {name}", content["files"][name], _file, remedy)
        return content

    def write_info(self, info: dict[str, Any]) -> None:
        """Writes ``index.json`` with the checksum of its own content."""
        write_json(self.info, info | {"checksum": checksum(info)})

    def publish(self, info: dict[str, Any]) -> None:
        """Makes ``info`` and its generation the current ones, and removes all others and the unfinished work."""
        self.write_info(info)
        current = self.generation(info["generation"]).path
        for path in [*self.path.glob("generation-*"), self.unfinished]:
            if path != current:
                shutil.rmtree(path, ignore_errors=True)  # on Windows, files that a reader has open remain


class Generation:
    """Paths of the files of one generation."""

    def __init__(self, path: Path, kind: IndexKind = IMAGES) -> None:
        self.path = path
        self.files = tuple(path / name for name in kind.files)
        self.features, self.table, *self.pictures = self.files  # thumbnails and their places, of images


def checksum(info: dict[str, Any]) -> str:
    """Returns the SHA-256 of the content of ``index.json``, without the entry ``checksum`` itself."""
    rest = {name: value for name, value in info.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def rebuild(path: Path) -> str:
    """Returns what to do about a damaged index: built again, it keeps the decisions of `coulomb browse`."""
    where = visible(path)
    return f"remove {where}/index.json and build it again with: coulomb index DATA --out {where}"


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context that converts an `OSError` of writing into an `InputError` with what to do."""
    try:
        yield
    except OSError as error:
        where, again = visible(path), "run the same command again"
        when = f"{again} when there is space" if error.errno in NO_SPACE else f"mend that and {again}"
        raise InputError(
            f"out={where!r}: cannot be written ({error.strerror or error}); finished work is kept: {when}"
        ) from None


def sync(path: Path) -> None:
    """Makes sure that a written file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
