"""An index on disk: features and table of the images or texts of a data set."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.index.answers import Answers
from coulomb.index.build import build
from coulomb.index.contents import OFF_BY, check_all, open_contents
from coulomb.index.encoders import Given, pair_encoder, reopen, reopen_texts
from coulomb.index.folder import IndexFolder, rebuild
from coulomb.index.kinds import IMAGES, TEXTS, require_images
from coulomb.index.lists import Rows
from coulomb.index.table import nearest_id
from coulomb.index.texts import plain
from coulomb.metrics.nearest import nearest
from coulomb.metrics.rows import as_tensor
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.named_encoder import NamedEncoder
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder, as_texts

Images = Any  # what `ImageEncoder.encode` takes
CHECKED = 100  # files of a new root that are looked for
SAME = 1e-3  # length of the difference of two queries that are the same up to rounding


class Index(Answers):
    """An index of images or texts, opened for reading; `build` makes or updates one.

    Args:
        path: the folder.
        root: where the folder with the images is now, if it was moved.
        encoder: where the encoder is now, if it was moved; a name, a run, or what `coulomb.load` returns.

    Attributes:
        path: the folder.
        info: the content of ``index.json``.
        kind: what it holds, "image" or "text".

    Raises:
        InputError: the folder is not an index, damaged, or written by a newer version; or ``root`` does not hold its images.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        root: str | Path | None = None,
        encoder: Given | None = None,
    ) -> None:
        self.path = Path(path).expanduser()
        self._root, self._encoder = root, encoder
        self._open()
        if root is not None:
            self._require_root(Path(root).expanduser())

    def _open(self) -> None:
        # Everything is opened here, so that an update, which removes the files, does not affect this object.
        self.info, self._contents = open_contents(IndexFolder(self.path))
        self.kind = self._contents.kind.name

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        root: str | Path | None = None,
        encoder: Given | None = None,
    ) -> "Index":
        """Opens an index; the same as ``Index(path)``."""
        return cls(path, root=root, encoder=encoder)

    @classmethod
    def build(
        cls,
        data: Any,
        out: str | Path,
        *,
        columns: Any = None,
        encoder: Given | None = None,
        image_size: int | None = None,
        precision: str | None = None,
        labels: Any = None,
        root: str | Path | None = None,
        workers: int | None = None,
        batch_size: int = 256,
        progress: bool = True,
    ) -> "Index":
        """Builds an index in the folder ``out``, or updates the one that is there, and opens it.

        An update reads files whose size or time has changed, and embeds those whose content (SHA-256) is new; images that are
        no longer in ``data``, or can no longer be read, leave the index. ``info["last_update"]`` counts them. Other processes
        can read the index meanwhile. After an interruption, the same call continues with the images that are not done yet.
        Each image is read once, for its features, size, hash and thumbnail; unreadable images are named in
        ``info["failed"]``. Texts are indexed after Unicode normalization (NFC) and without white space at both ends; an
        update embeds those that are new by their hash. With ``torchrun`` each process embeds a share; all need the same file
        system.

        Args:
            data: a data set as for `coulomb.train`, or a list of image files.
            out: folder of the index.
            columns: for an index of texts: the name of their column in ``data``, which is then as for
                `coulomb.tables.open_columns`: a .txt file with a text per line (column ``text``), CSV, JSON lines, Parquet, a
                list of strings. Default: the column of an existing index of texts; else images.
            encoder: a run folder, the name of published weights, or what `coulomb.load` returns. Default: the encoder of an
                existing index, ``"lite0"`` for a new one of images, ``"static"`` for one of texts.
            image_size: for published weights, in pixels; default: the size of an existing index, else of the weights.
            precision: type of the features, ``"float16"`` (default; changes a cosine by less than 0.001) or ``"float32"``.
            labels: see `coulomb.tables.open_source`; default: the labels of the data.
            root: the folder that the paths of a list of images are relative to.
            workers: of images: processes that decode; on a CPU, if there is one for each core, they also compute the
                features. Default: the number of cores.
            batch_size: images or texts per forward pass; does not change the result.
            progress: show a progress bar with the remaining time on a terminal.

        Raises:
            InputError: the data or the encoder cannot be opened, no image can be read, the folder holds something else, the
                index was built with another encoder, image size or precision, or another process is building it.

        Example:
            >>> index = coulomb.Index.build("photos/", "photos.index")
            >>> index.search("beach.jpg", top=5)
            [{'id': '2019/001.jpg', 'path': '/home/me/photos/2019/001.jpg', 'similarity': 0.93, 'label': None}, …]
        """
        build(
            data,
            out,
            columns=columns,
            encoder=encoder,
            image_size=image_size,
            precision=precision,
            labels=labels,
            root=root,
            workers=workers,
            batch_size=batch_size,
            progress=progress,
        )
        return cls(out, encoder=encoder if isinstance(encoder, NamedEncoder | PairEncoder) else None)

    @staticmethod
    def check(path: str | Path) -> dict[str, Any]:
        """Verifies all files of an index by their checksums, and that they hold an index.

        A small index (64 MiB) is verified whenever it is opened; of a larger one the table and `features` when they are
        first used. This reads all of it, the thumbnails, too: about 1.5 GB per second.

        Returns:
            ``images``, ``bytes`` and ``files``, their names.

        Raises:
            InputError: the folder is not an index, or is damaged; the message names the files.
        """
        return check_all(IndexFolder(path))

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "root": self._root, "encoder": self._encoder, "generation": self.info["generation"]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path, self._root, self._encoder = state["path"], state["root"], state["encoder"]
        self._open()
        if self.info["generation"] != state["generation"]:
            raise InputError(f"{visible(self.path)}: was updated in the meantime; open it again")

    def __len__(self) -> int:
        return int(self.info[self._contents.kind.plural])

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} {self._contents.kind.plural})"

    @cached_property
    def features(self) -> np.ndarray:
        """Memory-mapped array [N, D] of unit length, float16 or float32, which is read and verified on first use.

        `search` and `neighbors` do not wait for that; they refuse similarities that features of unit length cannot have.
        """
        self._contents.verify_features()
        return self._contents.features

    @cached_property
    def table(self) -> Any:
        """The table of the images: id, path, label, bytes, sha256, mtime, width, height; a ``pyarrow.Table``.

        Of texts: id, text (its first 200 characters), label, bytes, sha256, characters, cut.
        """
        return self._contents.table

    @cached_property
    def ids(self) -> list[str]:
        """The ids [N]; of a folder, the paths relative to it; of texts, the numbers of their rows."""
        return self.table.column("id").to_pylist()

    @cached_property
    def labels(self) -> list[str | None]:
        """The labels [N]: names of classes, or their numbers as text; None where unknown."""
        return self.table.column("label").to_pylist()

    @property
    def root(self) -> Path | None:
        """The folder that paths are relative to; None for images that are not in a folder."""
        root = self.info["data"]["root"] if self._root is None else self._root
        return None if root is None else Path(root).expanduser().resolve()

    @cached_property
    def paths(self) -> list[str | None]:
        """The absolute paths [N] of the files; None for images in tables and arrays, and for texts."""
        if self.kind == TEXTS.name:
            return [None] * len(self)
        return self._absolute(self.table.column("path").to_pylist())

    def _absolute(self, paths: Sequence[str | None]) -> list[str | None]:
        root = self.root
        if root is None:
            return list(paths)
        if not root.is_dir():
            raise InputError(
                f"{visible(self.path)}: the folder of its images, {visible(root)}, no longer exists; give its new place "
                "as root (--root FOLDER)"
            )
        for path in paths:
            if path is not None and (os.path.isabs(path) or ".." in path.split("/") or "\0" in path):  # noqa: PTH117
                raise InputError(
                    f"{visible(self.path)}: the path {visible(path)!r} leads out of {visible(root)}; {rebuild(self.path)}"
                )
        return [None if path is None else f"{root}/{path}" for path in paths]

    def _require_root(self, root: Path) -> None:
        if self.info["data"]["root"] is None:
            raise InputError(
                f"root={visible(root)!r}: the {self._contents.kind.plural} of this index are not files in a folder; "
                "leave it out"
            )
        paths = [path for path in self.table.column("path").slice(0, CHECKED).to_pylist() if path]
        if not any((root / path).is_file() for path in paths):
            raise InputError(
                f"root={visible(root)!r}: none of the first {len(paths)} images is in it, e.g. {visible(paths[0])}; "
                "give the folder that was indexed"
            )

    def thumbnail(self, row: int) -> bytes:
        """Returns the thumbnail of one image, a JPEG file; texts have none."""
        require_images(self.info, self.path, "a thumbnail")
        if not 0 <= row < len(self):
            raise InputError(f"row={row}: the index has rows 0 to {len(self) - 1}")
        return self._contents.thumbnail(row)

    @cached_property
    def encoder(self) -> Any:
        """The encoder that the index was built with, an `ImageEncoder` or `TextEncoder`, opened on first use.

        Raises:
            InputError: it is not there any more, or its weights have changed.
        """
        if self.kind == TEXTS.name:
            return reopen_texts(self.info["encoder"], self.info["column"]["name"], self._encoder, visible(self.path))
        return reopen(self.info["encoder"], self._encoder, visible(self.path))

    def rows(self, start: int, stop: int) -> Tensor:
        """Returns features [start:stop] as a float32 tensor."""
        return as_tensor(self._contents.features[start:stop]).float()

    def position(self, item_id: str) -> int:
        """Returns the row of an image.

        Raises:
            InputError: there is no such id; the message has the most similar one.
        """
        import pyarrow.compute as pc

        ids = self.table.column("id")
        row = pc.index(ids, item_id).as_py()
        if row < 0:
            raise InputError(f"id={visible(item_id)!r}: not in the index; {nearest_id(item_id, ids)}")
        return int(row)

    def encode(self, images: Images, *, workers: int = 0) -> Tensor:
        """Returns features [n, D] of unit length of any images, prepared like the images of the index."""
        features: Tensor = self.image_encoder.encode(images, workers=workers, normalize_embeddings=True)
        return features

    @cached_property
    def pair_encoder(self) -> PairEncoder:
        """The run on images and texts that the index was built with, opened on first use.

        Raises:
            InputError: the encoder of the index was not trained on images and texts.
        """
        return pair_encoder(self.info["encoder"], self._encoder, visible(self.path))

    @property
    def image_encoder(self) -> ImageEncoder:
        """The encoder of images that shares the space of the index; raises `InputError` as `pair_encoder`."""
        encoder: ImageEncoder = self.encoder if self.kind == IMAGES.name else self.pair_encoder.of_kind("image")
        return encoder

    @property
    def text_encoder(self) -> TextEncoder:
        """The encoder of words that shares the space of the index; raises `InputError` as `pair_encoder`."""
        encoder: TextEncoder = self.encoder if self.kind == TEXTS.name else self.pair_encoder.of_kind("text")
        return encoder

    def encode_text(self, texts: Sequence[str] | str) -> Tensor:
        """Returns features [n, D] of unit length of words, to compare with those of the index."""
        if self.kind == TEXTS.name:  # prepared like the texts of the index
            texts = [plain(each) if isinstance(each, str) else each for each in as_texts(texts)]
        features: Tensor = self.text_encoder.encode(texts, normalize_embeddings=True)
        return features

    def search(
        self,
        images: Images = None,
        ids: Sequence[str] | str | None = None,
        *,
        text: Sequence[str] | str | None = None,
        without: Images = None,
        without_ids: Sequence[str] | str | None = None,
        without_text: Sequence[str] | str | None = None,
        top: int = 20,
    ) -> Rows:
        """Returns the images or texts of the index that are most similar to the given images and words, most similar first.

        The query is the mean of the features x of the given images and texts, minus the mean of those ``without``:
        q = u(mean x), or u(u(mean x⁺) − u(mean x⁻)), where u scales to unit length. The similarity is the cosine q·x, exact
        for the features as they are stored. Cosines of words with images are lower than those of images with images.

        Args:
            images: one image or several, see `ImageEncoder.encode`.
            ids: images of the index, which are left out of the answer.
            text: words, or several texts; an index of images was built with a run on images and texts, and so was one of texts
                that is searched by images.
            without, without_text: images and words that the result should be unlike.
            without_ids: likewise, images of the index, which are left out of the answer.
            top: number of images.

        Returns:
            ``[{"id", "path", "similarity", "label"}]``; of texts, "text" in place of "path".

        Raises:
            InputError: no query, an unreadable image, an unknown id, or ``top`` < 1.
        """
        if top < 1:
            raise InputError(f"top={top}: must be at least 1")
        _require_words("text", text)
        _require_words("without_text", without_text)
        wanted, shown = self._features_of(images, ids, text)
        unwanted, hidden = self._features_of(without, without_ids, without_text)
        if len(unwanted) and not len(wanted):
            unlike = without_text or without_ids or "images"
            named = visible(unlike if isinstance(unlike, str) else ", ".join(unlike), 100)
            raise InputError(
                f"without={named!r}: is subtracted from a query, and there is none; give what should be found, too: words "
                "(--text), ids (--id) or images"
            )
        if not len(wanted):
            if self.kind == TEXTS.name:
                raise InputError(
                    "text: no query; give words as text (--text), rows of the index as ids (--id), or images"
                )
            raise InputError(
                "images: no query; give images (IMAGE...), images of the index as ids (--id), or words as text (--text)"
            )
        query = functional.normalize(wanted.mean(0), dim=0)
        if len(unwanted):
            query = query - functional.normalize(unwanted.mean(0), dim=0)
            if query.norm() < SAME:
                raise InputError("without: the same images as the query; nothing is left to search by")
            query = functional.normalize(query, dim=0)
        left_out = {*shown, *hidden}
        values, rows = self.neighbors(query[None], top + len(left_out))
        pairs = zip(values[0].tolist(), rows[0].tolist(), strict=True)
        found = [(value, row) for value, row in pairs if row not in left_out][:top]
        return self.describe([row for _, row in found], similarity=[min(value, 1.0) for value, _ in found])

    def neighbors(self, queries: Tensor, top: int = 20) -> tuple[Tensor, Tensor]:
        """Returns the largest similarities of each query and the rows of their images, both [Q, min(top, N)].

        Exact: the features are streamed in blocks, memory does not grow with their number.

        Args:
            queries: float32 [Q, D] of unit length, see `encode`.
            top: number of images per query.

        Raises:
            InputError: the queries are not of D dimensions, as features of another encoder; or features are damaged.
        """
        width = self.info["features"]
        if queries.ndim != 2 or queries.shape[1] != width:
            raise InputError(
                f"queries: {list(queries.shape)}; the index has {width} features per {self.kind}, give [Q, {width}] by the "
                f"same encoder ({visible(self.info['encoder']['name'])})"
            )
        queries = queries.float().cpu()
        values, rows = nearest(as_tensor(self._contents.features), queries, top)
        # |q·x| ≤ |q| for x of unit length; written so that NaN is wrong, too.
        wrong = values[~(values.abs() <= (1 + OFF_BY) * queries.norm(dim=1, keepdim=True))]
        if not len(wrong):
            return values, rows
        if not bool(queries.isfinite().all()):
            raise InputError("queries: have values that are NaN or infinite")
        where = visible(self.path)
        raise InputError(
            f"{where}: a similarity of {float(wrong[0]):g} to features of unit length, so features.npy is damaged; check all "
            f"files with: coulomb index {where} --check"
        )

    def _features_of(
        self, images: Images, ids: Sequence[str] | str | None, text: Sequence[str] | str | None
    ) -> tuple[Tensor, list[int]]:
        for given in [images] if isinstance(images, str) else images if isinstance(images, list) else []:
            if isinstance(given, str):
                self._require_image(given)
        rows = [self.position(each) for each in ([ids] if isinstance(ids, str) else ids or [])]
        stored = [self.rows(row, row + 1) for row in rows]
        given = [] if images is None else [self.encode(images)]
        given += [] if text is None else [self.encode_text(text)]
        return torch.cat([*stored, *given] or [torch.empty(0, 1)]), rows

    def _require_image(self, given: str) -> None:
        """Raises `InputError` for an id, or words, in place of an image."""
        if not given.strip() or "\0" in given or Path(given).expanduser().exists() or "://" in given:
            return
        if given in self.ids:
            raise InputError(
                f"{visible(given)!r}: no such file, but the id of an image of the index; give it as ids (--id)"
            )
        if not Path(given).suffix:
            raise InputError(
                f"{visible(given)!r}: no such file; give the path of an image, the id of an image of the index as ids (--id), "
                "or words as text (--text)"
            )

    def describe(self, rows: Sequence[int], **columns: Sequence[Any]) -> Rows:
        """Returns ``{"id", "path", …, "label"}`` of each row, with further ``columns``, JSON-serializable.

        Of texts, "text" is in place of "path".
        """
        import pyarrow as pa

        shown = self._contents.kind.shown
        found = self.table.select(["id", shown, "label"]).take(pa.array(rows, pa.int64())).to_pydict()
        cells = self._absolute(found["path"]) if shown == "path" else found[shown]
        entries = {"id": found["id"], shown: cells, **columns, "label": found["label"]}
        return Rows(dict(zip(entries, values, strict=True)) for values in zip(*entries.values(), strict=True))


def _require_words(name: str, texts: Sequence[str] | str | None) -> None:
    """Raises `InputError` for a text without words."""
    for each in [texts] if isinstance(texts, str) else texts or ():
        if isinstance(each, str) and not each.strip():
            raise InputError(f"{name}={each!r}: has no words; give some, or leave it out")
