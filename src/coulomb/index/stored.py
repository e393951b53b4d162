"""Features, thumbnails and facts that exist already, in the current generation or in unfinished work."""

import shutil
from typing import Any

import numpy as np

from coulomb.index.contents import Contents, checksums
from coulomb.index.folder import Generation, sync
from coulomb.index.work import Part

BLOCK = 2**24  # bytes that are copied at a time


class Old:
    """The images of the current generation, with the interface of `Part`."""

    def __init__(self, contents: Contents) -> None:
        import pyarrow.compute as pc

        self.contents, self.table = contents, contents.table
        with contents.reading():
            hashes = self.table.column("sha256")
            if not pc.all(pc.match_substring_regex(hashes.fill_null(""), "^[0-9a-f]{64}$")).as_py():
                raise ValueError(f"{contents.kind.files[1]}: a row has no SHA-256")
        self.ids: list[str] = self.table.column("id").to_pylist()
        facts, columns = contents.kind.facts, []
        for name in facts._fields:
            column = self.table.column(name)
            columns.append((column.cast("int64") if name == "mtime" else column).to_pylist())
        self.photos = [facts(*values) for values in zip(*columns, strict=True)]
        self.features, self.thumbnail = contents.features, contents.thumbnail


class Stored:
    """All stored images. Rows are numbered consecutively: the current generation, then the parts.

    Args:
        old: the current generation, if there is one.
        parts: parts of the unfinished build.
    """

    def __init__(self, old: Old | None, parts: list[Part]) -> None:
        self.old = old
        self.stores: list[Old | Part] = ([] if old is None else [old]) + list(parts)
        self.old_rows = 0 if old is None else len(old.ids)
        self.starts = np.cumsum([0, *(len(store.ids) for store in self.stores)])
        self._photos = [photo for store in self.stores for photo in store.photos]
        self._row_by_id: dict[str, int] = {}
        for store, start in zip(self.stores, self.starts, strict=False):
            self._row_by_id.update(zip(store.ids, range(int(start), int(start) + len(store.ids)), strict=True))

    def photo(self, row: int) -> Any:
        """Returns the facts of one image or text."""
        return self._photos[row]

    def hashes(self) -> frozenset[bytes]:
        """Returns the SHA-256 of all stored images."""
        return frozenset(bytes.fromhex(photo.sha256) for photo in self._photos)

    def unchanged(self, ids: list[str], stamps: list[tuple[int | None, int]] | None) -> np.ndarray:
        """Returns the row of each image whose file has the stored size and time, −1 for the others."""
        rows = np.full(len(ids), -1, np.int64)
        if stamps is None:
            return rows
        for index, (item_id, (size, mtime)) in enumerate(zip(ids, stamps, strict=True)):
            row = self._row_by_id.get(item_id)
            if row is not None:
                photo = self.photo(row)
                if photo.mtime == mtime and size in (None, photo.bytes):
                    rows[index] = row
        return rows

    def locate(self, rows: np.ndarray, ids: list[str], todo: np.ndarray, known: dict[int, Any]) -> None:
        """Fills in the ``rows`` of the images ``todo`` after they were read; −1 remains where nothing is stored.

        ``known``: images whose content equals a stored one, by its hash; the others were embedded under their id.
        """
        wanted = {photo.sha256 for photo in known.values()}
        row_by_hash = {photo.sha256: row for row, photo in enumerate(self._photos) if photo.sha256 in wanted}
        for index in todo.tolist():
            rows[index] = row_by_hash[known[index].sha256] if index in known else self._row_by_id.get(ids[index], -1)

    def counts(self, ids: list[str], rows: np.ndarray) -> dict[str, int]:
        """Returns how many of the images with these ``ids`` are new, changed and kept, and how many were dropped."""
        old = set(self.stores[0].ids) if self.old_rows else set()
        computed = rows >= self.old_rows
        new = sum(bool(fresh) and item_id not in old for item_id, fresh in zip(ids, computed, strict=True))
        return {
            "new": new,
            "changed": int(computed.sum()) - new,
            "kept": int((~computed).sum()),
            "dropped": len(old.difference(ids)),
        }


def gather(generation: Generation, stored: Stored, rows: np.ndarray, table: Any) -> dict[str, dict[str, Any]]:
    """Writes the files of a generation: the stored images at ``rows``, in this order; returns their checksums.

    Raises:
        InputError: the current generation is damaged, which must not get a valid checksum.
    """
    import pyarrow.parquet as pq

    if stored.old is not None:
        stored.old.contents.verify()
    shutil.rmtree(generation.path, ignore_errors=True)  # of an earlier attempt
    generation.path.mkdir()
    shape = (len(rows), stored.stores[0].features.shape[1])
    kind = stored.stores[0].features.dtype
    features = np.lib.format.open_memmap(generation.features, "w+", kind, shape)
    store_of = np.searchsorted(stored.starts, rows, side="right") - 1
    height = max(1, BLOCK // (shape[1] * kind.itemsize))
    for start in range(0, len(rows), height):
        block = slice(start, min(start + height, len(rows)))
        for number in np.unique(store_of[block]):
            which = np.flatnonzero(store_of[block] == number)
            features[start + which] = stored.stores[number].features[rows[block][which] - stored.starts[number]]
    features.flush()
    if generation.pictures:
        thumbnails, offsets = generation.pictures
        ends = np.zeros(len(rows) + 1, np.int64)
        with thumbnails.open("wb") as file:
            for place, (number, row) in enumerate(zip(store_of.tolist(), rows.tolist(), strict=True)):
                ends[place + 1] = ends[place] + file.write(
                    stored.stores[number].thumbnail(row - int(stored.starts[number]))
                )
        np.save(offsets, ends)
    pq.write_table(table, generation.table, compression="zstd")
    for path in generation.path.iterdir():
        sync(path)
    return checksums(generation)
