"""What an index tells about its images or texts: duplicates, outliers, wrong labels, what to label next, clusters, classes."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, natural_key, visible
from coulomb.index.choose import Strategy, choose_rows
from coulomb.index.cluster import hdbscan, kmeans
from coulomb.index.crops import Crops
from coulomb.index.duplicate_groups import duplicate_groups, keep_best
from coulomb.index.encoders import same
from coulomb.index.few_labels import Predictions, classify_rows
from coulomb.index.given_labels import read_given_labels
from coulomb.index.keeping import BY_NAME, compare, file_facts, name_key, ranked
from coulomb.index.kinds import KINDS, TEXTS, require_images
from coulomb.index.label_errors import find_label_errors
from coulomb.index.lists import Answer, Rows
from coulomb.index.named_classes import Names, check_prompts, classify_by_words, read_names, texts_of
from coulomb.index.outliers import find_outliers
from coulomb.kinds.image.decode import decode, read_header
from coulomb.kinds.image.picture import CorruptImage, Header
from coulomb.metrics.pairs import nearest_above
from coulomb.metrics.zero_shot import class_embeddings
from coulomb.models.pair_encoder import PairEncoder
from coulomb.tables.labels import is_unknown
from coulomb.tables.looks import unusual

LONGER, FIRST = "longer text", "first of the data"


class Member(NamedTuple):
    """A member of a group besides the first one to keep."""

    row: int
    like: int  # row of the kept image that it resembles
    similarity: float
    reason: str
    kept: bool


class Kept(NamedTuple):
    """A group: the image to keep, why, and the other members."""

    row: int
    reason: str
    members: list[Member]


class Answers:
    """The questions that `coulomb.Index` answers from its features.

    Answers consist of dicts with ``id`` and ``path``, ready for JSON, the most relevant first. All images are compared
    exactly, block by block. Nothing deletes or moves an image. What is said of images holds for the texts of an index of
    texts, whose answers have ``text``, at most 200 characters, in place of ``path``.
    """

    if TYPE_CHECKING:  # of Index
        path: Path
        kind: str
        info: dict[str, Any]
        features: Any
        ids: Any
        labels: Any
        table: Any

        def describe(self, rows: Sequence[int], **columns: Sequence[Any]) -> Rows: ...  # noqa: D102
        def thumbnail(self, row: int) -> bytes: ...  # noqa: D102
        def encode_text(self, texts: Sequence[str] | str) -> Tensor: ...  # noqa: D102
        @property
        def pair_encoder(self) -> PairEncoder: ...  # noqa: D102
        def _absolute(self, paths: Sequence[str | None]) -> list[str | None]: ...

    def duplicates(self, above: float = 0.95, *, against: "Answers | None" = None, crops: bool = True) -> Answer:
        """Finds exact copies and near-duplicates; with ``against``, images that are also in another index.

        Images are alike if their cosine is at least ``above``. With ``crops``, the 3 most similar images of each image are
        compared by the pixels of their thumbnails as well (`coulomb.index.crops`): crops by up to 10% on each side, copies
        of lower resolution and brightened copies are then alike whatever their cosine. Near-duplicates form groups, the
        strongest pairs first (`coulomb.index.duplicate_groups`): every image that is like another one is in a group.

        The best file of a group is kept (`coulomb.index.keeping`): by resolution, then format, EXIF date, quality and
        name, originals before files that were made from them. Every other member is like an image that is kept; a member
        that is not is kept as well. Exact copies, whose files have equal content, are listed apart, and only the first
        by name takes part in the groups.

        Texts are alike by their cosine alone. Of a group the longest text is kept, then the first; exact copies are equal
        after Unicode normalization (NFC) and without white space at both ends.

        With ``against``, such as a test set, a group is an image of that index (``keep``) with the images of this index
        that are at least that similar to it, by their cosine; each is listed under the most similar one, exact copies as
        well.

        Args:
            above: the least cosine, in (0, 1].
            against: another index with features of the same encoder.
            crops: of images, whether the second look at the most similar ones is taken; 2 ms for each pair that is compared.

        Returns:
            ``{"groups": [{"keep", "path", "reason", "members": [{"id", "path", "similarity", "keep", "like", "reason",
            "label"}]}], "copies": [...]}``: largest group first, ``copies`` in the same form. Members do not include the image
            to keep. ``similarity`` is the cosine with the image ``like``, which is kept; ``reason`` says why that image is
            better, or why the member is kept too.

        Raises:
            InputError: ``above`` is out of range, or ``against`` was built with another encoder.
        """
        if against is not None:
            self._require_same_encoder(against)
            column, cosine = nearest_above(self.features, against.features, above)
            rows = np.flatnonzero(column >= 0)
            rows = rows[np.lexsort((rows, -cosine[rows]))]
            leaks = [(int(key), rows[column[rows] == key]) for key in np.unique(column[rows])]
            leaks.sort(key=lambda leak: (-len(leak[1]), -cosine[leak[1][0]], leak[0]))
            shared = "in the other index"
            found = [
                Kept(key, shared, [Member(int(row), key, float(cosine[row]), "", False) for row in members])
                for key, members in leaks
            ]
            return self._groups(found, [], against)
        copies, different = self._copies()
        if self.kind == TEXTS.name:
            near = duplicate_groups(self.features, above, different)
            return self._groups([self._keep_text(rows, above) for rows in near], copies, self)
        columns = self.table.select(["width", "height"]).to_pydict()
        sizes = np.array([[value or 0 for value in column] for column in columns.values()], np.int64).T
        look = Crops(sizes, self.thumbnail)
        also = look.pairs(self.features, different, above) if crops else frozenset()
        near = duplicate_groups(self.features, above, different, also)
        return self._groups([self._keep(rows, above, also, look) for rows in near], copies, self)

    def _keep(self, rows: np.ndarray, above: float, also: frozenset[tuple[int, int]], look: Crops) -> "Kept":
        """Chooses the images of a group to keep, and says why."""
        part = self.table.select(["id", "path", "width", "height"]).take(rows.tolist()).to_pydict()
        files = [None if path is None else Path(path) for path in self._absolute(part["path"])]
        sizes = zip(part["width"], part["height"], strict=True)
        facts = [
            file_facts(id_, (width or 0) * (height or 0), file)
            for id_, (width, height), file in zip(part["id"], sizes, files, strict=True)
        ]
        places, why = ranked(facts, files, lambda i, j: look.is_part(int(rows[i]), int(rows[j])))
        best = rows[places]
        like, similarity = keep_best(self.features, best, above, also)
        place_of = dict(zip(best.tolist(), places, strict=True))
        members = []
        for row, other, cosine in zip(best.tolist()[1:], like.tolist()[1:], similarity.tolist()[1:], strict=True):
            kept = row == other
            reason = "not like a kept image" if kept else compare(facts[place_of[other]], facts[place_of[row]])
            if not kept and cosine < above:
                reason = f"{reason} (crop or edited copy)"
            members.append(Member(row, int(best[0]) if kept else other, cosine, reason, kept))
        members.sort(key=lambda member: -member.similarity)
        return Kept(int(best[0]), why, members)

    def _keep_text(self, rows: np.ndarray, above: float) -> "Kept":
        """Chooses the texts of a group to keep, the longest first, and says why."""
        lengths = self.table.column("characters").take(rows.tolist()).to_numpy()
        order = np.lexsort((rows, -lengths))
        best, lengths = rows[order], lengths[order]
        like, similarity = keep_best(self.features, best, above)
        length = dict(zip(best.tolist(), lengths.tolist(), strict=True))
        members = []
        for row, other, cosine in zip(best.tolist()[1:], like.tolist()[1:], similarity.tolist()[1:], strict=True):
            if row == other:
                members.append(Member(row, int(best[0]), cosine, "not like a kept text", True))
            else:
                members.append(Member(row, other, cosine, LONGER if length[other] > length[row] else FIRST, False))
        members.sort(key=lambda member: -member.similarity)
        return Kept(int(best[0]), LONGER if lengths[0] > lengths[1] else FIRST, members)

    def _copies(self) -> tuple[list["Kept"], np.ndarray]:
        """Groups of equal files or texts, and the rows without all but the first of each."""
        hashes = self.table.column("sha256").to_pylist()
        sets: dict[str, list[int]] = {}
        texts = self.kind == TEXTS.name  # in the order of their rows
        for row in range(len(hashes)) if texts else sorted(range(len(hashes)), key=lambda row: name_key(self.ids[row])):
            sets.setdefault(hashes[row] or f"row {row}", []).append(row)
        why, same_as = (FIRST, "the same text") if texts else (BY_NAME, "the same file")
        copies = [
            Kept(rows[0], why, [Member(row, rows[0], 1.0, same_as, False) for row in rows[1:]])
            for rows in sets.values()
            if len(rows) > 1
        ]
        copies.sort(key=lambda group: -len(group.members))
        return copies, np.array([rows[0] for rows in sets.values()], np.int64)

    def _groups(self, groups: list["Kept"], copies: list["Kept"], kept_in: "Answers") -> Answer:
        return Answer(groups=self._described(groups, kept_in), copies=self._described(copies, kept_in))

    def _described(self, groups: list["Kept"], kept_in: "Answers") -> list[dict[str, Any]]:
        keep = kept_in.describe([group.row for group in groups])
        shown = KINDS[self.kind].shown
        all_members = [member for group in groups for member in group.members]
        members = iter(
            self.describe(
                [member.row for member in all_members],
                similarity=[round(member.similarity, 6) for member in all_members],
                keep=[member.kept for member in all_members],
                like=[kept_in.ids[member.like] for member in all_members],
                reason=[member.reason for member in all_members],
            )
        )
        return [
            {
                "keep": kept["id"],
                shown: kept[shown],
                "reason": group.reason,
                "members": [next(members) for _ in group.members],
            }
            for kept, group in zip(keep, groups, strict=True)
        ]

    def _require_same_encoder(self, other: "Answers") -> None:
        if self.kind != other.kind:
            raise InputError(
                f"against={visible(other.path)}: is an index of {other.kind}s, and {visible(self.path)} is one of "
                f"{self.kind}s; give two of one kind"
            )
        if not same(self.info["encoder"], other.info["encoder"]):
            raise InputError(
                f"against={visible(other.path)}: was built with another encoder or preparation of {self.kind}s than "
                f"{visible(self.path)}; build both with the same encoder and image_size"
            )

    def outliers(self, top: int | None = 100, *, neighbors: int | None = None, looks: bool = True) -> Rows:
        """Ranks the images that belong to the others the least (`coulomb.index.outliers`).

        Of equal texts only the first is ranked: a text that is there many times would make all texts near it outliers.

        Args:
            top: how many; None for all.
            neighbors: k of the mean similarity and the local density; default 10.
            looks: whether reasons say how the images look, which reads the thumbnail and the header of each.

        Returns:
            ``[{"id", "path", "score", "similarity", "nearest", "reason", "label"}]``: ``score`` in robust standard
            deviations from the median, ``similarity`` the mean cosine with the k nearest, ``nearest`` the id of the most
            similar image; ``reason`` also says if the image is blurred, dark, bright or flat, of an odd aspect ratio, CMYK or
            of more than 8 bits per channel.

        Raises:
            InputError: fewer than 3 images, ``neighbors`` out of range.
        """
        features, numbers = self.features, np.arange(len(self.ids))
        if self.kind == TEXTS.name and len(different := np.sort(self._copies()[1])) < len(features):
            features, numbers = features[different], different
        found = find_outliers(features, neighbors)
        rows = found.order[:top]
        return self.describe(
            numbers[rows].tolist(),
            score=np.round(found.score[rows], 3).tolist(),
            similarity=np.round(found.similarity[rows], 6).tolist(),
            nearest=[self.ids[row] for row in numbers[found.neighbor[rows]]],
            reason=[
                "; ".join([found.reason(row, self.kind), *seen])
                for row, seen in zip(
                    rows,
                    self._looks(rows.tolist()) if looks and self.kind != TEXTS.name else [[]] * len(rows),
                    strict=True,
                )
            ],
        )

    def _looks(self, rows: list[int]) -> list[list[str]]:
        """What is unusual about how images look, by their thumbnails and the headers of their files."""
        part = self.table.select(["path", "width", "height"]).take(rows).to_pydict()
        found = []
        for row, path, width, height in zip(rows, *part.values(), strict=True):
            header = Header(width or 0, height or 0, "RGB", 3, "uint8")
            if path is not None:
                with contextlib.suppress(CorruptImage):  # the file is gone: what the index knows of it remains
                    header = read_header(Path(self._absolute([path])[0] or path), path)
            found.append(unusual(decode(self.thumbnail(row), f"thumbnail {row}")[0], header))
        return found

    def label_errors(
        self, labels: Any = None, *, top: int | None = None, cutoff: float | None = None, seed: int = 0
    ) -> Rows:
        """Ranks the labels that the features contradict (`coulomb.index.label_errors`).

        Args:
            labels: labels other than the index's: a dict id → label, or a CSV or Parquet file with columns id (or
                path) and label.
            top: how many of those whose label is not the most probable one, whatever their confidence.
            cutoff: least confidence; 0 for all whose label is not the most probable one. Default, without ``top``: found by
                flipping 5% of the labels, see `coulomb.index.label_errors`.
            seed: seed of the folds of the linear probe.

        Returns:
            ``[{"id", "path", "suggested", "confidence", "reason", "label"}]``: ``confidence`` is 1 − probability of the
            given ``label``. ``note`` of the list says how many were left out.

        Raises:
            InputError: no labels, fewer than two classes with two images.
        """
        numbers, names = self._classes(labels)
        if not len(names):
            raise InputError(
                f"{visible(self.path)}: has no labels to check; give them with labels= (--labels FILE), or build the index "
                "from folders of classes or a list with labels"
            )
        recommended = cutoff is None and top is None
        found = find_label_errors(self.features, numbers, seed=seed, recommend=recommended)
        least = cutoff if cutoff is not None else found.cutoff
        likely = int((found.confidence >= least).sum())
        shown = slice(0, likely if top is None else min(top, likely))
        rows = found.rows[shown]
        entries = self.describe(
            rows.tolist(),
            suggested=[names[number] for number in found.suggested[shown]],
            confidence=np.round(found.confidence[shown].astype(float), 4).tolist(),
            reason=[
                f"{agreeing} of the {found.k} nearest labeled {self.kind}s have this label; the linear probe gives it {p:.0%}"
                for agreeing, p in zip(found.agreeing[shown], found.probe[shown], strict=True)
            ],
        )
        answer = Rows(entry | {"label": names[numbers[row]]} for entry, row in zip(entries, rows, strict=True))
        answer.note = f"{len(rows)} of {found.judged} labels are listed"
        if least:
            answer.note += f", with a confidence of at least {least:.3f}"
        if recommended and least:
            answer.note += ", the cut-off at which flipped labels are found best"
        if len(found.rows) > len(rows):
            answer.note += f"; {len(found.rows) - len(rows)} more are less certain"
            answer.note += " (cutoff=0, --cutoff 0, lists all)" if top is None else ""
        return answer

    def choose(self, number: int, *, labels: Any = None, strategy: Strategy = "typical", seed: int = 0) -> Rows:
        """Chooses the images to label next (`coulomb.index.choose`); those with a label are left out.

        Args:
            number: how many.
            labels: labels given so far, in addition to the index's, as for `label_errors`.
            strategy: ``"typical"``, for up to some hundreds of labels; or ``"diverse"``, which covers all images.
            seed: seed of the clusters.

        Returns:
            ``[{"id", "path", "label"}]``, the most useful first; ``label`` is None.

        Raises:
            InputError: fewer images without a label than ``number``.
        """
        numbers, _ = self._classes(labels, add=True)
        rows = choose_rows(self.features, number, np.flatnonzero(numbers >= 0), strategy=strategy, seed=seed)
        return self.describe(rows.tolist())

    def cluster(self, number: int | None = None, *, least: int | None = None, seed: int = 0) -> Rows:
        """Divides the images into clusters: by k-means, or with ``least`` by HDBSCAN, which leaves images in no cluster.

        Args:
            number: number of clusters of k-means; default √(N/2), 27 for 1,500 images.
            least: smallest cluster of HDBSCAN, which finds the number of clusters (at most 50,000 images).
            seed: seed of k-means.

        Returns:
            ``[{"id", "path", "cluster", "similarity", "label"}]``: largest cluster first, within each the typical images
            first (``similarity`` with its center); images in no cluster, −1, at the end. Of texts also "name", the most
            typical text of the cluster, None for −1.

        Raises:
            InputError: ``number`` or ``least`` out of range, or both given.
        """
        if least is not None and number is not None:
            raise InputError(
                f"least={least}: is for HDBSCAN, which finds the number of clusters; leave out number or least"
            )
        if least is not None:
            found = hdbscan(self.features, least, seed=seed)
        else:
            found = kmeans(self.features, number, seed=seed)
        place = np.where(found.cluster < 0, len(found.centers), found.cluster)
        rows = np.lexsort((-found.similarity, place))
        names = {}
        if self.kind == TEXTS.name:
            typical = [int(found.typical(number, 1)[0]) for number in range(len(found.centers))]
            central = [*self.table.column("text").take(typical).to_pylist(), None]
            names["name"] = [central[number] for number in place[rows].tolist()]
        return self.describe(
            rows.tolist(),
            **names,
            cluster=found.cluster[rows].tolist(),
            similarity=np.round(found.similarity[rows].astype(float), 6).tolist(),
        )

    def classify(
        self,
        labels: Any = None,
        *,
        names: Names | None = None,
        prompts: str | Sequence[str] | None = None,
        accuracy: float | None = None,
        seed: int = 0,
    ) -> Answer:
        """Classifies the images without a label from those with one (`coulomb.index.few_labels`), or all by words alone.

        With ``names``, for an index that was built with a run on images and texts, no labels are needed: the probabilities are
        the softmax over the classes of cosine / temperature, with the temperature of the run, and the embedding of a class
        is the mean of its prompts' (`coulomb.index.named_classes`). Every image gets one of the classes, so name one for all
        others, with words of its own: ``names="cat,dog,neither=an empty room"``.

        Args:
            labels: a dict id → label, or a CSV or Parquet file with columns id (or path) and label; default: the labels
                of the index.
            names: classes instead of labels: names separated by commas, each with ``=WORDS`` if it has its own; or a list or a
                dict.
            prompts: with ``names``, templates of texts in which ``{}`` is the name; default "a photo of a {}".
            accuracy: held-out accuracy wanted of the predictions that are not ``unsure``; default: half the error rate of all
                predictions, at most .95.
            seed: seed of the cross-validation.

        Returns:
            ``{"images": [{"id", "path", "label", "probability", "margin", "unsure", "probabilities"}],
            "threshold", "target", "accuracy", "sure_accuracy", "labeled", "classes"}``: all images without a given label,
            the surest first; ``label`` is the predicted class. ``accuracy`` and ``sure_accuracy`` are measured on held-out
            labels, and ``target`` what was wanted of the latter, None if there are fewer than 20; ``unsure`` means a margin
            below ``threshold``. With ``names`` all images, and also ``prompts`` and ``temperature``.

        Raises:
            InputError: no labels, one class only, unknown ids; names for an index without texts, or together with labels.
        """
        if names is not None:
            return self._classify_by_words(names, prompts, labels, accuracy)
        if prompts is not None:
            raise InputError("prompts: are for classes from words; give their names, too (--names cat,dog)")
        numbers, classes = self._classes(labels)
        if len(classes) < 2:
            raise InputError(
                f"labels: {len(classes)} different classes{f' ({visible(classes[0])})' if classes else ''}; a classifier "
                "needs two or more; label one of another class as well"
            )
        if accuracy is not None and not 0 < accuracy <= 1:  # `classify_rows` calls it target
            raise InputError(f"accuracy={accuracy}: must be above 0 and at most 1")
        found = classify_rows(self.features, numbers, target=accuracy, seed=seed)
        return self._classified(found, np.flatnonzero(numbers < 0), classes, labeled=int((numbers >= 0).sum()))

    def _classify_by_words(
        self, names: Names, prompts: str | Sequence[str] | None, labels: Any, accuracy: float | None
    ) -> Answer:
        for option, value in (("labels", labels), ("accuracy", accuracy)):
            if value is not None:
                raise InputError(f"{option}={visible(value)}: has no meaning with names; leave one of them out")
        require_images(self.info, self.path, "classification by names")
        classes, templates = read_names(names), check_prompts(prompts)
        temperature = self.pair_encoder.temperature
        texts = self.encode_text(texts_of(classes, templates))
        found = classify_by_words(self.features, class_embeddings(texts, len(classes)), temperature)
        answer = self._classified(found, np.arange(len(self.ids)), list(classes), labeled=0)
        answer |= {"prompts": list(templates), "temperature": temperature}
        return answer

    def _classified(self, found: Predictions, rest: np.ndarray, names: list[str], *, labeled: int) -> Answer:
        """Returns the answer for the rows ``rest``, the surest first."""
        rows = rest[np.argsort(-found.margin[rest], kind="stable")]
        probabilities = np.round(found.probabilities.astype(float), 4)
        predicted, margin, unsure = found.predicted, found.margin, found.unsure
        entries = self.describe(rows.tolist()) if len(rows) else []
        shown = KINDS[self.kind].shown
        images = [
            {
                "id": entry["id"],
                shown: entry[shown],
                "label": names[predicted[row]],
                "probability": float(probabilities[row].max()),
                "margin": round(float(margin[row]), 4),
                "unsure": bool(unsure[row]),
                "probabilities": dict(zip(names, probabilities[row].tolist(), strict=True)),
            }
            for row, entry in zip(rows.tolist(), entries, strict=True)
        ]
        return Answer(
            images=images,
            threshold=found.threshold,
            target=found.target,
            accuracy=found.accuracy,
            sure_accuracy=found.sure_accuracy,
            labeled=labeled,
            classes=names,
        )

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
                    "the ids of the index (of a folder, paths relative to it; of texts, numbers of rows)"
                )
            for id_, label in given.items():
                texts[position[id_]] = None if is_unknown(label) else str(label)
        names = sorted({text for text in texts if text is not None}, key=natural_key)
        number = {name: index for index, name in enumerate(names)}
        return np.array([-1 if text is None else number[text] for text in texts], np.int64), names
