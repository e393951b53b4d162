"""Folders of images with captions as sheets."""

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few, portable, visible
from coulomb.tables.sheets.parquet import open_parquet_sheet
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.sheets.text_files import read_csv, read_json_lines
from coulomb.tables.sources.captions import Captions, find_captions
from coulomb.tables.sources.files import FolderScan, open_folder

IMAGE, CAPTION = "image", "caption"
MOST_TEXT = 2**20  # bytes of a text file beside an image


def open_image_folder(root: Path, scan: FolderScan) -> Sheet:
    """Opens the images of a folder with their captions, in one of these layouts:

    - ``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet`` with a column ``file_name``, as image folders of the hub;
    - ``captions.txt`` (or ``.csv``, ``.tsv``, ``.jsonl``), with a first line such as ``image,caption``, or lines
      ``NAME.jpg#0<TAB>CAPTION`` as in Flickr8k and Flickr30k;
    - ``NAME.txt`` beside ``NAME.jpg``.

    The column of images is ``image``; the column of texts is called as in the table, or ``caption``. Names of images are
    relative to the folder, or names of files anywhere in it if those are distinct. Without captions, ``image`` is the only
    column.
    """
    captions = find_captions(root, scan.images, [*scan.texts, *scan.parquet])
    name = portable(root.resolve().name or str(root))
    if captions is None:
        source = open_folder(root, scan)
        looked = "No captions: neither metadata.csv, metadata.jsonl nor captions.txt, nor NAME.txt beside NAME.jpg"
        return Sheet(name, "folder", len(source), [IMAGE], lambda _: source, root=root, notes=source.notes, hint=looked)
    used = len(captions.beside or ()) if captions.table is None else int(captions.table in scan.texts)
    notes = replace(scan, other=scan.other - used).notes()
    if captions.table is None:
        return _beside(root, scan, captions, name, notes)
    columns = _read_table(root, captions)
    paths, found = _resolve(columns.pop(IMAGE), scan.images, captions.table)
    if without := len(set(scan.images) - set(paths)):
        notes.append(
            f"{counted(without, 'image of the folder is', 'images of the folder are')} not in {captions.table}."
        )
    notes += found
    names = [IMAGE, *columns]
    return Sheet(
        name, "image folder", len(paths), names, {IMAGE: paths, **columns}.__getitem__, root=root, notes=tuple(notes)
    )


def _read_table(root: Path, captions: Captions) -> dict[str, Any]:
    """Returns the columns of a table of captions; the names of images are a list in the column ``image``."""
    import pyarrow.compute as pc

    assert captions.table is not None
    path = root / captions.table
    columns: dict[str, Any]
    if path.suffix == ".parquet":
        sheet = open_parquet_sheet([path], path.name)
        columns = {each: sheet.read(each) for each in sheet.names}
    elif path.suffix == ".jsonl":
        columns = read_json_lines(path)
    else:
        assert captions.delimiter is not None
        header = None if captions.columns else _header(path, captions.delimiter)
        columns = read_csv(path, captions.delimiter, header, quotes=captions.delimiter == "," or path.suffix == ".tsv")
        if captions.delimiter == "|":
            columns = {each: pc.utf8_trim_whitespace(column) for each, column in columns.items()}
    names = columns.pop(captions.image)
    names = list(names) if isinstance(names, list) else names.to_pylist()
    if not captions.columns:
        names = [each if each is None else each.rpartition("#")[0] or each for each in names]
    return {IMAGE: names, **columns}


def _header(path: Path, delimiter: str) -> list[str]:
    """Returns names for the fields of a table without any: the image, its caption, and what follows."""
    with path.open("rb") as file:
        fields = file.readline().count(delimiter.encode()) + 1
    return [IMAGE, CAPTION, *(f"column {number}" for number in range(3, fields + 1))][:fields]


def _resolve(names: list[Any], images: list[str], table: str) -> tuple[list[Any], list[str]]:
    """Returns the paths that a table names, which may be the names of files in subfolders; and notes."""
    known = set(images)
    if any(name in known for name in names[:1000]):
        return names, []
    by_name: dict[str, str | None] = {}
    for image in images:
        last = PurePosixPath(image).name
        by_name[last] = image if last not in by_name else None
    found = [by_name.get(name) if isinstance(name, str) else None for name in names]
    if not any(found):
        return names, []
    folders = sorted({os.path.dirname(path) for path in found if path})  # noqa: PTH120
    lost = sum(path is None and bool(name) for path, name in zip(found, names, strict=True))
    notes = [f"The names in {visible(table)} are names of files in {first_few(folders)}."]
    if lost:
        notes.append(f"{counted(lost, 'name')} of these {'is' if lost == 1 else 'are'} of no file, or of several.")
    return [path or name for path, name in zip(found, names, strict=True)], notes


def _beside(root: Path, scan: FolderScan, captions: Captions, name: str, notes: list[str]) -> Sheet:
    """Opens a folder with one text file beside each image."""

    def read(column: str) -> Any:
        if column == IMAGE:
            return scan.images
        assert captions.beside is not None
        return [_text(root, captions.beside[image]) if image in captions.beside else None for image in scan.images]

    return Sheet(name, "image folder", len(scan.images), [IMAGE, CAPTION], read, root=root, notes=tuple(notes))


def _text(root: Path, name: str) -> str:
    path = root / name
    try:
        with path.open("rb") as file:
            content = file.read(MOST_TEXT + 1)
        if len(content) > MOST_TEXT:
            raise InputError(f"{visible(path)}: larger than {MOST_TEXT // 2**20} MiB; a caption is shorter")
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{visible(path)}: not UTF-8 (byte 0x{content[error.start]:02x}); save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{visible(path)}: cannot be read ({error.strerror})") from None
