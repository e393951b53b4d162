"""Builds an index, or updates one: only images that are new or have changed are embedded."""

import logging
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import coulomb
from coulomb.data import Source
from coulomb.data.source import portable, visible
from coulomb.data.sources import open_files
from coulomb.data.views import plain_view
from coulomb.data.workers import cores, progress_bar
from coulomb.errors import InputError
from coulomb.evaluation.encode import Canvas, prepared_images
from coulomb.evaluation.image_encoder import ImageEncoder
from coulomb.index import encoders
from coulomb.index.folder import FORMAT, PRECISIONS, IndexFolder, writing
from coulomb.index.photos import ReadOnce, Recorded
from coulomb.index.stored import gather, known_images
from coulomb.index.table import Photo, make_table
from coulomb.index.team import Team
from coulomb.index.work import PartWriter, next_attempt, part_path, settings_text
from coulomb.metrics.features import frozen
from coulomb.reading import read_bytes
from coulomb.runs.folder import locked, write_text

log = logging.getLogger("coulomb")
THUMBNAIL = 192  # pixels, the longer side


@dataclass
class Outcome:
    """What one process found out about its share of the images."""

    known: dict[int, Photo] = field(default_factory=dict)  # images whose content is that of a stored one
    failed: dict[int, str] = field(default_factory=dict)


def build(
    data: Any,
    out: str | Path,
    *,
    encoder: str | Path | ImageEncoder | None = None,
    image_size: int | None = None,
    precision: str | None = None,
    labels: Any = None,
    root: str | Path | None = None,
    workers: int | None = None,
    batch_size: int = 256,
    progress: bool = True,
) -> dict[str, Any]:
    """Builds or updates the index in ``out`` and returns its ``index.json``; see `coulomb.Index.build`."""
    folder, team = IndexFolder(out), Team()
    source = open_source(data, labels, root)
    if team.rank == 0:
        folder.create()
    with writing(folder.path), locked(folder.lock, "building this index") if team.rank == 0 else nullcontext():
        before = folder.read_info() if folder.info.exists() else None
        if before is not None:
            encoder = before["encoder"]["name"] if encoder is None else encoder
            image_size = same_size(before, encoder, image_size)
            precision = before["precision"] if precision is None else precision
        opened = encoders.open_encoder(encoders.DEFAULT if encoder is None else encoder, image_size)
        chosen = {
            "encoder": encoders.describe(opened, source),
            "features": opened.encoder.feature_dim,
            "precision": precision or "float16",
            "thumbnail": THUMBNAIL,
        }
        if chosen["precision"] not in PRECISIONS:
            raise InputError(f"precision={precision!r}: must be one of {', '.join(PRECISIONS)}")
        require_same(folder, before, chosen)
        stamps = source.stamps()

        ids = [source.item_id(index) for index in range(len(source))]

        def plan() -> tuple[np.ndarray, frozenset[bytes], int]:
            begin_work(folder, chosen)
            stored = known_images(folder, before, chosen)
            return stored.unchanged(ids, stamps), stored.hashes(), next_attempt(folder.unfinished)

        rows, hashes, attempt = team.by_first(plan)
        todo = np.flatnonzero(rows < 0)
        share = np.array_split(todo, team.world)[team.rank].tolist()
        writer = PartWriter(part_path(folder.unfinished, attempt, team.rank)) if share else None
        canvas = chosen["encoder"]["canvas"]
        network = opened.encoder.to(team.device)

        def embed() -> Outcome:
            photos = embedded(
                network,
                ReadOnce(source, stamps),
                None if canvas is None else Canvas(**canvas),
                share,
                hashes,
                batch_size=batch_size,
                workers=cores() if workers is None else workers,
                progress=progress and team.rank == 0,
            )
            outcome = Outcome()
            for index, found, features, thumbnail in photos:
                if isinstance(found, str):
                    outcome.failed[index] = found
                elif features is None:
                    outcome.known[index] = found
                else:
                    assert writer is not None
                    writer.add(ids[index], found, features.astype(chosen["precision"]), thumbnail)
            if writer is not None:
                writer.write()
            return outcome

        outcomes = team.by_each(embed)
        joined = Outcome()
        for outcome in outcomes:
            joined.known |= outcome.known
            joined.failed |= outcome.failed
        return team.by_first(lambda: finish(folder, source, ids, before, chosen, rows, joined))


def open_source(data: Any, labels: Any, root: str | Path | None) -> Source:
    """Opens the data; ``root`` is that of a list of paths."""
    if root is None:
        return open_files(data, labels=labels)
    from coulomb.data import open_source

    return open_source(data, labels=labels, root=root)


def same_size(before: dict[str, Any], encoder: Any, image_size: int | None) -> int | None:
    """Returns the image size to open the encoder of an existing index with."""
    if image_size is not None or isinstance(encoder, ImageEncoder) or encoders.is_run(encoder):
        return image_size
    return int(before["encoder"]["image_size"])


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


def embedded(
    encoder: Any,
    once: ReadOnce,
    canvas: Canvas | None,
    indices: list[int],
    hashes: frozenset[bytes],
    *,
    batch_size: int,
    workers: int,
    progress: bool,
) -> Iterable[tuple[int, Photo | str, np.ndarray | None, bytes]]:
    """Yields (index, photo, features [D] of unit length, thumbnail) of each image; a reason instead of the photo of
    unreadable images, and no features for images whose content is known by its hash.
    """
    if not indices:
        return
    device = next(iter(encoder.parameters())).device
    parts, failures, batch_size = prepared_images(encoder, once, canvas, indices, batch_size=batch_size)
    with frozen(encoder), progress_bar(len(indices), "indexing", progress) as advance:
        for index, reason in failures.items():
            yield index, reason, None, b""
        advance(len(failures))
        for images, members in parts:
            for batch in Recorded(images, once, hashes, THUMBNAIL).batches(members, batch_size, workers):
                for index, reason in batch["failed"]:
                    yield index, reason, None, b""
                for index, photo in batch["known"].items():
                    yield index, photo, None, b""
                if batch["photos"]:
                    picture = plain_view(batch["image"].to(device), encoder.image_size, batch["aspect"].to(device))
                    features = encoder(picture).float()
                    usable = features.isfinite().all(1) & (features != 0).any(1)
                    rows = functional.normalize(features, dim=1).cpu().numpy()
                    for (index, (photo, thumbnail)), row, good in zip(
                        batch["photos"].items(), rows, usable.tolist(), strict=True
                    ):
                        if good:
                            yield index, photo, row, thumbnail
                        else:
                            yield index, "its features are zero or not finite", None, b""
                advance(len(batch["failed"]) + len(batch["known"]) + len(batch["photos"]))


def finish(
    folder: IndexFolder,
    source: Source,
    ids: list[str],
    before: dict[str, Any] | None,
    chosen: dict[str, Any],
    rows: np.ndarray,
    outcome: Outcome,
) -> dict[str, Any]:
    """Writes the next generation from what is stored and publishes it; returns its ``index.json``."""
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
    info = {
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
        "last_update": {**counts, "failed": len(outcome.failed)},
        "failed": len(outcome.failed),
    }
    failed = [{"id": ids[index], "reason": reason} for index, reason in sorted(outcome.failed.items())]
    gather(folder.generation(info["generation"]), stored, rows[members], table, failed)
    folder.publish(info)
    return info


def file_less(table: Any) -> bool:
    """Returns True if the images are not files of their own."""
    return bool(table.column("path").null_count)
