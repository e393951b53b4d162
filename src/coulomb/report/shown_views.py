"""What the views of one column do to some of its training cells: tokens that are left out, values that are replaced."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import NARROW, significant

MOST = 24  # samples
MOST_VALUES = 100  # of a vector

Piece = tuple[str, bool]  # of a text, and whether its tokens stay


@dataclass(frozen=True)
class ShownViews:
    """What the page shows of the views of a column of texts or vectors.

    Attributes:
        sentence: what distinguishes the views, and how similar they are before training.
        texts: (row, cosine, views); a view is its pieces. Empty for dropout, whose views have the same tokens.
        names: of the values of a vector that are shown.
        vectors: (row, cosine, values, the view as (value, whether it is replaced)).
    """

    sentence: str
    texts: list[tuple[int, str, list[list[Piece]]]]
    names: list[str]
    vectors: list[tuple[int, str, list[str], list[Piece]]]


def read_shown_views(run: RunData) -> ShownViews | None:
    """Returns the content of ``views.json``; None without it. ``run.problems`` receives a sentence if it is damaged."""
    if not run.shown_views:
        return None
    try:
        return _checked(run.shown_views)
    except (InputError, KeyError, ValueError, TypeError, AttributeError):
        run.problems.append("views.json has an unexpected structure.")
        return None


def _checked(stored: Mapping[str, Any]) -> ShownViews:
    samples, rows = stored["samples"][:MOST], [int(row) for row in stored["rows"][:MOST]]
    cosines = [float(sample["cosine"]) for sample in samples]
    mean = f"Before training, the features of both have a cosine of {statistics.mean(cosines):.2f} on average."
    shown = [f"{cosine:.2f}" for cosine in cosines]
    texts: list[tuple[int, str, list[list[Piece]]]] = []
    vectors: list[tuple[int, str, list[str], list[Piece]]] = []
    names: list[str] = []
    if stored["way"] == "left_out":
        sentence = f"Each text is seen twice, each time without {_whole(stored['share'])} of its tokens at random."
        for row, cosine, sample in zip(rows, shown, samples, strict=True):
            views = [[_piece(piece) for piece in view] for view in sample["views"]]
            texts.append((row, cosine, views))
        sentence += " Tokens that are left out are crossed out."
    elif stored["way"] == "dropout":
        rates = " and ".join(_whole(rate) for rate in stored["rates"])
        sentence = (
            f"Each text is seen twice with the same tokens; dropout of {rates} in the encoder makes the difference."
        )
    elif stored["way"] == "replaced":
        names = [str(name) for name in stored["names"][:MOST_VALUES]]
        of, count = int(stored["of"]), int(stored["count"])
        sentence = (
            f"Each vector is seen as it is, and once more with {count} of its {of} values replaced by those of random other "
            "rows, which are marked."
        )
        if of > len(names):
            sentence += f" The first {len(names)} values are shown."
        for row, cosine, sample in zip(rows, shown, samples, strict=True):
            values = [significant(float(value)) for value in sample["values"]]
            view = [significant(float(value)) for value in sample["view"]]
            marked = [bool(each) for each in sample["replaced"]]
            if not len(values) == len(view) == len(marked) == len(names):
                raise InputError("views.json: vectors of several lengths")
            vectors.append((row, cosine, values, list(zip(view, marked, strict=True))))
    else:
        raise InputError("views.json: unknown way")
    return ShownViews(f"{sentence} {mean}", texts, names, vectors)


def _whole(share: Any) -> str:
    return f"{float(share) * 100:.0f}{NARROW}%"


def _piece(stored: Any) -> Piece:
    text, kept = stored
    return str(text), bool(kept)
