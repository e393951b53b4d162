"""What a build of an index begins from: its encoder, and checks of the data and of the existing index."""

from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.index import encoders
from coulomb.index.folder import PRECISIONS, IndexFolder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import run_path
from coulomb.models.pair_encoder import PairEncoder
from coulomb.tables import Source

THUMBNAIL = 192  # pixels, the longer side


def choose(
    source: Source,
    before: dict[str, Any] | None,
    encoder: str | Path | ImageEncoder | PairEncoder | None,
    image_size: int | None,
    precision: str | None,
) -> tuple[ImageEncoder, dict[str, Any]]:
    """Returns the encoder, and the entries of ``index.json`` that all generations share.

    What is not given is taken from the existing index, whose ``index.json`` holds ``before``.
    """
    if before is not None:
        encoder = before["encoder"]["name"] if encoder is None else encoder
        precision = before["precision"] if precision is None else precision
        if image_size is None and not isinstance(encoder, ImageEncoder | PairEncoder) and run_path(encoder) is None:
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
