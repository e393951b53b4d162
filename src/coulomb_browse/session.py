"""One index on the page: what it answers, and the user's decisions about it."""

import hashlib
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.index.encoders import bands_of
from coulomb.kinds.image.bands import Bands
from coulomb_browse.groups import Grouping, index_groupings
from coulomb_browse.jobs import Jobs, Say
from coulomb_browse.maps import image_maps, index_fingerprint
from coulomb_browse.pictures import Uploads
from coulomb_browse.work import KINDS, Work

if TYPE_CHECKING:
    from coulomb.index import Index

MOST_FOUND = 1000  # images of one search
MOST_ROWS = 500  # described at once
MOST_WORDS = 1000  # characters of a query
PATIENCE = 120.0  # seconds for an answer by words; the encoder of words is opened for the first one
SHOWN = {  # columns of the table
    "image": ["id", "label", "width", "height", "bytes", "sha256"],
    "text": ["id", "label", "text", "characters", "cut", "bytes", "sha256"],
}


class Session:
    """The index, the user's decisions, and answers that take a while.

    Args:
        index: that is open.
        folder: for the decisions (``work.jsonl``) and the map; default: ``browse`` in the index, or in the user's cache
            folder if the index cannot be written to.

    Raises:
        InputError: another process has the decisions open.
    """

    def __init__(self, index: "Index", folder: Path | None = None) -> None:
        self.index = index
        index.paths  # noqa: B018 — raises here if the folder of the images has moved
        self.folder = work_folder(Path(index.path)) if folder is None else folder
        self.work = Work(self.folder / "work.jsonl")
        self.stamp = index_fingerprint(index)[:12]  # in the addresses of thumbnails, so that browsers can keep them
        self.uploads = Uploads()
        self.groupings: dict[str, Grouping] = index_groupings(index)
        self.predictions: list[list[Any]] = []  # position, label, probability, unsure: of the last classifier
        self._searching = threading.Lock()
        self.jobs = Jobs(
            {
                "map": self._map,
                "duplicates": self._duplicates,
                "outliers": self._outliers,
                "label_errors": self._label_errors,
                "choose": self._choose,
                "cluster": self._cluster,
                "classify": self._classify,
            }
        )
        # In a thread of their own: words do not wait for a map that is being computed.
        self.queries = Jobs({"open": self._open, "words": self._words, "names": self._names}, limit=PATIENCE)

    @property
    def _count(self) -> str:
        return f"{len(self.index)} {self.index.kind}s"

    @property
    def bands(self) -> Bands | None:
        """The bands that the encoder takes; None for photos and texts."""
        return bands_of(self.index.info["encoder"])

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each id."""
        return {name: position for position, name in enumerate(self.index.ids)}

    @cached_property
    def _searchable(self) -> list[str]:
        labels = self.index.labels
        texts = self.index.table.column("text").to_pylist() if self.index.kind == "text" else [""] * len(labels)
        return [f"{name}\n{labels[at] or ''}\n{texts[at]}".casefold() for at, name in enumerate(self.index.ids)]

    @cached_property
    def no_words(self) -> str:
        """Why the index cannot be searched by words, and what to do; empty if it can."""
        if self.index.kind == "text":
            return ""
        try:
            self.index.pair_encoder  # noqa: B018 — its description is read, not its weights
        except InputError as error:
            return str(error)
        return ""

    def start(self) -> dict[str, Any]:
        """Returns what the page shows first."""
        info = self.index.info
        bands = self.bands
        return {
            "name": Path(self.index.path).name,
            "kind": self.index.kind,
            "images": len(self.index),
            "words": {"able": not self.no_words, "why": self.no_words, "most": MOST_WORDS},
            "encoder": info["encoder"]["name"] if bands is None else f"{info['encoder']['name']} · {bands.shown}",
            "features": info["features"],
            "stamp": self.stamp,
            "groupings": {name: grouping.describe() for name, grouping in self.groupings.items()},
            "work": self.decisions(),
            "saved_in": str(self.work.path),
            "damaged": self.work.damaged,
            "locked": self.work.locked,
        }

    def decisions(self) -> dict[str, Any]:
        """Returns the decisions by kind and position, how many are about images that the index no longer has, and undoable."""
        known: dict[str, dict[int, str]] = {}
        lost = 0
        for kind in KINDS:
            decided = dict(self.work[kind])  # a copy: another thread may decide
            known[kind] = {self.places[name]: value for name, value in decided.items() if name in self.places}
            lost += len(decided) - len(known[kind])
        return {"decided": known, "lost": lost, "undoable": self.work.undoable}

    def decide(self, kind: str, values: dict[str, Any]) -> None:
        """Saves decisions, {position: value or None}."""
        named = {self.index.ids[self.position(position)]: value for position, value in values.items()}
        self.work.decide(kind, named, self.places.__contains__)

    def undo(self) -> dict[str, Any]:
        """Undoes the last decision; returns its kind and what holds again, ``{"kind": None}`` if there is none."""
        undone = self.work.undo()
        if undone is None:
            return {"kind": None, "undoable": 0}
        kind, values = undone
        again = {self.places[name]: value for name, value in values.items() if name in self.places}
        return {"kind": kind, "set": again, "undoable": self.work.undoable}

    def position(self, value: Any) -> int:
        """Returns a position that the page sent; raises `InputError` if it is none."""
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
            value = int(value)
        if type(value) is not int or not 0 <= value < len(self.index):
            raise InputError(f"position={str(value)[:20]!r}: is not in the index; reload the page")
        return value

    def rows(self, positions: list[Any]) -> list[dict[str, Any]]:
        """Returns what is shown of images."""
        if len(positions) > MOST_ROWS:
            raise InputError(f"positions: {len(positions)} are more than {MOST_ROWS}; ask for fewer at once")
        chosen = [self.position(position) for position in positions]
        shown = SHOWN[self.index.kind]
        columns = self.index.table.select(shown).take(chosen).to_pydict()
        return [
            {"position": at, **{name: columns[name][row] for name in shown}, "path": self.index.paths[at]}
            for row, at in enumerate(chosen)
        ]

    def find(self, text: str) -> np.ndarray:
        """Returns the positions of images whose id or label contains all words of ``text``, in order; of texts, or whose
        first 200 characters do.
        """
        words = text.casefold().split()
        return np.array([at for at, line in enumerate(self._searchable) if all(w in line for w in words)], dtype="<i4")

    def job(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Starts a job unless it has been started, and returns its status; see `Jobs`."""
        return (self.queries if name in ("open", "words", "names") else self.jobs).status(name, options)

    def search(
        self, plus: list[Any], minus: list[Any], top: Any, words: str | None = None, without_words: str | None = None
    ) -> dict[str, Any]:
        """Returns the images most similar to the mean of ``plus`` and ``words``, minus the mean of ``minus`` and
        ``without_words``; each item of the lists is ``{"position": 7}`` or ``{"upload": key}``.
        """
        if type(top) is not int or not 1 <= top <= MOST_FOUND:
            raise InputError(f"top={str(top)[:20]}: must be from 1 to {MOST_FOUND}")
        (ids, images), (without_ids, without) = self._query(plus), self._query(minus)
        with self._searching:
            found = self.index.search(
                images=images or None,
                ids=ids or None,
                without=without or None,
                without_ids=without_ids or None,
                text=words,
                without_text=without_words,
                top=min(top, len(self.index)),
            )
        return {
            "positions": [self.places[one["id"]] for one in found],
            "similarities": [round(float(one["similarity"]), 4) for one in found],
        }

    def _query(self, items: list[Any]) -> tuple[list[str], list[Any]]:
        ids: list[str] = []
        images: list[Any] = []
        if not isinstance(items, list) or len(items) > 1000 or not all(isinstance(item, dict) for item in items):
            raise InputError("plus, minus: must be lists of at most 1000 images")
        for item in items:
            if "upload" in item:
                images.append(self.uploads[str(item["upload"])])
            else:
                ids.append(self.index.ids[self.position(item.get("position"))])
        return ids, images

    def _words(self, options: dict[str, Any], say: Say) -> Any:
        plus, minus, top = options.get("plus", []), options.get("minus", []), options.get("top", 200)
        words, without = check_words("words", options.get("words")), check_words("not", options.get("not"))
        if words is None and not plus:
            raise InputError("words: say what to search for; what the result should not be like is subtracted from it")
        self._open_words(say)
        say(None, "searches")
        return self.search(plus, minus, top, words, without)

    def _names(self, options: dict[str, Any], say: Say) -> Any:
        names = check_words("names", options.get("names"))
        if names is None:
            raise InputError("names: give the names of two or more classes, such as: cat, dog, neither=an empty room")
        self._open_words(say)
        say(None, f"compares {self._count} with the names")
        return self._predicted(self.index.classify(names=names), {})

    def _open(self, options: dict[str, Any], say: Say) -> Any:
        self._open_words(say)
        return "open"

    def _open_words(self, say: Say) -> None:
        """Opens the encoder of words, without the lock: searches by pictures do not wait for it."""
        say(None, "opens the encoder of words")
        self.index.text_encoder.encoder  # noqa: B018

    def _map(self, options: dict[str, Any], say: Say) -> Any:
        return image_maps(self.index, self.folder / "maps.npz", say)

    def _duplicates(self, options: dict[str, Any], say: Say) -> Any:
        above = options.get("above", 0.95)
        if isinstance(above, bool) or not isinstance(above, int | float) or not 0 < above <= 1:
            raise InputError(f"above={str(above)[:20]}: must be above 0 and at most 1")
        say(None, f"compares all pairs of {self._count}")
        return {"groups": duplicate_groups(self.index.duplicates(above=above), self.places)}

    def _outliers(self, options: dict[str, Any], say: Say) -> Any:
        say(None, f"compares {self._count} with their neighbors")
        found = self.index.outliers(MOST_FOUND, looks=False)  # the page shows them
        return [{"position": self.places[one["id"]], "reason": one.get("reason")} for one in found]

    def _label_errors(self, options: dict[str, Any], say: Say) -> Any:
        say(None, f"compares each label with the labels of similar {self.index.kind}s")
        return [
            {
                "position": self.places[one["id"]],
                "label": one["label"],
                "suggested": one["suggested"],
                "confidence": _rounded(one["confidence"]),
                "reason": one["reason"],
            }
            for one in self.index.label_errors()
        ]

    def _choose(self, options: dict[str, Any], say: Say) -> Any:
        number = _whole("number", options.get("number"), 1, 10_000)
        say(None, f"chooses {number} of {self._count}")
        unlabeled = sum(label is None for label in self.index.labels)
        if not unlabeled:  # the user wants labels other than the index's
            from coulomb.index.choose import choose_rows

            return choose_rows(self.index.features, min(number, len(self.index))).tolist()
        return [self.places[one["id"]] for one in self.index.choose(min(number, unlabeled))]

    def _cluster(self, options: dict[str, Any], say: Say) -> Any:
        number = _whole("number", options.get("number"), 2, 1000)
        say(None, f"divides {self._count} into {number} clusters")
        values: list[str | None] = [None] * len(self.index)
        for one in self.index.cluster(number):
            values[self.places[one["id"]]] = str(one["cluster"])
        self.groupings["cluster"] = Grouping(values)
        return self.groupings["cluster"].describe()

    def _classify(self, options: dict[str, Any], say: Say) -> Any:
        labels = {name: label for name, label in dict(self.work["label"]).items() if name in self.places}
        given = self.index.labels
        if any(label is None for label in given):  # the user completes the labels of the index
            of_index = {name: label for name, label in zip(self.index.ids, given, strict=True) if label is not None}
            labels = of_index | labels
        say(None, f"fits a classifier to {len(labels)} labels and applies it to {self._count}")
        return self._predicted(self.index.classify(labels), labels)

    def _predicted(self, answer: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
        """Returns an answer of `Index.classify` for the page, and keeps it as a grouping and a list."""
        predicted = answer["images"]
        places = [self.places[one["id"]] for one in predicted]
        values: list[str | None] = [labels.get(name) for name in self.index.ids]
        for at, one in zip(places, predicted, strict=True):
            values[at] = one["label"]
        self.groupings["prediction"] = Grouping(values)
        self.predictions = [
            [at, one["label"], _rounded(one["probability"]), str(one["unsure"]).lower()]
            for at, one in zip(places, predicted, strict=True)
        ]
        return {
            "positions": places,
            "probabilities": [_rounded(one["probability"]) for one in predicted],
            "unsure": [int(one["unsure"]) for one in predicted],
            "labeled": answer["labeled"],
            "accuracy": _rounded(answer["accuracy"]),
            "grouping": self.groupings["prediction"].describe(),
        }


def check_words(name: str, value: Any) -> str | None:
    """Returns the words of a query, None for none.

    Raises:
        InputError: they are no text, or too long; ``name`` is in the message.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str) or len(value) > MOST_WORDS:
        raise InputError(f"{name}: must be a text of at most {MOST_WORDS} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name}: has half of a character (a lone surrogate); type it again") from None
    return value.strip()


def duplicate_groups(answer: dict[str, Any], places: dict[str, int]) -> list[dict[str, Any]]:
    """Returns the groups of `Index.duplicates` for the page.

    ``{"keep": position, "reason", "members": [[position, similarity, 1 if it is kept too, reason]]}``. Exact copies, of which
    only the first is in the groups of near-duplicates, are added to the group with that image; groups of exact copies alone
    come first.
    """
    copies = {places[group["keep"]]: (group["reason"], _members(group, places)) for group in answer.get("copies", [])}
    near = []
    for group in answer["groups"]:
        keep = places[group["keep"]]
        members = copies.pop(keep, ("", []))[1]
        for one in _members(group, places):
            rest = copies.pop(one[0], ("", []))[1]
            members += [one, *([copy, one[1], 0, why] for copy, _, _, why in rest)]
        near.append({"keep": keep, "reason": group["reason"], "members": members})
    return [{"keep": keep, "reason": why, "members": members} for keep, (why, members) in copies.items()] + near


def _members(group: dict[str, Any], places: dict[str, int]) -> list[list[Any]]:
    return [
        [places[one["id"]], _rounded(one["similarity"]), int(one["keep"]), one["reason"]] for one in group["members"]
    ]


def _rounded(value: Any) -> float | None:
    """Returns a number for JSON, which has no NaN; None for None."""
    return round(float(value), 4) if value is not None and np.isfinite(value) else None


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{name}={str(value)[:20]}: must be from {least} to {most}")
    return value


def work_folder(index: Path) -> Path:
    """Returns the folder for decisions and map: ``browse`` in the index; in the user's cache if that cannot be written."""
    inside = index / "browse"
    try:
        inside.mkdir(exist_ok=True)
        if os.access(inside, os.W_OK):
            return inside
    except OSError:
        pass
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    outside = cache / "coulomb" / "browse" / hashlib.sha256(str(index.resolve()).encode()).hexdigest()[:16]
    try:
        outside.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"{outside}: cannot be created ({error.strerror}); decisions need a folder") from None
    return outside
