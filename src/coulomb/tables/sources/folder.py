"""Folders of image files: their images, labeled by subfolders, or images and captions as columns."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.outages import unavailable
from coulomb.ground.text import first_few, natural_key, portable, visible
from coulomb.kinds.image.band_files import ARRAY_SUFFIXES
from coulomb.kinds.image.decode import HEIC_EXTENSIONS, HEIC_HINT, image_extensions
from coulomb.tables.shards.addresses import PARTS
from coulomb.tables.sheet import Sheet
from coulomb.tables.sources.captions import Captions, find_captions
from coulomb.tables.sources.files import FileSource, is_inside
from coulomb.tables.sources.parquet import open_parquet_sheet
from coulomb.tables.sources.text_files import read_csv, read_json_lines

TEXT_EXTENSIONS = {".txt", ".csv", ".tsv", ".jsonl", ".json", ".ndjson", ".token"}
IMAGE, CAPTION = "image", "caption"
MOST_TEXT = 2**20  # bytes of a text file beside an image


@dataclass
class FolderScan:
    """Contents of a folder: relative paths of images and Parquet files, and everything that was skipped."""

    images: list[str] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0
    texts: list[str] = field(default_factory=list)  # among the others, those that may hold captions
    heic: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Returns one sentence for each kind of entry that was skipped."""
        notes = []
        if self.hidden:
            notes.append(
                f"{counted(self.hidden, 'hidden file or folder was', 'hidden files or folders were')} skipped."
            )
        if self.other:
            have = counted(self.other, "file without an image extension was", "files without an image extension were")
            notes.append(f"{have} skipped.")
        if self.heic:
            have = counted(len(self.heic), "HEIC file was", "HEIC files were")
            notes.append(f"{have} skipped ({first_few(self.heic)}): {HEIC_HINT}.")
        if self.links:
            have = counted(
                len(self.links),
                "link that is circular, or leads to a folder or out of the data folder, was",
                "links that are circular, or lead to folders or out of the data folder, were",
            )
            notes.append(f"{have} left out: {first_few(self.links)}.")
        if self.denied:
            have = counted(len(self.denied), "folder")
            notes.append(f"{have} could not be read (permission denied): {first_few(self.denied)}.")
        return notes


def scan_folder(root: Path) -> FolderScan:
    """Lists the files of a folder tree in natural order. NumPy files are images if there is nothing else.

    Links out of ``root`` are refused, and so are links to folders, which may be circular.
    """
    scan, resolved = FolderScan(), root.resolve()
    arrays: list[str] = []
    shards = False
    waiting = [""]  # paths of folders, each empty or with a slash at its end
    while waiting:
        prefix = waiting.pop()
        for entry in _entries(root, prefix, scan):
            name = prefix + entry.name
            if entry.name.startswith("."):
                scan.hidden += 1
            elif entry.is_symlink() and (_may_be_folder(entry) or not is_inside(Path(entry.path), resolved)):
                scan.links.append(portable(name))
            elif entry.is_dir():
                waiting.append(name + "/")
            else:
                extension = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  as above
                if extension in image_extensions():
                    scan.images.append(name)
                elif extension == ".parquet":
                    scan.parquet.append(name)
                elif extension in ARRAY_SUFFIXES:
                    arrays.append(name)
                elif extension in HEIC_EXTENSIONS:
                    scan.heic.append(portable(name))
                else:
                    scan.other += 1
                    shards |= extension == ".tar"
                    if extension in TEXT_EXTENSIONS:
                        scan.texts.append(name)
    if scan.images or scan.parquet or shards:
        scan.other += len(arrays)  # features, for example
    else:
        scan.images = arrays
    for names in (scan.images, scan.parquet, scan.heic, scan.links, scan.denied):
        names.sort(key=natural_key)
    return scan


def _entries(root: Path, prefix: str, scan: FolderScan) -> list[os.DirEntry[str]]:
    """Returns what a folder holds; a subfolder without permission is noted and empty."""
    try:
        return list(os.scandir(root / prefix))
    except PermissionError:
        if not prefix:
            raise InputError(f"{visible(root)}: permission denied; this user cannot read the folder") from None
        scan.denied.append(prefix.rstrip("/"))
        return []
    except OSError as error:
        raise unavailable(root / prefix, error) from None


def _may_be_folder(link: os.DirEntry[str]) -> bool:
    """Returns True if a link leads to a folder, in a circle, or where this user may not look."""
    try:
        return link.is_dir()
    except OSError:
        return True


def open_folder(root: Path, scan: FolderScan) -> FileSource:
    """Opens the images of a folder, labeled by its subfolders.

    - Without subfolders there are no labels: a flat folder is never one class.
    - With several subfolders, the first folder level is the class, however deep the file lies. Files in the folder itself
      have no label (−1).
    - A single subfolder is not a class either, because one class carries no information.
    - If all subfolders are called train, test, val and the like, they are parts of a data set instead of classes.

    Raises:
        InputError: there are no images, or the subfolders are parts of a data set.
    """
    notes = scan.notes()
    if not scan.images:
        raise InputError(
            f"{visible(root)}: no images in this folder (looked for jpg, png, webp, gif, tif, bmp, npy, … in any case)."
            + " ".join(["", *notes])
        )
    if scan.parquet:
        have = counted(
            len(scan.parquet), "Parquet file next to the images was", "Parquet files next to the images were"
        )
        notes.append(f"{have} skipped.")
    folders = [path.split("/", 1)[0] if "/" in path else None for path in scan.images]
    names = sorted({folder for folder in folders if folder is not None}, key=natural_key)
    if names and None not in folders and {name.lower() for name in names} <= PARTS:
        raise InputError(
            f"{visible(root)}: its folders {first_few(names)} look like parts of a data set, not classes; "
            f"give one of them as the data ({visible(root / names[0])}) and another as the test set"
        )
    captions = find_captions(root, scan.images, [*scan.texts, *scan.parquet])
    if captions is not None and (note := captions.note(len(scan.images))) is not None:
        notes.append(note)
    labels = class_names = None
    kind = "folder"
    if len(names) == 1:
        notes.append(
            f"The only subfolder, {visible(names[0])}, is not used as a class: one class carries no information."
        )
    elif names:
        kind = "class folders"
        class_names = [portable(name) for name in names]
        number = {name: index for index, name in enumerate(names)}
        labels = np.array([-1 if folder is None else number[folder] for folder in folders], dtype=np.int64)
        loose = folders.count(None)
        deep = sum(path.count("/") > 1 for path in scan.images)
        if loose:
            have = counted(
                loose,
                "image lies in the folder itself, next to the class folders: it has",
                "images lie in the folder itself, next to the class folders: they have",
            )
            notes.append(f"{have} no label (−1).")
        if deep:
            have = counted(deep, "image lies deeper than its", "images lie deeper than their")
            notes.append(f"{have} class folder; the first folder level is the class.")
    return FileSource(
        root, scan.images, kind=kind, name=portable(root.resolve().name or str(root)),
        labels=labels, class_names=class_names, notes=tuple(notes),
    )  # fmt: skip


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
