"""The sampled images of a run: sprite sheet, nearest neighbours and map."""

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from coulomb.metrics.rank import effective_rank
from coulomb.pages.numbers import shorten
from coulomb.randomness import numpy_generator
from coulomb.report.collect import Run, Samples
from coulomb.report.feature_map import Colouring, Layout, colourings, layouts


def nearest(features: np.ndarray, k: int = 8, among: np.ndarray | None = None) -> np.ndarray:
    """Indices [n, min(k, n−1)] of each row's nearest other rows, nearest first; ties by index.

    s_ij = x_i·x_j / (‖x_i‖‖x_j‖)

    ``among`` bool [n]: only these are looked for.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    room = len(features) - 1
    if among is not None:
        similarity[:, ~among] = -np.inf
        room = int(among.sum()) - 1
    return np.argsort(-similarity, axis=1, kind="stable")[:, : min(k, room)]


def draw_queries(labels: np.ndarray, n: int = 12, seed: int = 0) -> list[int]:
    """``n`` indices drawn at random; with labels, in turn over the classes, so that each has its chance."""
    order = numpy_generator(seed, "report", "queries").permutation(len(labels))
    turn: dict[int, int] = {}
    rounds = []
    for i in order.tolist():
        label = int(labels[i])
        turn[label] = turn.get(label, -1) + 1
        rounds.append((label < 0, turn[label], i))  # images without a label come last
    if (labels >= 0).any():
        rounds.sort(key=lambda entry: entry[:2])
    return sorted((i for *_, i in rounds[:n]), key=lambda i: (int(labels[i]) < 0, int(labels[i])))


@dataclass(frozen=True)
class Agreement:
    """How often neighbours share the class, over ``pairs`` pairs in which both labels are known."""

    share: float
    pairs: int


def agreement(neighbours: np.ndarray, labels: np.ndarray) -> Agreement | None:
    """The share of neighbours with the query's class; None without labels."""
    known = (labels[:, None] >= 0) & (labels[neighbours] >= 0)
    if not known.any():
        return None
    same = (labels[:, None] == labels[neighbours]) & known
    return Agreement(float(same.sum() / known.sum()), int(known.sum()))


MAX_CELL = 64  # pixels; the page shows thumbnails no larger than twice this
PNG_UP_TO = 900_000  # bytes; larger sheets become JPEG
MAX_VIEWS = 1_500_000
MAX_VIEWS_WIDTH = 1600


@dataclass(frozen=True)
class Sheet:
    """A sprite sheet of square cells, ``columns`` in a row."""

    uri: str
    columns: int
    cell: int
    count: int


def sprite_sheet(thumbnails: np.ndarray) -> Sheet:
    """One sheet of uint8 [n, h, w, 3]: PNG when small, otherwise JPEG without colour subsampling."""
    n, height, width, _ = thumbnails.shape
    side = max(height, width)
    scale = min(1.0, MAX_CELL / side)
    cell = max(1, round(side * scale))
    columns = max(1, math.ceil(math.sqrt(n)))
    sheet = Image.new("RGB", (columns * cell, math.ceil(n / columns) * cell), (128, 128, 128))
    for i, pixels in enumerate(thumbnails):
        image = Image.fromarray(np.ascontiguousarray(pixels))
        if scale < 1:
            image = image.resize(
                (max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS
            )
        row, column = divmod(i, columns)
        sheet.paste(image, (column * cell + (cell - image.width) // 2, row * cell + (cell - image.height) // 2))
    return Sheet(_encode(sheet, PNG_UP_TO), columns, cell, n)


def picture(data: bytes) -> tuple[str, int, int]:
    """Any picture file as (data: address, width, height), decoded and written anew, at most 1600 pixels wide.

    Raises ``ValueError`` when it is not a picture.
    """
    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ValueError("not a readable picture") from error
    if image.width > MAX_VIEWS_WIDTH:
        image = image.resize((MAX_VIEWS_WIDTH, max(1, round(image.height * MAX_VIEWS_WIDTH / image.width))))
    return _encode(image, MAX_VIEWS), image.width, image.height


def _encode(image: Image.Image, png_up_to: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    kind = "png"
    if buffer.tell() > png_up_to:
        kind = "jpeg"
        for quality in (88, 75, 60, 40, 20):
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=quality, subsampling=0)
            if buffer.tell() <= 2_500_000:
                break
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@dataclass(frozen=True)
class Gallery:
    """Everything the sections on neighbours and map draw from."""

    queries: list[int]
    neighbours: np.ndarray
    agreement: Agreement | None
    layouts: list[Layout]
    colourings: list[Colouring]
    effective_rank: float | None
    samples: Samples
    names: list[str]  # class name of each sample, '' unknown

    def wrong(self, query: int, other: int) -> bool:
        """True when both classes are known and differ."""
        labels = self.samples.labels
        return bool(labels[query] >= 0 and labels[other] >= 0 and labels[query] != labels[other])

    def right(self, query: int) -> tuple[int, int]:
        """(neighbours of the query's class, neighbours whose class is known); (0, 0) for a query without a label."""
        labels = self.samples.labels[self.neighbours[query]]
        if self.samples.labels[query] < 0:
            return 0, 0
        return int((labels == self.samples.labels[query]).sum()), int((labels >= 0).sum())

    def mark(self, sample: int) -> tuple[int, str]:
        """(symbol, classes of the style sheet) of a sample, as the page shows it at first."""
        if not self.colourings:
            return 0, "c0"
        first = self.colourings[0]
        if first.of_sample[sample] < 0:
            return 0, "none"
        mark = first.marks[first.of_sample[sample]]
        return mark.shape, f"c{mark.colour}" + (" rest" if mark.label < 0 else "")

    def for_script(self) -> dict[str, Any]:
        """The part that the page's script needs, as JSON."""
        classes = sorted(set(self.names) - {""})
        where = {name: i for i, name in enumerate(classes)} | {"": -1}
        return {
            "places": {layout.key: layout.places.tolist() for layout in self.layouts},
            "cautions": {layout.key: layout.caution for layout in self.layouts},
            "layout": self.layouts[0].key if self.layouts else "",
            "ids": [shorten(name) for name in self.samples.ids],
            "classes": [shorten(name, 60) for name in classes],
            "class": [where[name] for name in self.names],
            "labels": self.samples.labels.tolist(),
            "neighbours": self.neighbours.tolist(),
            "colourings": [
                {
                    "key": one.key,
                    "note": one.note,
                    "marks": [[shorten(m.name, 60), m.colour, m.shape, m.count, m.label < 0] for m in one.marks],
                    "of": one.of_sample,
                }
                for one in self.colourings
            ],
        }


def gallery(run: Run, seed: int) -> Gallery | None:
    """Neighbours, maps and marks of the run's samples; None when there are fewer than two held-out ones."""
    samples = run.samples
    if samples is None:
        return None
    held_out = samples.held_out
    if held_out.sum() < 2:
        run.problems.append("samples.npz holds a single image: no neighbours and no map.")
        return None
    first = int(held_out.sum())  # held-out samples come first
    neighbours = nearest(samples.features, among=held_out)
    return Gallery(
        draw_queries(samples.labels[:first], seed=seed),
        neighbours,
        agreement(neighbours[:first], samples.labels[:first]),
        layouts(samples.features, seed, run.problems),
        colourings(run, samples, neighbours, seed),
        effective_rank(torch.from_numpy(samples.features[:first])),
        samples,
        [run.class_name(label) if label >= 0 else "" for label in samples.labels.tolist()],
    )
