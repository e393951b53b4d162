"""Builds an index, or updates one: only images that are new or have changed are embedded."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coulomb
from coulomb.data import Source, open_source
from coulomb.data.source import first_few, portable, visible
from coulomb.data.sources import open_files
from coulomb.data.workers import cores
from coulomb.errors import InputError
from coulomb.evaluation.encode import Canvas
from coulomb.evaluation.image_encoder import ImageEncoder, run_path
from coulomb.index import encoders
from coulomb.index.embed import Embedder, Outcome, place
from coulomb.index.folder import FORMAT, PRECISIONS, IndexFolder, writing
from coulomb.index.photos import ReadOnce
from coulomb.index.stored import Stored, gather, known_images
from coulomb.index.table import make_table
from coulomb.index.team import Team
from coulomb.index.work import next_attempt, part_path, settings_text
from coulomb.reading import read_bytes
from coulomb.runs.folder import locked, write_text

THUMBNAIL = 192  # pixels, the longer side
FAILED = 100  # unreadable images that index.json names


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
    with writing(folder.path), locked(folder.lock, "building this index") if first else nullcontext():
        before = team.by_first(lambda: folder.read_info() if folder.info.exists() else None)
        opened, chosen = choose(source, before, encoder, image_size, precision)
        require_same(folder, before, chosen)
        stamps = source.stamps()

        def plan() -> tuple[np.ndarray, frozenset[bytes], int]:
            begin_work(folder, chosen)
            stored = known_images(folder, before, chosen)
            require_common(folder, before, source, stored, ids)
            return stored.unchanged(ids, stamps), stored.hashes(), next_attempt(folder.unfinished)

        rows, hashes, attempt = team.by_first(plan)
        canvas = chosen["encoder"]["canvas"]
        embedder = Embedder(
            encoder=place(opened.encoder, team.device),
            canvas=None if canvas is None else Canvas(**canvas),
            once=ReadOnce(source, stamps),
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
        team.by_first(lambda: finish(folder, source, ids, before, chosen, rows, outcome))


def choose(
    source: Source,
    before: dict[str, Any] | None,
    encoder: str | Path | ImageEncoder | None,
    image_size: int | None,
    precision: str | None,
) -> tuple[ImageEncoder, dict[str, Any]]:
    """Returns the encoder, and the entries of ``index.json`` that all generations share.

    What is not given is that of the existing index, whose ``index.json`` holds ``before``.
    """
    if before is not None:
        encoder = before["encoder"]["name"] if encoder is None else encoder
        precision = before["precision"] if precision is None else precision
        if image_size is None and not isinstance(encoder, ImageEncoder) and run_path(encoder) is None:
            image_size = before["encoder"]["image_size"]
    opened = encoders.open_encoder(encoders.DEFAULT if encoder is None else encoder, image_size)
    return opened, {
        "encoder": encoders.describe(opened, source),
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


def require_common(
    folder: IndexFolder, before: dict[str, Any] | None, source: Source, stored: Stored, ids: list[str]
) -> None:
    """Raises `InputError` if an index would lose all its images because other data were given by mistake."""
    if before is None or stored.old is None or not set(ids).isdisjoint(stored.old.ids):
        return
    if before["data"]["name"] != source.name:
        raise InputError(
            f"out={visible(folder.path)!r}: is the index of {visible(before['data']['name'])!r}, and none of its "
            f"{len(stored.old.ids)} images is in {visible(source.name)!r}; choose another folder for the new index"
        )


def begin_work(folder: IndexFolder, chosen: dict[str, Any]) -> None:
    """Prepares the folder of unfinished work; raises `InputError` if an unfinished build had other settings."""
    settings = folder.unfinished / "settings.json"
    text = settings_text(
        {**chosen, "encoder": {k: chosen["encoder"][k] for k in ("fingerprint", "image_size", "canvas")}}
    )
    if settings.exists():
        if read_bytes(settings, most=2**20).decode(errors="replace") != text:
            raise InputError(
                f"out={visible(folder.path)!r}: holds an unfinished index of another encoder or precision; finish it by the "
                "command that began it, or choose another folder"
            )
        return
    shutil.rmtree(folder.unfinished, ignore_errors=True)
    folder.unfinished.mkdir()
    write_text(settings, text)


def finish(
    folder: IndexFolder,
    source: Source,
    ids: list[str],
    before: dict[str, Any] | None,
    chosen: dict[str, Any],
    rows: np.ndarray,
    outcome: Outcome,
) -> None:
    """Writes the next generation from what is stored and publishes it."""
    stored = known_images(folder, before, chosen)
    todo = np.flatnonzero(rows < 0)
    stored.locate(rows, ids, np.setdiff1d(todo, list(outcome.failed)), outcome.known)
    members = np.flatnonzero(rows >= 0)
    if not len(members):
        index, reason = min(outcome.failed.items())
        raise InputError(
            f"data={visible(source.name)!r}: none of the {len(source)} images can be read ({visible(ids[index])}: {reason})"
        )
    photos = [
        stored.photo(row)
        if index not in outcome.known
        else stored.photo(row)._replace(mtime=outcome.known[index].mtime)
        for index, row in zip(members.tolist(), rows[members].tolist(), strict=True)
    ]
    table = make_table(source, members.tolist(), photos)
    counts = stored.counts([ids[index] for index in members], rows[members])
    info: dict[str, Any] = {
        "format": FORMAT,
        "coulomb": coulomb.__version__,
        "generation": 1 if before is None else before["generation"] + 1,
        "images": len(members),
        **chosen,
        "torch": torch.__version__,
        "data": {
            "name": source.name,
            "kind": source.kind,
            "root": None if source.root is None or file_less(table) else portable(str(source.root)),
        },
        "last_update": counts,
        "failed": {
            "count": len(outcome.failed),
            "first": [{"id": ids[index], "reason": outcome.failed[index]} for index in sorted(outcome.failed)[:FAILED]],
        },
    }
    if before is not None and stored.old is not None and table.equals(stored.old.table):
        info["generation"] = before["generation"]  # only index.json changes
    else:
        gather(folder.generation(info["generation"]), stored, rows[members], table)
    folder.publish(info)


def file_less(table: Any) -> bool:
    """Returns True if the images are not files of their own."""
    return table.column("path").null_count == table.num_rows
