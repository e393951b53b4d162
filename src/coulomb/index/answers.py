"""What an index tells about its images: duplicates, outliers, wrong labels, what to label next, clusters, classes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coulomb import curation
from coulomb.curation.choose import Strategy
from coulomb.data.labels import is_unknown
from coulomb.data.source import first_few, natural_key, visible
from coulomb.errors import InputError
from coulomb.index.encoders import same
from coulomb.index.given_labels import read_given_labels

Group = tuple[int, np.ndarray, np.ndarray]  # image to keep, members, their similarities


class Answers:
    """The questions that `coulomb.Index` answers from its features.

    Answers consist of dicts with ``id`` and ``path``, ready for JSON, the most relevant first. All images are compared
    exactly, block by block. Nothing deletes or moves an image.
    """

    if TYPE_CHECKING:  # of Index
        path: Path
        info: dict[str, Any]
        features: np.ndarray
        ids: Any
        labels: Any
        table: Any

        def describe(self, rows: Sequence[int], **columns: Sequence[Any]) -> list[dict[str, Any]]: ...  # noqa: D102

    def duplicates(self, above: float = 0.95, *, against: "Answers | None" = None) -> dict[str, Any]:
        """Finds exact copies and near-duplicates; with ``against``, images that are also in another index.

        Near-duplicates form groups in which every member has a cosine of at least ``above`` with the image to keep
        (`coulomb.curation.duplicate_groups`): the one with the highest resolution, then with the most bytes, then with
        the first id. Exact copies, whose files have equal content, are listed apart, and only the best of them takes part
        in the groups.

        With ``against``, such as a test set, a group is an image of that index (``keep``) with the images of this index
        that are at least that similar to it; each is listed under the most similar one, exact copies as well.

        Args:
            above: the least cosine, in (0, 1].
            against: another index with features of the same encoder.

        Returns:
            ``{"groups": [{"keep", "path", "members": [{"id", "path", "similarity", "label"}]}], "copies": [...]}``:
            largest group first, ``copies`` in the same form. Members do not include the image to keep.

        Raises:
            InputError: ``above`` is out of range, or ``against`` was built with another encoder.
        """
        if against is not None:
            self._require_same_encoder(against)
            column, cosine = curation.nearest_above(self.features, against.features, above)
            rows = np.flatnonzero(column >= 0)
            rows = rows[np.lexsort((rows, -cosine[rows]))]
            leaks = [(int(key), rows[column[rows] == key]) for key in np.unique(column[rows])]
            leaks.sort(key=lambda leak: (-len(leak[1]), -cosine[leak[1][0]], leak[0]))
            groups = [(key, members, cosine[members]) for key, members in leaks]
            return {"groups": self._groups(groups, against), "copies": []}
        order = self._best_first()
        copies, different = self._copies(order)
        near = curation.duplicate_groups(self.features, above, different)
        groups = [(head, members, near.similarity[members]) for head, members in near.lists()]
        return {"groups": self._groups(groups, self), "copies": self._groups(copies, self)}

    def _best_first(self) -> np.ndarray:
        columns = self.table.select(["width", "height", "bytes"]).to_pydict()
        width, height, size = (np.array([value or 0 for value in column], np.int64) for column in columns.values())
        return curation.best_first(width * height, size, self.ids)

    def _copies(self, order: np.ndarray) -> tuple[list[Group], np.ndarray]:
        """Groups of equal files, and ``order`` without all but the best of each."""
        hashes = self.table.column("sha256").to_pylist()
        sets: dict[str, list[int]] = {}
        for row in order.tolist():
            sets.setdefault(hashes[row] or f"row {row}", []).append(row)
        copies = [(rows[0], np.array(rows[1:]), np.ones(len(rows) - 1)) for rows in sets.values() if len(rows) > 1]
        copies.sort(key=lambda group: -len(group[1]))
        return copies, np.array([rows[0] for rows in sets.values()], np.int64)

    def _groups(self, groups: Iterable[Group], kept_in: "Answers") -> list[dict[str, Any]]:
        groups = list(groups)
        keep = kept_in.describe([head for head, _, _ in groups])
        rows = [row for _, members, _ in groups for row in members.tolist()]
        members = iter(self.describe(rows, similarity=[round(float(s), 6) for _, _, part in groups for s in part]))
        return [
            {"keep": kept["id"], "path": kept["path"], "members": [next(members) for _ in rows_]}
            for kept, (_, rows_, _) in zip(keep, groups, strict=True)
        ]

    def _require_same_encoder(self, other: "Answers") -> None:
        if not same(self.info["encoder"], other.info["encoder"]):
            raise InputError(
                f"against={visible(other.path)}: was built with another encoder or preparation of images than "
                f"{visible(self.path)}; build both with the same encoder and image_size"
            )

    def outliers(self, top: int | None = 100, *, neighbours: int | None = None) -> list[dict[str, Any]]:
        """Ranks the images that belong to the others the least (`coulomb.curation.outliers`).

        Args:
            top: how many; None for all.
            neighbours: k of the mean similarity and the local density; default 10.

        Returns:
            ``[{"id", "path", "score", "similarity", "nearest", "reason", "label"}]``: ``score`` in robust standard
            deviations from the median, ``similarity`` the mean cosine with the k nearest, ``nearest`` the id of the most
            similar image.

        Raises:
            InputError: fewer than 3 images, ``neighbours`` out of range.
        """
        found = curation.outliers(self.features, neighbours)
        rows = found.order[:top]
        return self.describe(
            rows.tolist(),
            score=np.round(found.score[rows], 3).tolist(),
            similarity=np.round(found.similarity[rows], 6).tolist(),
            nearest=[self.ids[row] for row in found.neighbour[rows]],
            reason=[found.reason(row) for row in rows],
        )

    def label_errors(self, labels: Any = None, *, top: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
        """Ranks the labels that the features contradict (`coulomb.curation.label_errors`).

        Args:
            labels: other labels than those of the index: a dict id → label, or a CSV or Parquet file with columns id (or
                path) and label.
            top: how many; default: all whose label is not the most probable one.
            seed: of the folds of the linear probe.

        Returns:
            ``[{"id", "path", "suggested", "confidence", "reason", "label"}]``: ``confidence`` is 1 − probability of the
            given ``label``.

        Raises:
            InputError: no labels, fewer than two classes with two images.
        """
        numbers, names = self._classes(labels)
        if not len(names):
            raise InputError(
                f"{visible(self.path)}: has no labels to check; give them with labels= (--labels FILE), or build the index "
                "from folders of classes or a list with labels"
            )
        found = curation.label_errors(self.features, numbers, seed=seed)
        shown = slice(0, top)
        rows = found.rows[shown]
        entries = self.describe(
            rows.tolist(),
            suggested=[names[number] for number in found.suggested[shown]],
            confidence=np.round(found.confidence[shown].astype(float), 4).tolist(),
            reason=[
                f"{agreeing} of the {found.k} nearest labelled images have this label; the linear probe gives it {p:.0%}"
                for agreeing, p in zip(found.agreeing[shown], found.probe[shown], strict=True)
            ],
        )
        return [entry | {"label": names[numbers[row]]} for entry, row in zip(entries, rows, strict=True)]

    def choose(
        self, number: int, *, labels: Any = None, strategy: Strategy = "typical", seed: int = 0
    ) -> list[dict[str, Any]]:
        """Chooses the images to label next (`coulomb.curation.choose`); those with a label are left out.

        Args:
            number: how many.
            labels: labels given so far, in addition to those of the index, as for `label_errors`.
            strategy: ``"typical"``, for up to some hundreds of labels; or ``"diverse"``, which covers all images.
            seed: of the clusters.

        Returns:
            ``[{"id", "path", "label"}]``, the most useful first; ``label`` is None.

        Raises:
            InputError: fewer images without a label than ``number``.
        """
        numbers, _ = self._classes(labels, add=True)
        rows = curation.choose(self.features, number, np.flatnonzero(numbers >= 0), strategy=strategy, seed=seed)
        return self.describe(rows.tolist())

    def cluster(self, number: int | None = None, *, least: int = 10, seed: int = 0) -> list[dict[str, Any]]:
        """Divides the images into clusters: ``number`` by k-means, or by HDBSCAN as many as there are.

        Args:
            number: of clusters; None for HDBSCAN (at most 50,000 images).
            least: smallest cluster of HDBSCAN.
            seed: of k-means.

        Returns:
            ``[{"id", "path", "cluster", "similarity", "label"}]``: largest cluster first, within each the typical images
            first (``similarity`` with its centre); images in no cluster, −1, at the end.

        Raises:
            InputError: ``number`` or ``least`` out of range.
        """
        if number is None:
            found = curation.hdbscan(self.features, least, seed=seed)
        else:
            found = curation.kmeans(self.features, number, seed=seed)
        place = np.where(found.cluster < 0, len(found.centres), found.cluster)
        rows = np.lexsort((-found.similarity, place))
        return self.describe(
            rows.tolist(),
            cluster=found.cluster[rows].tolist(),
            similarity=np.round(found.similarity[rows].astype(float), 6).tolist(),
        )

    def classify(self, labels: Any = None, *, accuracy: float = 0.95, seed: int = 0) -> dict[str, Any]:
        """Classifies the images without a label from those with one (`coulomb.curation.classify`).

        Args:
            labels: a dict id → label, or a CSV or Parquet file with columns id (or path) and label; default: the labels
                of the index.
            accuracy: held-out accuracy wanted of the predictions that are not ``unsure``.
            seed: of the cross-validation.

        Returns:
            ``{"images": [{"id", "path", "label", "probability", "margin", "unsure", "probabilities"}], "threshold",
            "accuracy", "sure_accuracy", "labelled", "classes"}``: all images without a given label, the surest first;
            ``label`` is the predicted class. ``accuracy`` and ``sure_accuracy`` are those of held-out labels, None if there
            are fewer than 20; ``unsure`` means a margin below ``threshold``.

        Raises:
            InputError: no labels, one class only, unknown ids.
        """
        numbers, names = self._classes(labels)
        if len(names) < 2:
            raise InputError(
                f"labels: {len(names)} different classes{f' ({visible(names[0])})' if names else ''}; a classifier needs two "
                "or more; label an image of another class as well"
            )
        found = curation.classify(self.features, numbers, target=accuracy, seed=seed)
        rest = np.flatnonzero(numbers < 0)
        rows = rest[np.argsort(-found.margin[rest], kind="stable")]
        probabilities = np.round(found.probabilities.astype(float), 4)
        predicted, margin, unsure = found.predicted, found.margin, found.unsure
        entries = self.describe(rows.tolist()) if len(rows) else []
        images = [
            {
                "id": entry["id"],
                "path": entry["path"],
                "label": names[predicted[row]],
                "probability": float(probabilities[row].max()),
                "margin": round(float(margin[row]), 4),
                "unsure": bool(unsure[row]),
                "probabilities": dict(zip(names, probabilities[row].tolist(), strict=True)),
            }
            for row, entry in zip(rows.tolist(), entries, strict=True)
        ]
        return {
            "images": images,
            "threshold": found.threshold,
            "accuracy": found.accuracy,
            "sure_accuracy": found.sure_accuracy,
            "labelled": int((numbers >= 0).sum()),
            "classes": names,
        }

    def _classes(self, labels: Any, *, add: bool = False) -> tuple[np.ndarray, list[str]]:
        """Class numbers [N], −1 for none, and class names: of the index, or given by id; with ``add``, both."""
        texts: list[str | None] = list(self.labels) if labels is None or add else [None] * len(self.ids)
        if labels is not None:
            given = labels if isinstance(labels, Mapping) else read_given_labels(Path(labels))
            position = {id_: row for row, id_ in enumerate(self.ids)}
            unknown = [str(id_) for id_ in given if id_ not in position]
            if unknown:
                raise InputError(
                    f"labels: {len(unknown)} of {len(given)} ids are not in {visible(self.path)}: {first_few(unknown)}; use "
                    "the ids of the index (of a folder, paths relative to it)"
                )
            for id_, label in given.items():
                texts[position[id_]] = None if is_unknown(label) else str(label)
        names = sorted({text for text in texts if text is not None}, key=natural_key)
        number = {name: index for index, name in enumerate(names)}
        return np.array([-1 if text is None else number[text] for text in texts], np.int64), names
