"""A folder of images: flat (no labels) or one folder a class.

- Images only in the folder itself: flat, no labels. A flat folder is never one class.
- Images only in subfolders: the first folder level is the class, however deep the file lies.
- One subfolder only: that would be one class, which says nothing: no labels.
- Both: files of the folder itself have no class (−1), files in subfolders have theirs.
- Only folders called train, test, val, …: these are parts of a data set, not classes: refused, saying what to do.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coulomb.data.decode import HEIC_EXTENSIONS, HEIC_HINT, image_extensions
from coulomb.data.files import FileSource, is_inside
from coulomb.data.names import natural_key, portable, some, visible
from coulomb.errors import InputError

PARTS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}


@dataclass
class Scan:
    """What lies in a folder: images and Parquet files by relative path, and a count of everything passed over."""

    images: list[str] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0
    heic: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of thing that was passed over."""
        said = []
        if self.hidden:
            said.append(f"{self.hidden} hidden files or folders were passed over.")
        if self.other:
            said.append(f"{self.other} files without an image extension were passed over.")
        if self.heic:
            said.append(f"{len(self.heic)} HEIC files were passed over ({some(self.heic)}): {HEIC_HINT}.")
        if self.links:
            said.append(
                f"{len(self.links)} links to folders or out of the data folder were refused: {some(self.links)}."
            )
        if self.denied:
            said.append(f"{len(self.denied)} folders could not be read (permission denied): {some(self.denied)}.")
        return tuple(said)


def scan_folder(root: Path) -> Scan:
    """Walk ``root`` in natural order. Links that leave it, and links to folders (they could run in circles), are refused."""
    found = Scan()
    resolved = root.resolve()
    try:
        os.scandir(root).close()
    except PermissionError:
        raise InputError(f"{visible(root)}: permission denied; the folder cannot be read by this user") from None
    _walk(root, "", resolved, found)
    found.images.sort(key=natural_key)
    found.parquet.sort(key=natural_key)
    return found


def _walk(folder: Path, prefix: str, root: Path, found: Scan) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: natural_key(entry.name))
    except PermissionError:
        found.denied.append(prefix.rstrip("/"))
        return
    for entry in entries:
        name = prefix + entry.name
        if entry.name.startswith("."):
            found.hidden += 1
        elif entry.is_symlink() and (entry.is_dir() or not is_inside(Path(entry.path), root)):
            found.links.append(portable(name))
        elif entry.is_dir():
            _walk(Path(entry.path), name + "/", root, found)
        else:
            extension = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  a million files: no Path each
            if extension in image_extensions():
                found.images.append(name)
            elif extension == ".parquet":
                found.parquet.append(name)
            elif extension in HEIC_EXTENSIONS:
                found.heic.append(portable(name))
            else:
                found.other += 1


def open_folder(root: Path, scan: Scan | None = None) -> FileSource:
    """The images of a folder, with labels by the rules above. Raises :class:`InputError` where there are none."""
    found = scan_folder(root) if scan is None else scan
    notes = list(found.notes())
    if not found.images:
        passed = " " + " ".join(notes) if notes else ""
        raise InputError(f"{visible(root)}: no images in this folder (looked for {_extensions()}).{passed}")
    if found.parquet:
        notes.append(f"{len(found.parquet)} Parquet files beside the images were passed over.")
    tops = [path.split("/", 1)[0] if "/" in path else None for path in found.images]
    names = sorted({top for top in tops if top is not None}, key=natural_key)
    if names and None not in tops and {name.lower() for name in names} <= PARTS:
        raise InputError(
            f"{visible(root)}: its folders {some(names)} look like parts of a data set, not classes; "
            f"give one of them as the data ({visible(root / names[0])}) and another as the test set"
        )
    labels = class_names = None
    kind = "folder"
    if len(names) == 1:
        notes.append(f"The only subfolder, {visible(names[0])}, was not taken for a class: one class says nothing.")
    elif names:
        kind = "class folders"
        class_names = [portable(name) for name in names]
        number = {name: index for index, name in enumerate(names)}
        labels = np.array([-1 if top is None else number[top] for top in tops], dtype=np.int64)
        loose = tops.count(None)
        deep = sum(path.count("/") > 1 for path in found.images)
        if loose:
            notes.append(f"{loose} images lie in the folder itself, beside the class folders: they have no label (−1).")
        if deep:
            notes.append(f"{deep} images lie deeper than their class folder; the first folder level is the class.")
    return FileSource(
        root, found.images, kind=kind, name=portable(root.resolve().name or str(root)),
        labels=labels, class_names=class_names, notes=tuple(notes),
    )  # fmt: skip


def _extensions() -> str:
    return "jpg, png, webp, gif, tif, bmp, … in any case"
