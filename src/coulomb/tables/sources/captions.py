"""Captions in a folder of images: a table of names and texts, or a text file beside each image."""

import csv
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coulomb.ground.errors import counted
from coulomb.ground.reading import parse_json
from coulomb.ground.text import natural_key, visible
from coulomb.kinds.image.decode import image_extensions

# In the order of preference: the layout of image folders of the hub, the files of Flickr8k and Flickr30k.
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet", "captions.txt", "captions.csv", "captions.tsv",
          "captions.jsonl", "results.csv")  # fmt: skip
TOKENS = (".token", ".token.txt")
NAME_COLUMNS = ("file_name", "image", "filename", "file", "image_name", "path")
CAPTION_COLUMNS = (
    "caption",
    "text",
    "captions",
    "texts",
    "description",
    "prompt",
    "title",
    "sentence",
    "comment",
    "raw",
)
LONGEST = 2**20  # bytes of the first line of a table
BESIDE = 0.5  # of the images that have a text file beside them


@dataclass(frozen=True)
class Captions:
    """Captions of the images of a folder.

    Attributes:
        table: the file that holds them, relative to the folder; None for one text file beside each image.
        columns: names of the columns of the table; empty if its first line does not name any.
        delimiter: between the fields of the table, if it is not JSON or Parquet.
        beside: the text file of each image, relative to the folder, by the path of the image.
    """

    table: str | None = None
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    beside: dict[str, str] | None = None

    @property
    def image(self) -> str:
        """The column of names of images."""
        return next((name for name in NAME_COLUMNS if name in self.columns), "image")

    @property
    def caption(self) -> str | None:
        """The column of texts with a usual name; "caption" if no column has a name."""
        if not self.columns:
            return "caption"
        return next((name for name in CAPTION_COLUMNS if name in self.columns), None)

    def note(self, images: int) -> str | None:
        """Returns a sentence that says how to train on the captions; None if the table has no column of captions."""
        if self.caption is None:
            return None
        if self.table is not None:
            what = f"{visible(self.table)} has texts for the images"
        else:
            count = len(self.beside or ())
            what = f"{count} of {counted(images, 'image has', 'images have')} a text file of the same name"
        return f"{what}: to train on images with their texts, give --columns image,{visible(self.caption)}."


def find_captions(root: Path, images: list[str], texts: list[str]) -> Captions | None:
    """Returns the captions of a folder; None if there are none.

    Args:
        root: the folder.
        images: paths of its images, relative to it.
        texts: likewise of its files that are text by their extension.
    """
    if not images:
        return None
    here = sorted((name for name in texts if "/" not in name), key=natural_key)
    tables = [name for name in TABLES if name in here]
    tables += [name for name in here if name.lower().endswith(TOKENS)]
    for name in tables:
        if (found := _describe(root, name)) is not None:
            return found
    known = set(texts)
    beside = {}
    for image in images:
        name = str(PurePosixPath(image).with_suffix(".txt"))
        if name in known:
            beside[image] = name
    return Captions(beside=beside) if len(beside) > BESIDE * len(images) else None


def _describe(root: Path, name: str) -> Captions | None:
    """Returns what the first line of a table says; None if it does not name an image."""
    path = root / name
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        columns = tuple(pq.read_schema(path).names)
        return Captions(name, columns) if set(NAME_COLUMNS) & set(columns) else None
    with path.open("rb") as file:
        line = file.readline(LONGEST).decode("utf-8-sig", "replace").rstrip("\r\n")
    if path.suffix == ".jsonl":
        try:
            value = parse_json(line.encode())
        except ValueError:
            return None
        columns = tuple(value) if isinstance(value, dict) else ()
        return Captions(name, columns) if set(NAME_COLUMNS) & set(columns) else None
    delimiter = next((each for each in "\t|," if each in line), None)
    if delimiter is None:
        return None
    fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]
    if set(NAME_COLUMNS) & set(fields):
        return Captions(name, tuple(fields), delimiter)
    if (
        len(fields) >= 2
        and PurePosixPath(fields[0].rpartition("#")[0] or fields[0]).suffix.lower() in image_extensions()
    ):
        return Captions(name, (), delimiter)
    return None
