"""Hard negatives for pairs: the data set with a column of cells that are similar without being right."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.files import written
from coulomb.ground.progress import progress_bar
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.metrics.mining import HardNegatives, hard_negatives
from coulomb.models.encode import source_features
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import load
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.tables import Columns
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.source import EncodedSource
from coulomb.tables.workers import cores

PREFIX = "negative_"  # of the names of the columns that are added
SHOWN = 12  # rows of either kind for a page
ROWS = 1024  # per row group of the Parquet file; a picture that repeats is stored once in each
DICTIONARY = 2**28  # bytes of different pictures in a row group, beyond which they are stored as often as they occur

Features = np.ndarray


def mine(
    data: Any,
    encoder: str | Path | PairEncoder | TextEncoder | ImageEncoder,
    *,
    columns: str | Sequence[str | Column],
    out: str | Path,
    number: int = 1,
    margin: float | None = 0.05,
    relative: float | None = None,
    skip: int = 0,
    same: str | Sequence[str] = (),
    root: str | Path | None = None,
    workers: int | None = None,
    batch_size: int = 256,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes pairs with hard negatives: cells of the second column that are similar to the first cell without being right.

    The Parquet file ``out`` has the same rows and columns, pictures as bytes, and the columns ``negative_1``, …, the most
    similar first, which ``train`` reads as ``columns="image,caption,negative_1:negative"``. All distinct cells of the second
    column are searched, exactly; with s⁺ the cosine of the first cell and its most similar right cell, cell j is a negative
    if s_j < s⁺ − margin and s_j < s⁺ − relative·|s⁺|. Memory is linear in the rows; see `coulomb.metrics.hard_negatives`.

    The negatives come from all rows. ``train`` splits the file as it splits ``data``, so that a cell of a held-out row can be
    a negative of training rows; give the training rows alone as ``data``, and the others as ``test``, to keep them apart.

    Args:
        data: pairs, see `coulomb.tables.open_columns`.
        encoder: a run on these columns; or for two columns of one kind, the name of an encoder of this kind, see `load`.
        columns: the two columns, ``"image,caption"``.
        out: Parquet file to write; it must not exist.
        number: negatives per row. A row that has fewer is kept with empty cells, and ``train`` leaves it out.
        margin: absolute; cells that are closer may be right without being marked, and are left out. None: no such limit.
        relative: likewise, relative to |s⁺|.
        skip: how many of the most similar negatives within the limits are left out.
        same: further columns of the data, such as a product or a topic: the second cells of rows with an equal value are right
            for each other. Rows that share their first cell always are, and missing values are equal to none.
        root: the folder that paths of pictures are relative to.
        workers: processes that decode pictures; default: the number of cores.
        batch_size: cells per forward pass; does not change the result.
        progress: show progress bars on a terminal.

    Returns:
        ``rows``; ``negatives``, how many were found; ``short`` and ``without``, rows with fewer than ``number`` negatives, and
        with none; ``positive`` and ``negative``, the mean cosines of pairs and of negatives; ``hardest`` and ``random``, at
        most 12 rows each, ``[{"row", "positive", "negatives"}]``: the row in the file and its cosines; ``failed``, ``[{"id",
        "reason"}]`` of rows with an unreadable picture; ``notes``, sentences about what else is left out.

    Raises:
        InputError: the data, a column or the encoder cannot be opened, the encoder does not read these kinds of cells, an
            option is out of range, or no row has ``number`` negatives.

    >>> sums = {"question": [f"{n} plus one?" for n in range(40)], "answer": [f"it is {n + 1}" for n in range(40)]}
    >>> options = {"encoder": "static-random", "epochs": 1, "batch_size": 8, "evaluate": False, "progress": False}
    >>> run = coulomb.train(sums, columns="question,answer", out="to-mine", **options)
    >>> coulomb.mine(sums, run, columns="question,answer", out="hard.parquet")["rows"]
    40
    """
    path = _check_out(out)
    if margin is None and relative is None:
        raise InputError(
            "margin=None, relative=None: one of them is needed, or cells that are right count as negatives"
        )
    asked = parse_columns(columns)
    if len(asked) != 2 or any(column.negative for column in asked):
        named = ",".join(map(str, asked))
        raise InputError(f"columns={named!r}: must be two columns of pairs, such as image,caption")
    first, second = (column.name for column in asked)
    for name in (first, second):
        if re.fullmatch(rf"{PREFIX}\d+", name):
            raise InputError(f"columns={name!r}: is the name of a column that is written; rename it in the data")
    table = open_columns(data, asked, root=root, labels=False)
    others = table.other_columns()
    ids = np.stack(
        [table.cell_ids(first), table.cell_ids(second), *(_same(others, name, table) for name in _list(same))], 1
    )
    towers = _towers(encoder, table, (first, second))
    number, skip = _whole(number, "number", 1), _whole(skip, "skip", 0)
    workers = cores() if workers is None else workers
    (x, failed), (y, lost) = (
        _embed(tower, table, name, column, workers=workers, batch_size=batch_size, progress=progress)
        for tower, name, column in zip(towers, (first, second), ids.T[:2], strict=True)
    )
    failed |= lost
    if x.shape[1] != y.shape[1]:
        raise InputError(
            f"encoder={_name(encoder)!r}: gives {x.shape[1]} features for {first} and {y.shape[1]} for {second}; the columns "
            f"need one space, train a run on them: coulomb train … --columns {first},{second}"
        )
    kept = np.setdiff1d(np.arange(len(table)), list(failed))
    if failed:
        x, y, ids = x[kept], y[kept], ids[kept]
    found = hard_negatives(x, y, ids, count=number, margin=margin, relative=relative, skip=skip)
    if found.short == len(kept):  # `train` would leave out every row
        most = int((found.rows >= 0).sum(1).max())
        limits = f"margin={margin}, relative={relative}, skip={skip}"
        if most:
            raise InputError(f"number={number}: no row has that many negatives ({limits}); give at most {most}")
        raise InputError(
            f"data={visible(table.name)!r}: none of {counted(len(kept), 'row')} has a negative: every other {visible(second)} "
            f"is right for it or within the limits ({limits}); give more rows, or smaller limits"
        )
    names = [f"{PREFIX}{place + 1}" for place in range(number)]
    notes = [*table.notes]
    if old := [name for name in others if re.fullmatch(rf"{PREFIX}\d+", name)]:
        notes.append(f"{first_few(old)} of the data {'is' if len(old) == 1 else 'are'} replaced.")
    notes += _write(path, table, {name: each for name, each in others.items() if name not in old}, kept, found, names)
    some = found.cosines[np.isfinite(found.cosines)]
    return {
        "out": str(path),
        "columns": [first, second, *names],
        "rows": len(kept),
        "distinct": [len(np.unique(ids[:, 0])), len(np.unique(ids[:, 1]))],
        "negatives": len(some),
        "short": found.short,
        "without": int((found.rows[:, 0] < 0).sum()),
        "positive": round(float(found.positive.mean()), 6),
        "negative": round(float(some.mean()), 6) if len(some) else None,
        "hardest": _shown(found, np.argsort(-np.nan_to_num(found.cosines[:, 0], nan=-np.inf), kind="stable")),
        "random": _shown(found, numpy_generator(0, "mined rows").permutation(len(kept))),
        "options": {"number": number, "margin": margin, "relative": relative, "skip": skip, "same": _list(same)},
        "encoder": _name(encoder),
        "failed": [{"id": table.item_id(row), "reason": reason} for row, reason in sorted(failed.items())],
        "notes": notes,
    }


