"""Builds an index, or updates one: only images that are new or have changed are embedded."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.team import Team
from coulomb.ground.text import first_few, visible
from coulomb.index import encoders
from coulomb.index.embed import Embedder, Outcome, place
from coulomb.index.folder import PRECISIONS, IndexFolder, writing
from coulomb.index.photos import ReadOnce
from coulomb.index.update import Update
from coulomb.index.work import part_path
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import run_path
from coulomb.tables import Source, open_source
from coulomb.tables.sources import open_files
from coulomb.tables.workers import cores

THUMBNAIL = 192  # pixels, the longer side


def build(
    data: Any,
    out: str | Path,
    *,
    encoder: str | Path | ImageEncoder | None,
    image_size: int | None,
    precision: str | None,
    labels: Any,
    root: str | Path | None,
    workers: int | None,
    batch_size: int,
    progress: bool,
) -> None:
    """Builds or updates the index in ``out``; see `coulomb.Index.build`."""
    if precision not in (None, *PRECISIONS):
        raise InputError(f"precision={precision!r}: must be one of {', '.join(PRECISIONS)}")
    folder, team = IndexFolder(out), Team()
    source = open_files(data, labels=labels) if root is None else open_source(data, labels=labels, root=root)
    ids = [source.item_id(index) for index in range(len(source))]
    require_unique(source, ids)
    team.by_first(folder.create)
    first = team.rank == 0
    with writing(folder.path), ExitStack() as held:
        team.by_first(lambda: held.enter_context(folder.working()))
        before = team.by_first(lambda: folder.read_info() if folder.info.exists() else None)
        opened, chosen = choose(source, before, encoder, image_size, precision)
        require_same(folder, before, chosen)
        update = Update(folder, source, ids, before if first else None, chosen)
        rows, hashes, attempt = team.by_first(update.plan)
        embedder = Embedder(
            encoder=place(opened.encoder, team.device),
            canvas=opened.canvas,
            once=ReadOnce(source, update.stamps),
            hashes=hashes,
            thumbnail=THUMBNAIL,
            batch_size=batch_size,
            workers=cores() if workers is None else workers,
        )
        share = np.array_split(np.flatnonzero(rows < 0), team.world)[team.rank].tolist()
        part = part_path(folder.unfinished, attempt, team.rank)
        outcome = Outcome()
        for each in team.by_each(lambda: embedder.write(share, part, chosen["precision"], progress=progress and first)):
            outcome.add(each)
        team.by_first(lambda: update.finish(rows, outcome))
    team.leave()


def choose(
    source: Source,
    before: dict[str, Any] | None,
    encoder: str | Path | ImageEncoder | None,
    image_size: int | None,
    precision: str | None,
) -> tuple[ImageEncoder, dict[str, Any]]:
    """Returns the encoder, and the entries of ``index.json`` that all generations share.

    What is not given is taken from the existing index, whose ``index.json`` holds ``before``.
    """
    if before is not None:
        encoder = before["encoder"]["name"] if encoder is None else encoder
        precision = before["precision"] if precision is None else precision
        if image_size is None and not isinstance(encoder, ImageEncoder) and run_path(encoder) is None:
            image_size = before["encoder"]["image_size"]
    opened = encoders.open_encoder(encoders.DEFAULT if encoder is None else encoder, image_size)
    opened = encoders.prepared_for(opened, source)
    return opened, {
        "encoder": encoders.describe(opened),
        "features": opened.encoder.feature_dim,
        "precision": precision or PRECISIONS[0],
        "thumbnail": THUMBNAIL,
    }


def require_unique(source: Source, ids: list[str]) -> None:
    """Raises `InputError` if two images have the same id."""
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = list(dict.fromkeys(each for each in ids if each in seen or seen.add(each)))  # type: ignore[func-returns-value]
        raise InputError(
            f"data={visible(source.name)!r}: {first_few(twice)}: given more than once; give each image once"
        )


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
