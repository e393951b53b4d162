"""The sampled images of a run: sprite sheet, nearest neighbors and map."""

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from coulomb.evaluation.feature_map import Layout
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData, Samples
from coulomb.report.coloring import Coloring, map_colorings
from coulomb.report.pages.numbers import shorten

MAX_CELL = 64  # pixels; the page shows thumbnails at most twice as large
MAX_PNG_SHEET = 900_000  # bytes; a larger picture becomes a JPEG
MAX_PNG_VIEWS = 1_500_000
MAX_JPEG = 2_500_000
MAX_VIEWS_WIDTH = 1600


@dataclass(frozen=True)
class Sheet:
    """A sprite sheet of square cells, ``columns`` per row."""

    uri: str
    columns: int
    cell: int
    count: int


def sprite_sheet(thumbnails: np.ndarray) -> Sheet:
    """Returns one picture of all thumbnails, uint8 [n, h, w, 3]: a PNG if it is small, else a JPEG."""
    n, height, width, _ = thumbnails.shape
    side = max(height, width)
    scale = min(1.0, MAX_CELL / side)
    cell = max(1, round(side * scale))
    columns = max(1, math.ceil(math.sqrt(n)))
    sheet = Image.new("RGB", (columns * cell, math.ceil(n / columns) * cell), (128, 128, 128))
    for i, pixels in enumerate(thumbnails):
        image = Image.fromarray(np.ascontiguousarray(pixels))
        if scale < 1:
            size = max(1, round(width * scale)), max(1, round(height * scale))
            image = image.resize(size, Image.Resampling.LANCZOS)
        row, column = divmod(i, columns)
        sheet.paste(image, (column * cell + (cell - image.width) // 2, row * cell + (cell - image.height) // 2))
    return Sheet(_data_uri(sheet, MAX_PNG_SHEET), columns, cell, n)


def picture(data: bytes) -> tuple[str, int, int]:
    """Decodes and re-encodes a picture, at most 1600 pixels wide; returns (data URI, width, height).

    Raises:
        ValueError: the data are not a picture.
    """
    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ValueError("not a readable picture") from error
    if image.width > MAX_VIEWS_WIDTH:
        image = image.resize((MAX_VIEWS_WIDTH, max(1, round(image.height * MAX_VIEWS_WIDTH / image.width))))
    return _data_uri(image, MAX_PNG_VIEWS), image.width, image.height


def _data_uri(image: Image.Image, max_png: int) -> str:
    buffer, kind = io.BytesIO(), "png"
    image.save(buffer, "PNG", optimize=True)
    if buffer.tell() > max_png:
        kind = "jpeg"
        for quality in (88, 75, 60, 40, 20):
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=quality, subsampling=0)
            if buffer.tell() <= MAX_JPEG:
                break
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@dataclass(frozen=True)
class Gallery:
    """What the sections on neighbors and on the map show. ``names``: class of each sample, '' if unknown."""

    queries: list[int]
    neighbors: np.ndarray
    agreement: float | None
    layouts: list[Layout]
    colorings: list[Coloring]
    samples: Samples
    names: list[str]

    def wrong(self, query: int, other: int) -> bool:
        """Returns True if both classes are known and differ."""
        labels = self.samples.labels
        return bool(labels[query] >= 0 and labels[other] >= 0 and labels[query] != labels[other])

    def right(self, query: int) -> tuple[int, int]:
        """Returns (neighbors of the query's class, neighbors with a known class); (0, 0) for an unlabeled query."""
        labels = self.samples.labels[self.neighbors[query]]
        if self.samples.labels[query] < 0:
            return 0, 0
        return int((labels == self.samples.labels[query]).sum()), int((labels >= 0).sum())

    def mark(self, sample: int) -> tuple[int, str]:
        """Returns (symbol, style classes) of a sample in the first coloring."""
        if not self.colorings:
            return 0, "c0"
        first = self.colorings[0]
        if first.of_sample[sample] < 0:
            return 0, "none"
        mark = first.marks[first.of_sample[sample]]
        return mark.shape, f"c{mark.color}" + (" rest" if mark.label < 0 else "")

    def for_script(self) -> dict[str, Any]:
        """Returns the data of the page's script."""
        classes = sorted(set(self.names) - {""})
        index = {name: i for i, name in enumerate(classes)} | {"": -1}
        return {
            "places": {layout.key: layout.places.tolist() for layout in self.layouts},
            "cautions": {layout.key: layout.caution for layout in self.layouts},
            "layout": self.layouts[0].key if self.layouts else "",
            "ids": [shorten(name) for name in self.samples.ids],
            "classes": [shorten(name, 60) for name in classes],
            "class": [index[name] for name in self.names],
            "labels": self.samples.labels.tolist(),
            "neighbors": self.neighbors.tolist(),
            "colorings": [
                {
                    "key": one.key,
                    "note": one.note,
                    "marks": [[shorten(m.name, 60), m.color, m.shape, m.count, m.label < 0] for m in one.marks],
                    "of": one.of_sample,
                }
                for one in self.colorings
            ],
        }


def make_gallery(run: RunData) -> Gallery | None:
    """Returns the run's sampled images with their neighbors and maps; None for fewer than two held-out images."""
    samples = run.samples
    if samples is None:
        return None
    if samples.neighbors is None:
        run.problems.append("samples.npz has no neighbors: of a single image there are no neighbors and no map.")
        return None
    found = run.evaluation.get("samples")
    described = found if isinstance(found, dict) else {}
    if not described:
        run.problems.append("evaluation.json does not describe the samples: no neighbors and no map are shown.")
    queries, maps = (value if isinstance(value := described.get(key), list) else [] for key in ("queries", "maps"))
    return Gallery(
        [query for query in queries if type(query) is int and 0 <= query < samples.held_out],
        samples.neighbors,
        finite(described.get("agreement")),
        [
            Layout(entry["key"], str(entry.get("name")), str(entry.get("caution")), samples.maps[entry["key"]])
            for entry in maps
            if isinstance(entry, dict) and isinstance(entry.get("key"), str) and entry["key"] in samples.maps
        ],
        map_colorings(run, samples, samples.neighbors),
        samples,
        [run.class_name(label) if label >= 0 else "" for label in samples.labels.tolist()],
    )
