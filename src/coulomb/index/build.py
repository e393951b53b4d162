"""The build of an index: the images or texts of a data set, embedded and written as a new generation."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError
from coulomb.ground.team import Team
from coulomb.ground.text import first_few, visible
from coulomb.index import encoders
from coulomb.index.embed import Embedder, place
from coulomb.index.embed_texts import TextEmbedder
from coulomb.index.folder import PRECISIONS, IndexFolder, writing
from coulomb.index.kinds import IMAGES, TEXTS, IndexKind, kind_of
from coulomb.index.photos import ReadOnce
from coulomb.index.texts import TextSource, open_texts
from coulomb.index.update import Update
from coulomb.index.work import Outcome, part_path
from coulomb.models.load import run_path
from coulomb.tables import open_source
from coulomb.tables.sources import open_files
from coulomb.tables.workers import cores

THUMBNAIL = 192  # pixels, the longer side


def build(
    data: Any,
    out: str | Path,
    *,
    columns: Any = None,
    encoder: encoders.Given | None = None,
    image_size: int | None = None,
    precision: str | None = None,
    labels: Any = None,
    root: str | Path | None = None,
    workers: int | None = None,
    batch_size: int = 256,
    progress: bool = True,
) -> None:
    """Builds or updates an index, see `coulomb.Index.build`."""
    require_option("precision", precision, str | None, choices=PRECISIONS)
    folder, team = IndexFolder(out), Team()
    columns = stored_column(folder) if columns is None else columns
    of: OfImages | OfTexts
    if columns is None:
        of = OfImages(data, labels, root, image_size=image_size, workers=workers)
    else:
        for name, value in (("image_size", image_size), ("root", root), ("workers", workers)):
            if value is not None:
                raise InputError(f"{name}={visible(value)}: has no meaning for texts; leave it out")
        of = OfTexts(data, columns, labels)
    ids = [of.source.item_id(index) for index in range(len(of.source))]
    require_unique(of.source.name, ids)
    team.by_first(folder.create)
    first = team.rank == 0
    with writing(folder.path), ExitStack() as held:
        team.by_first(lambda: held.enter_context(folder.working()))
        before = team.by_first(lambda: folder.read_info() if folder.info.exists() else None)
        require_kind(folder, before, of.kind, of.column)
        if before is not None:  # what is not given is taken from the existing index
            encoder = before["encoder"]["name"] if encoder is None else encoder
            precision = before["precision"] if precision is None else precision
        chosen = of.open(encoder, before, precision or PRECISIONS[0])
        require_same(folder, before, chosen)
        update = Update(folder, of.source, ids, before if first else None, chosen)
        rows, hashes, attempt = team.by_first(update.plan)
        embedder = of.embedder(update.stamps, hashes, batch_size, team.device)
        share = np.array_split(np.flatnonzero(rows < 0), team.world)[team.rank].tolist()
        part = part_path(folder.unfinished, attempt, team.rank)
        outcome = Outcome()
        for each in team.by_each(lambda: embedder.write(share, part, chosen["precision"], progress=progress and first)):
            outcome.add(each)
        team.by_first(lambda: update.finish(rows, outcome))
    team.leave()


class OfImages:
    """The images that an index is built of, and their encoder once it is open."""

    kind, column = IMAGES, None

    def __init__(
        self, data: Any, labels: Any, root: str | Path | None, *, image_size: int | None, workers: int | None
    ) -> None:
        if isinstance(data, str | Path) and Path(data).suffix.lower() == ".txt" and Path(data).is_file():
            raise InputError(
                f"data={visible(data)!r}: a file of texts; to index its lines, give columns='text' (--columns text)"
            )
        self.source = open_files(data, labels=labels) if root is None else open_source(data, labels=labels, root=root)
        self.image_size, self.workers = image_size, workers

    def open(self, encoder: encoders.Given | None, before: dict[str, Any] | None, precision: str) -> dict[str, Any]:
        """Opens the encoder; returns the entries of ``index.json`` that all generations share.

        By default the image size is that of the existing index, whose ``index.json`` holds ``before``.
        """
        if (
            before is not None
            and self.image_size is None
            and isinstance(encoder, str | Path)
            and run_path(encoder) is None
        ):
            self.image_size = before["encoder"]["image_size"]
        opened = encoders.open_encoder(encoders.DEFAULT if encoder is None else encoder, self.image_size)
        self.opened = encoders.prepared_for(opened, self.source)
        return {
            "encoder": encoders.describe(self.opened),
            "features": self.opened.encoder.feature_dim,
            "precision": precision,
            "thumbnail": THUMBNAIL,
        }

    def embedder(self, stamps: Any, hashes: frozenset[bytes], batch_size: int, device: torch.device) -> Embedder:
        """Returns what embeds the images whose SHA-256 is not among ``hashes``; ``stamps`` are those of the update."""
        return Embedder(
            encoder=place(self.opened.encoder, device),
            canvas=self.opened.canvas,
            once=ReadOnce(self.source, stamps),
            hashes=hashes,
            thumbnail=THUMBNAIL,
            batch_size=batch_size,
            workers=cores() if self.workers is None else self.workers,
        )


class OfTexts:
    """The texts that an index is built of, and their encoder once it is open."""

    kind = TEXTS

    def __init__(self, data: Any, columns: Any, labels: Any) -> None:
        self.source: TextSource = open_texts(data, columns, labels)
        self.column = self.source.column

    def open(self, encoder: encoders.Given | None, before: dict[str, Any] | None, precision: str) -> dict[str, Any]:
        """Opens the encoder; returns the entries of ``index.json`` that all generations share."""
        self.opened = encoders.open_text_encoder(encoders.DEFAULT_OF_TEXTS if encoder is None else encoder, self.column)
        return {
            "column": {"name": self.column, "kind": TEXTS.name},
            "encoder": encoders.describe_texts(self.opened),
            "features": self.opened.encoder.feature_dim,
            "precision": precision,
        }

    def embedder(self, stamps: Any, hashes: frozenset[bytes], batch_size: int, device: torch.device) -> TextEmbedder:
        """Returns what embeds the texts whose SHA-256 is not among ``hashes``."""
        self.opened.encoder.to(device)
        return TextEmbedder(self.opened, self.source, hashes, batch_size)


def require_kind(folder: IndexFolder, before: dict[str, Any] | None, kind: IndexKind, column: str | None) -> None:
    """Raises `InputError` if the folder is an index of another kind or column than what is to be indexed."""
    if before is not None and kind_of(before) is not kind:
        raise InputError(
            f"out={visible(folder.path)!r}: is an index of {kind_of(before).plural}, and these are {kind.plural}; choose "
            "another folder for the new index"
        )
    if before is not None and column is not None and before["column"]["name"] != column:
        raise InputError(
            f"out={visible(folder.path)!r}: is an index of the column {visible(before['column']['name'])!r}, not "
            f"{visible(column)!r}; choose another folder for the new index"
        )


def stored_column(folder: IndexFolder) -> str | None:
    """Returns the column of the index of texts that a folder holds; None for others."""
    if not folder.info.exists():
        return None
    column = folder.read_info().get("column")
    return None if column is None else str(column["name"])


def require_unique(name: str, ids: list[str]) -> None:
    """Raises `InputError` if two images have the same id."""
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = list(dict.fromkeys(each for each in ids if each in seen or seen.add(each)))  # type: ignore[func-returns-value]
        raise InputError(f"data={visible(name)!r}: {first_few(twice)}: given more than once; give each image once")


def require_same(folder: IndexFolder, before: dict[str, Any] | None, chosen: dict[str, Any]) -> None:
    """Raises `InputError` if the index was built by another encoder, or with another precision."""
    if before is None:
        return
    where = f"out={visible(folder.path)!r}"
    remedy = "choose another folder for the new index"
    if not encoders.same(before["encoder"], chosen["encoder"]):
        was, now = encoders.title(before["encoder"]), encoders.title(chosen["encoder"])
        difference = "weights have changed since" if was == now else f"asked for is {now}"
        raise InputError(f"{where}: was built with {was}, {difference}; features of two encoders do not mix: {remedy}")
    if before["precision"] != chosen["precision"]:
        raise InputError(f"{where}: holds {before['precision']}, asked for is {chosen['precision']}; {remedy}")