def _shown(found: HardNegatives, order: np.ndarray) -> list[dict[str, Any]]:
    """Returns the first of the rows in ``order`` that have a negative, with their cosines."""
    some = [row for row in order.tolist() if found.rows[row, 0] >= 0][:SHOWN]
    return [
        {
            "row": row,
            "positive": round(float(found.positive[row]), 6),
            "negatives": [round(each, 6) for each in found.cosines[row].tolist() if np.isfinite(each)],
        }
        for row in some
    ]


def _check_out(out: str | Path) -> Path:
    path = Path(out).expanduser()
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(f"out={visible(out)!r}: the pairs are written as Parquet; give a name that ends in .parquet")
    if path.exists():
        raise InputError(f"out={visible(out)!r}: already exists; choose another file")
    if not path.parent.is_dir():
        raise InputError(f"out={visible(out)!r}: there is no folder {visible(path.parent)}; create it first")
    return path


def _whole(value: int, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={value!r}: must be a whole number of at least {least}")
    return value


def _list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _name(encoder: Any) -> str:
    return str(encoder) if isinstance(encoder, str | Path) else encoder.name


def _same(others: dict[str, list[Any]], name: str, table: Columns) -> np.ndarray:
    """Returns an id for the value of each row in another column of the data; missing values are equal to none."""
    if name not in others:
        there = f"there are {first_few(list(others), 12)}" if others else "there are none"
        raise InputError(
            f"same={visible(name)!r}: {visible(table.name)} has no other column of this name; {there}"
            f"{did_you_mean(name, list(others))}"
        )
    number: dict[Any, int] = {}
    missing = [value is None or value != value or value == "" for value in others[name]]  # noqa: PLR0124  NaN
    return np.array(
        [
            -1 - row if lost else number.setdefault(value, len(number))
            for row, (value, lost) in enumerate(zip(others[name], missing, strict=True))
        ],
        np.int64,
    )


def _towers(encoder: Any, table: Columns, names: tuple[str, str]) -> list[Any]:
    """Returns the encoder of each column; raises `InputError` if one cannot read its cells."""
    opened = load(encoder, device=_device()) if isinstance(encoder, str | Path) else encoder
    towers = []
    for name in names:
        kind, tower = table.kinds[name], opened
        if isinstance(opened, PairEncoder):
            alike = [each for each, column in opened.columns.items() if column["kind"] == kind]
            shared = len({opened.columns[each]["tower"] for each in alike}) == 1
            if name not in alike and not shared:
                trained = ", ".join(f"{each} ({column['kind']})" for each, column in opened.columns.items())
                raise InputError(
                    f"encoder={opened.name!r}: has no tower for the column {name!r} ({kind}), or several; it was trained on "
                    f"{trained}: give columns of these names"
                )
            tower = opened[name if name in alike else alike[0]]
        reads = {"image": ImageEncoder, "text": TextEncoder}.get(kind)
        if (reads is None and not isinstance(opened, PairEncoder)) or (reads and not isinstance(tower, reads)):
            what = "texts" if isinstance(tower, TextEncoder) else "images"
            raise InputError(
                f"encoder={tower.name!r}: reads {what}, and the column {name!r} holds {kind}s; give a run that was trained on "
                f"both columns (coulomb train … --columns {','.join(names)})"
            )
        towers.append(tower)
    return towers


def _device() -> str | None:
    return "cuda" if torch.cuda.is_available() else None


def _embed(
    tower: Any, table: Columns, name: str, ids: np.ndarray, *, workers: int, batch_size: int, progress: bool
) -> tuple[Features, dict[int, str]]:
    """Returns the features [N, D] of a column, each distinct cell encoded once; and the reasons for unreadable rows."""
    _, first, at = np.unique(ids, return_index=True, return_inverse=True)
    cells, failures = table.columns[name], dict[int, str]()
    if isinstance(tower, ImageEncoder):
        with progress_bar(len(first), f"encoding {visible(name)}", progress) as advance:
            found, readable, failures = source_features(
                tower.encoder, cells, tower.canvas, first, workers=workers, batch_size=batch_size, advance=advance
            )
        features = np.zeros((len(first), found.shape[1]), np.float32)
        place = np.full(len(table), -1)
        place[first] = np.arange(len(first))
        features[place[readable]] = found.numpy()
    elif isinstance(tower, TextEncoder):
        texts = [cells[row] for row in first.tolist()]
        features = tower.encode(texts, batch_size, progress, convert_to_numpy=True)
    else:
        with torch.no_grad():
            parts = np.array_split(first, max(1, len(first) // batch_size))
            device = next(tower.parameters()).device
            rows = [tower(torch.from_numpy(np.asarray(cells[part], np.float32)).to(device)).cpu() for part in parts]
        features = torch.cat(rows).float().numpy()
    lost = dict(zip(at[list(failures)].tolist(), failures.values(), strict=True)) if failures else {}
    if len(lost) == len(first):
        raise InputError(
            f"{visible(name)}: none of {counted(len(first), 'cell')} can be read ({next(iter(lost.values()))})"
        )
    unread = np.flatnonzero(np.isin(at, list(lost))).tolist()
    return features[at], {row: lost[int(at[row])] for row in unread}


def _write(
    path: Path, table: Columns, others: dict[str, list[Any]], kept: np.ndarray, found: HardNegatives, names: list[str]
) -> list[str]:
    """Writes the rows ``kept`` with their negatives; returns a sentence for each column that cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first, second = table.columns
    types = {name: _arrow_type(table, name) for name in (first, second)}
    fields = [pa.field(name, kind) for name, kind in types.items()]
    plain, notes = {}, []
    for name, values in others.items():
        try:
            plain[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            notes.append(f"Column {visible(name)!r} holds values of several types and is left out of {visible(path)}.")
            continue
        fields.append(pa.field(name, plain[name].type))
    schema = pa.schema([*fields, *(pa.field(name, types[second]) for name in names)])
    with (
        written(path) as file,
        pq.ParquetWriter(file, schema, dictionary_pagesize_limit=DICTIONARY, compression="zstd") as writer,
    ):
        for start in range(0, len(kept), ROWS):
            rows, chosen = kept[start : start + ROWS], found.rows[start : start + ROWS]
            parts = {name: _cells(table, name, rows, types[name]) for name in (first, second)}
            parts |= {name: values.take(pa.array(rows)) for name, values in plain.items()}
            for place, name in enumerate(names):
                column = chosen[:, place]
                parts[name] = _cells(table, second, np.where(column < 0, -1, kept[column]), types[second])
            writer.write_table(pa.table(parts, schema=schema))
    return notes


def _arrow_type(table: Columns, name: str) -> Any:
    import pyarrow as pa

    if table.kinds[name] == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    if table.kinds[name] == "text":
        return pa.string()
    return pa.list_(pa.from_numpy_dtype(np.asarray(table.columns[name][:1]).dtype))


def _cells(table: Columns, name: str, rows: np.ndarray, kind: Any) -> Any:
    """Returns cells as an Arrow array; null for row −1."""
    import pyarrow as pa

    cells = table.columns[name]
    read = {"image": _picture, "text": lambda cells, row: cells[row]}.get(
        table.kinds[name], lambda cells, row: np.asarray(cells[row])
    )
    known: dict[int, Any] = {-1: None}
    for row in rows.tolist():
        if row not in known:
            known[row] = read(cells, row)
    return pa.array([known[row] for row in rows.tolist()], kind)


def _picture(cells: Any, row: int) -> dict[str, Any]:
    """Returns the encoded bytes of a picture and its name; pixels of an array as PNG."""
    name = cells.item_id(row)
    if isinstance(getattr(cells, "source", cells), EncodedSource):
        content = cells.content(row)
        return {"bytes": content.read_bytes() if isinstance(content, Path) else content, "path": visible(name, 400)}
    pixels = cells.image(row)
    if pixels.dtype != np.uint8:
        raise InputError(
            f"{visible(name)}: is an array of {pixels.dtype}; pictures are written with 8 bits per channel"
        )
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": visible(name, 400)}
