"""What a build of an index begins from: its encoder, and checks of the data and of the existing index."""

from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.index import encoders
from coulomb.index.folder import PRECISIONS, IndexFolder
from coulomb.index.kinds import TEXTS, IndexKind, kind_of
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import run_path
from coulomb.models.text_encoder import TextEncoder
from coulomb.tables import Source

THUMBNAIL = 192  # pixels, the longer side


def choose(
    source: Source,
    before: dict[str, Any] | None,
    encoder: encoders.Given | None,
    image_size: int | None,
    precision: str | None,
) -> tuple[ImageEncoder, dict[str, Any]]:
    """Returns the encoder, and the entries of ``index.json`` that all generations share.

    What is not given is taken from the existing index, whose ``index.json`` holds ``before``.
    """
    if before is not None:
        encoder = before["encoder"]["name"] if encoder is None else encoder
        precision = before["precision"] if precision is None else precision
        if image_size is None and isinstance(encoder, str | Path) and run_path(encoder) is None:
            image_size = before["encoder"]["image_size"]
    opened = encoders.open_encoder(encoders.DEFAULT if encoder is None else encoder, image_size)
    opened = encoders.prepared_for(opened, source)
    return opened, {
        "encoder": encoders.describe(opened),
        "features": opened.encoder.feature_dim,
        "precision": precision or PRECISIONS[0],
        "thumbnail": THUMBNAIL,
    }


def choose_for_texts(
    column: str, before: dict[str, Any] | None, encoder: encoders.Given | None, precision: str | None
) -> tuple[TextEncoder, dict[str, Any]]:
    """Returns the encoder of the texts of a column, and the entries that all generations share, as `choose`."""
    if before is not None:
        encoder = before["encoder"]["name"] if encoder is None else encoder
        precision = before["precision"] if precision is None else precision
    opened = encoders.open_text_encoder(encoders.DEFAULT_OF_TEXTS if encoder is None else encoder, column)
    return opened, {
        "column": {"name": column, "kind": TEXTS.name},
        "encoder": encoders.describe_texts(opened),
        "features": opened.encoder.feature_dim,
        "precision": precision or PRECISIONS[0],
    }


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
