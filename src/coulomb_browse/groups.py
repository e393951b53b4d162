"""Groups that images can be filtered and colored by: label, split, folder, cluster, predicted label."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coulomb.ground.text import natural_key

if TYPE_CHECKING:
    from coulomb.index import Index

PARTS = {"train", "training", "val", "valid", "validation", "test", "testing", "dev"}
MOST_FOLDERS = 500


class Grouping:
    """Groups of images.

    Args:
        values: the group of each image, None if it has none.

    Attributes:
        names: names of the groups in natural order.
        codes: int32 [N], an index into ``names``, −1 for no group.
    """

    def __init__(self, values: Sequence[str | None]) -> None:
        self.names = sorted({value for value in values if value is not None}, key=natural_key)
        numbers = {name: number for number, name in enumerate(self.names)}
        self.codes = np.array([-1 if value is None else numbers[value] for value in values], dtype="<i4")

    def describe(self) -> dict[str, Any]:
        """Returns names and counts for the page."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return {"names": self.names, "counts": counts.tolist(), "none": int((self.codes < 0).sum())}


def index_groupings(index: "Index") -> dict[str, Grouping]:
    """Returns the groupings that an index has: ``label``, ``split`` and ``folder``, as far as they tell images apart.

    ``split`` is the column of that name, or the first folder if all are called train, test, …; ``folder`` the first folder
    unless it is the split or the label.
    """
    found = {}
    if any(label is not None for label in index.labels):
        found["label"] = Grouping(index.labels)
    if "split" in index.table.column_names:
        found["split"] = Grouping([None if v is None else str(v) for v in index.table.column("split").to_pylist()])
    top = [name.partition("/")[0] if "/" in name else None for name in index.ids]
    names = {name for name in top if name is not None}
    if 1 < len(names) <= MOST_FOLDERS:
        key = "split" if all(name.lower() in PARTS for name in names) else "folder"
        grouping = Grouping(top)
        if key not in found and not ("label" in found and np.array_equal(found["label"].codes, grouping.codes)):
            found[key] = grouping
    return found
