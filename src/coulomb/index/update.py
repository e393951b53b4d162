"""What an update has to do, and the new generation when it is done."""

import shutil
from typing import Any

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_text
from coulomb.ground.reading import read_bytes
from coulomb.ground.text import portable, visible
from coulomb.ground.version import __version__
from coulomb.index.contents import open_contents
from coulomb.index.encoders import IDENTITY
from coulomb.index.folder import FORMAT, IndexFolder
from coulomb.index.kinds import TEXTS, kind_of
from coulomb.index.stored import Old, Stored, gather
from coulomb.index.texts import TextSource, cut_note
from coulomb.index.work import Outcome, next_attempt, read_parts, settings_text
from coulomb.tables import Source

FAILED = 100  # unreadable images that index.json names


class Update:
    """The work of the first process: what is to be done, and a new generation when it is done.

    Args:
        folder: folder of the index.
        source: the images or texts.
        ids: their ids.
        before: the content of ``index.json``; None for a new index.
        chosen: the entries of ``index.json`` that all generations share.
    """

    def __init__(
        self,
        folder: IndexFolder,
        source: Source | TextSource,
        ids: list[str],
        before: dict[str, Any] | None,
        chosen: dict[str, Any],
    ) -> None:
        self.folder, self.source, self.ids, self.before, self.chosen = folder, source, ids, before, chosen
        self.kind = kind_of(chosen)
        self.stamps = source.stamps()
        self._old = None if before is None else Old(open_contents(folder)[1])

    def plan(self) -> tuple[np.ndarray, frozenset[bytes], int]:
        """Returns the stored row of each unchanged image, −1 for the others; stored hashes; and the number of this attempt."""
        begin_work(self.folder, self.chosen)
        stored = self._stored()
        require_common(self.folder, self.before, self.source, stored, self.ids)
        return stored.unchanged(self.ids, self.stamps), stored.hashes(), next_attempt(self.folder.unfinished)

    def _stored(self) -> Stored:
        parts = read_parts(self.folder.unfinished, self.chosen["features"], self.chosen["precision"], self.kind)
        return Stored(self._old, parts)

    def finish(self, rows: np.ndarray, outcome: Outcome) -> None:
        """Writes the next generation from what is stored, and publishes it."""
        stored = self._stored()
        todo = np.flatnonzero(rows < 0)
        stored.locate(rows, self.ids, np.setdiff1d(todo, list(outcome.failed)), outcome.known)
        members = np.flatnonzero(rows >= 0)
        failed = sorted(outcome.failed.items())
        if not len(members):
            index, reason = failed[0]
            raise InputError(
                f"data={visible(self.source.name)!r}: none of the {len(self.source)} {self.kind.plural} can be read "
                f"({visible(self.ids[index])}: {reason})"
            )
        photos = [
            stored.photo(row)
            if index not in outcome.known or "mtime" not in self.kind.facts._fields
            else stored.photo(row)._replace(mtime=outcome.known[index].mtime)
            for index, row in zip(members.tolist(), rows[members].tolist(), strict=True)
        ]
        table = self.kind.table(self.source, members.tolist(), photos)
        counts = stored.counts([self.ids[index] for index in members], rows[members])
        files = "path" in table.column_names and table.column("path").null_count < table.num_rows
        info: dict[str, Any] = {
            "format": FORMAT,
            "coulomb": __version__,
            "generation": 1 if self.before is None else self.before["generation"] + 1,
            self.kind.plural: len(members),
            **self.chosen,
            "torch": torch.__version__,
            "data": {
                "name": self.source.name,
                "kind": self.source.kind,
                "root": portable(str(self.source.root)) if files and self.source.root is not None else None,
                "notes": list(self.source.notes),
            },
            "last_update": counts,
            "failed": {
                "count": len(failed),
                "first": [{"id": self.ids[index], "reason": reason} for index, reason in failed[:FAILED]],
            },
        }
        if self.kind is TEXTS:
            info["cut"] = sum(facts.cut for facts in photos)
            info["data"]["notes"] += cut_note(info["cut"], len(members), self.chosen["encoder"]["longest"])
        if self.before is not None and stored.old is not None and table.equals(stored.old.table):
            info |= {name: self.before[name] for name in ("generation", "files")}  # only index.json changes
        else:
            info["files"] = gather(self.folder.generation(info["generation"], self.kind), stored, rows[members], table)
        self.folder.publish(info)


def begin_work(folder: IndexFolder, chosen: dict[str, Any]) -> None:
    """Prepares the folder of unfinished work; raises `InputError` if an unfinished build had other settings."""
    settings = folder.unfinished / "settings.json"
    text = settings_text({**chosen, "encoder": {k: v for k, v in chosen["encoder"].items() if k in IDENTITY}})
    if settings.exists():
        if read_bytes(settings, most=2**20).decode(errors="replace") != text:
            raise InputError(
                f"out={visible(folder.path)!r}: holds an unfinished index of another encoder or precision; finish it by the "
                "command that began it, or choose another folder"
            )
        return
    shutil.rmtree(folder.unfinished, ignore_errors=True)
    folder.unfinished.mkdir()
    write_text(settings, text)


def require_common(
    folder: IndexFolder, before: dict[str, Any] | None, source: Source | TextSource, stored: Stored, ids: list[str]
) -> None:
    """Raises `InputError` if an index would lose all its images or texts because other data were given by mistake."""
    if before is None or stored.old is None or before["data"]["name"] == source.name:
        return
    old: list[str] = stored.old.ids
    if isinstance(source, TextSource):  # rows of any two tables have the same numbers
        ids, old = source.digests(range(len(source))), [facts.sha256 for facts in stored.old.photos]
    if set(ids).isdisjoint(old):
        raise InputError(
            f"out={visible(folder.path)!r}: is the index of {visible(before['data']['name'])!r}, and none of its "
            f"{len(stored.old.ids)} {kind_of(before).plural} is in {visible(source.name)!r}; choose another "
            "folder for the new index"
        )
