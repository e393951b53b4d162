"""Checks a data set image by image before a training run."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from coulomb.ground.errors import InputError, counted
from coulomb.ground.progress import track
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.picture import CorruptImage, Header, array_header
from coulomb.tables.check_groups import group_finding, group_like
from coulomb.tables.check_labels import column_lines, label_findings, label_like, label_table
from coulomb.tables.looks import unusual
from coulomb.tables.source import Source
from coulomb.tables.survey import Survey, detail_finding, measure_detail, suggest_image_size, summarize, survey
from coulomb.tables.workers import read_batches, split_batches

MISSING = "partly without values"
MOST_LINES = 20  # of one list in the text; the dictionary holds all entries


class Decoded(NamedTuple):
    """Header, hash of the pixels and size in bytes of an image that was decoded at full size, and what is unusual about it."""

    header: Header
    digest: bytes
    nbytes: int
    unusual: tuple[str, ...] = ()


class _DecodedImages(Dataset[Decoded | str]):
    """Decodes every image at full size and returns its `Decoded`, or the reason why it is corrupt."""

    def __init__(self, source: Source, bands: Bands | None) -> None:
        self.source, self.bands = source, bands

    def __getitems__(self, indices: list[int]) -> list[Decoded | str]:
        return [self._decode(index) for index in indices]

    def _decode(self, index: int) -> Decoded | str:
        try:
            if self.bands is None:
                header = self.source.header(index)
                image = shown = self.source.image(index)
            else:
                image = self.source.bands(index)
                shown = self.bands.apply(image, self.source.item_id(index))
                header = array_header(image)
        except CorruptImage as error:
            return error.reason
        digest = hashlib.blake2b(f"{image.shape}{image.dtype}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(image).tobytes())
        found = unusual(shown, header)
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            found.append(MISSING)
        return Decoded(header, digest.digest(), image.nbytes, tuple(found))


@dataclass(frozen=True)
class Inspection:
    """Result of decoding all images of a source: by index, what was decoded or the reason of the failure."""

    source: Source
    images: list[Decoded | str]

    @property
    def decoded(self) -> dict[int, Decoded]:
        """What was decoded, by index."""
        return {index: image for index, image in enumerate(self.images) if not isinstance(image, str)}

    @property
    def readable(self) -> list[int]:
        """Indices of the images that can be decoded."""
        return list(self.decoded)

    @property
    def corrupt(self) -> dict[int, str]:
        """Reasons by index for the images that cannot be decoded."""
        return {index: image for index, image in enumerate(self.images) if isinstance(image, str)}

    def list_corrupt(self) -> list[dict[str, str]]:
        """Returns id and reason of each image that cannot be decoded."""
        return [{"id": self.source.item_id(index), "reason": reason} for index, reason in self.corrupt.items()]

    def hashes(self, indices: Iterable[int]) -> list[bytes]:
        """Returns the pixel hashes of these images, which must be readable."""
        decoded = self.decoded
        return [decoded[index].digest for index in indices]

    @property
    def deep(self) -> list[int]:
        """Indices of the readable images with more than 8 bits per channel."""
        return [index for index, image in self.decoded.items() if image.header.depth != "uint8"]


def inspect_images(
    source: Source, workers: int = 0, progress: bool | None = None, *, bands: Bands | None = None
) -> Inspection:
    """Decodes every image of ``source`` once in ``workers`` processes, with the ``bands`` of the run if it has some."""
    images: list[Decoded | str] = []
    batches = split_batches(range(len(source)), 64)
    read = read_batches(_DecodedImages(source, bands), batches, workers)
    counted = ((len(batch), decoded) for batch, decoded in zip(batches, read, strict=True))
    for decoded in track(counted, len(source), "checking", progress):
        images.extend(decoded)
    return Inspection(source, images)


def check(
    source: Source,
    batch_size: int | None = None,
    workers: int = 0,
    progress: bool | None = None,
    *,
    largest: int = 96,
    smallest: int = 0,
    image_size: int | None = None,
    seed: int = 0,
    learned: np.ndarray | None = None,
    sampler: str = "uniform",
    suggest_groups: bool = True,
    inspection: Inspection | None = None,
    surveyed: Survey | None = None,
) -> dict[str, Any]:
    """Decodes every image once and reports what deserves attention.

    Args:
        source: the images.
        batch_size: images per step for methods whose positives are the other images of a class; None for others.
        workers: processes that decode.
        progress: show a bar on a terminal.
        largest: largest image size to suggest, in pixels.
        smallest: smallest image size to recommend for images that were enlarged.
        image_size: side in pixels that the network will see; default the suggested one.
        seed: seed of the samples that are drawn.
        learned: indices of the images that batches are drawn from; default all.
        sampler: how batches are drawn, see :mod:`coulomb.tables.split`.
        suggest_groups: recommend a group that a split should not divide, if there is one; False if the split is given.
        inspection: the result of `inspect_images`, if it is known.
        surveyed: the result of `survey` with this seed, if it is known.

    Returns:
        A JSON-serializable dictionary:

        - ``source`` (its description), ``count``, ``readable``, ``corrupt`` [{id, reason}], ``survey`` (sizes, modes, …),
          ``suggested`` {image_size, channels, dtype} with image_size ≤ ``largest``, which is what training chooses;
        - ``duplicates``: images with identical pixels: ``groups`` [{ids, labels, cross_label}], ``redundant`` (copies
          beyond the first of each group), ``cross_label`` (number of groups whose known labels differ);
        - ``labels``: None, or ``labeled``, ``unlabeled``, ``classes`` [{label, name, count}] over readable images; with
          ``batch_size`` also P(no positive) of each class and on average, see :func:`coulomb.tables.split.p_no_positive`;
        - ``other_columns``: unused columns of the table that could be labels, see
          :func:`coulomb.tables.check_labels.label_like`;
        - ``groups``: columns, file names or folders that look like groups of similar images, see
          :func:`coulomb.tables.check_groups.group_like`;
        - ``rounded``: ids of images with more than 8 bits per channel that are read as 8, because most images have 8;
        - ``unusual``: ids of images that are blurred, dark, bright, flat, of an odd aspect ratio, CMYK, or of more than 8 bits
          per channel, see :func:`coulomb.tables.looks.unusual`, or have missing values;
        - ``several_pages``: ids of files with pages that are not read;
        - ``detail``: whether the images look enlarged, see :func:`coulomb.tables.survey.measure_detail`;
        - ``memory``: bytes decoded at full size, and as canvases of the suggested size;
        - ``findings``: sentences on what deserves attention.

    Raises:
        InputError: no image can be read, or ``batch_size`` is below 1.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> check(source)["count"]
    4
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size={batch_size}: must be at least 1")
    inspection = inspection or inspect_images(source, workers, progress)
    decoded, corrupt = inspection.decoded, inspection.list_corrupt()
    unreadable = {entry["id"]: entry["reason"] for entry in corrupt}
    summary = summarize(source, [image.header for image in decoded.values()], unreadable)
    size = suggest_image_size(surveyed or survey(source, seed=seed), largest)
    statistics = summary.to_dict()
    del statistics["unreadable"]  # the same as "corrupt"
    copies = _copies(decoded)
    groups = group_like(source, copies) if suggest_groups else []
    grouped = {entry["option"] for entry in groups}
    result: dict[str, Any] = {
        "source": source.describe(),
        "count": len(source),
        "readable": len(decoded),
        "corrupt": corrupt,
        "survey": statistics,
        "suggested": {"image_size": size, "channels": summary.channels, "dtype": summary.dtype},
        "duplicates": _duplicates(source, copies),
        "labels": label_table(source, list(decoded), batch_size, learned, sampler),
        "other_columns": [entry for entry in label_like(source) if entry["name"] not in grouped],
        "groups": groups,
        "rounded": [source.item_id(index) for index in inspection.deep] if summary.dtype == "uint8" else [],
        "unusual": _unusual(inspection),
        "several_pages": [source.item_id(index) for index, image in decoded.items() if image.header.pages > 1],
        "detail": measure_detail(source, list(decoded), seed),
        "memory": {
            "full_size": sum(image.nbytes for image in decoded.values()),
            "canvases": len(decoded) * summary.channels * size**2 * (1 if summary.dtype == "uint8" else 4),
            "canvas": size,
        },
    }
    result["findings"] = _findings(result, image_size or size, smallest)
    return result


def _copies(decoded: dict[int, Decoded]) -> list[list[int]]:
    """Returns the indices of identical images, a list for each picture that occurs several times."""
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for index, image in decoded.items():
        by_digest[image.digest].append(index)
    return [members for members in by_digest.values() if len(members) > 1]


def _unusual(inspection: Inspection) -> dict[str, list[str]]:
    """Returns the ids of unusual images by what is unusual about them, the most frequent first."""
    ids: dict[str, list[str]] = defaultdict(list)
    for index, image in inspection.decoded.items():
        for kind in image.unusual:
            ids[kind].append(inspection.source.item_id(index))
    return dict(sorted(ids.items(), key=lambda entry: (-len(entry[1]), entry[0])))


def _duplicates(source: Source, copies: list[list[int]]) -> dict[str, Any]:
    groups: list[dict[str, Any]] = []
    for members in copies:
        labels = None if source.labels is None else source.labels[members].tolist()
        differ = labels is not None and len({label for label in labels if label >= 0}) > 1
        groups.append({"ids": [source.item_id(i) for i in members], "labels": labels, "cross_label": differ})
    return {
        "groups": groups,
        "redundant": sum(len(group["ids"]) - 1 for group in groups),
        "cross_label": sum(group["cross_label"] for group in groups),
    }


def _findings(result: dict[str, Any], image_size: int, smallest: int) -> list[str]:
    findings = []
    labels, duplicates, survey = result["labels"], result["duplicates"], result["survey"]
    bad = len(result["corrupt"])
    if bad:
        findings.append(
            f"{bad} of {counted(result['count'], 'image')} ({bad / result['count']:.2%}) cannot be decoded and would be "
            "skipped."
        )
    if duplicates["redundant"]:
        findings.append(
            f"{counted(duplicates['redundant'], 'image is an exact copy of another', 'images are exact copies of others')}. "
            "As negatives of each other they push identical images apart; copies in both the training and the test set "
            "inflate the result."
        )
    if duplicates["cross_label"]:
        groups = counted(duplicates["cross_label"], "group of identical images has", "groups of identical images have")
        findings.append(f"{groups} different labels.")
    if survey["transparent"]:
        has = counted(survey["transparent"], "image has transparency and was", "images have transparency and were")
        findings.append(f"{has} composited over white.")
    for kind, ids in result["unusual"].items():
        # What most images have is how this data set looks. Bits per channel have a sentence of their own.
        if kind not in ("more than 8 bits per channel", MISSING) and 2 * len(ids) <= result["readable"]:
            what = ("has an ", "have an ") if kind == "odd aspect ratio" else ("is ", "are ")
            findings.append(
                f"{counted(len(ids), f'image {what[0]}{kind}', f'images {what[1]}{kind}')}: {first_few(ids)}."
            )
    if missing := result["unusual"].get(MISSING):
        have = counted(len(missing), "image has", "images have")
        findings.append(f"{have} values that are missing (NaN, infinite or no data): {first_few(missing)}.")
    if pages := result["several_pages"]:
        have = counted(len(pages), "file has several pages", "files have several pages")
        findings.append(
            f"{have}, of which the first is read; --bands 1-N takes N pages as channels: {first_few(pages)}."
        )
    if halved := sum(number for mode, number in survey["modes"].items() if mode in ("RGB;16", "RGBA;16")):
        have = counted(halved, "TIFF file has", "TIFF files have")
        findings.append(f"{have} 16 bits per channel and are read as 8; --bands 1,2,3 keeps all bits.")
    if result["rounded"]:
        findings.append(rounded_sentence(result["rounded"]))
    deep = sum(number for mode, number in survey["modes"].items() if mode.startswith(("I", "F", "uint16", "float")))
    if result["suggested"]["dtype"] == "float32" and deep < result["readable"]:
        has = counted(result["readable"] - deep, "image has", "images have")
        findings.append(f"{has} 8 bits per channel and most have more; all become float32.")
    if labels is not None:
        findings += label_findings(labels)
    elif result["other_columns"]:
        column = visible(result["other_columns"][0]["name"])
        findings.append(f"No labels are used, but column {column!r} could hold them: --labels {column}.")
    if (finding := group_finding(result["groups"])) is not None:
        findings.append(finding)
    if (finding := detail_finding(result["detail"], image_size, smallest)) is not None:
        findings.append(finding)
    return findings


def rounded_sentence(ids: list[str]) -> str:
    """Returns a sentence that counts and names the images with more than 8 bits per channel that are read as 8."""
    have = counted(len(ids), "image has", "images have")
    return (
        f"{have} more than 8 bits per channel and {'is' if len(ids) == 1 else 'are'} read as 8 bits, as most images have: "
        f"{first_few(ids)}."
    )


def render_check(result: dict[str, Any]) -> str:
    """Returns the result of `check` as plain text; print it without markup, because names may contain brackets.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> render_check(check(source)).splitlines()[0]
    'arrays (arrays): 4 images, 4 readable'
    """
    source, survey, memory = result["source"], result["survey"], result["memory"]
    suggested = result["suggested"]
    lines = [
        f"{visible(source['name'])} ({source['kind']}): {counted(result['count'], 'image')}, {result['readable']} readable",
        *(f"  note: {visible(note, 400)}" for note in source["notes"]),
        "",
        f"size      width {_spread(survey, 'width')}, height {_spread(survey, 'height')}"
        + (", all the same" if survey["uniform"] else ""),
        "modes     " + ", ".join(f"{visible(mode)} {count}" for mode, count in survey["modes"].items()),
        f"suggested image size {suggested['image_size']}, channels {suggested['channels']}, {suggested['dtype']}",
        f"memory    {_bytes(memory['full_size'])} decoded at full size, {_bytes(memory['canvases'])} as "
        f"{memory['canvas']}×{memory['canvas']} canvases",
        "",
        *_label_lines(result["labels"]),
        *(["columns   not used, and could be labels:"] if result["other_columns"] else []),
        *column_lines(result["other_columns"]),
        "",
        *_corrupt_lines("corrupt  ", result["corrupt"]),
        *(_corrupt_lines("corrupt test images", result["test"]["corrupt"]) if "test" in result else []),
        *_duplicate_lines(result["duplicates"]),
    ]
    if result["findings"]:
        lines += ["", "worth attention:", *(f"  - {finding}" for finding in result["findings"])]
    return "\n".join(lines)


def _label_lines(labels: dict[str, Any] | None) -> list[str]:
    if labels is None:
        return ["labels    none"]
    classes = labels["classes"]
    known = counted(len(classes), "class", "classes")
    lines = [f"labels    {labels['labeled']} labeled, {labels['unlabeled']} unlabeled, {known}"]
    if labels.get("p_no_positive") is not None:
        lines[0] += (
            f"; P(no other image of its class in a batch of {labels['batch_size']}) = {labels['p_no_positive']:.2g}"
        )
    most = max(entry["count"] for entry in classes)
    by_count = sorted(classes, key=lambda entry: -entry["count"])
    shown = by_count if len(by_count) <= MOST_LINES else by_count[: MOST_LINES // 2] + by_count[-MOST_LINES // 2 :]
    width = max(len(visible(entry["name"], 24)) for entry in shown)
    for row, entry in enumerate(shown):
        if len(by_count) > MOST_LINES and row == MOST_LINES // 2:
            lines.append(f"  … {len(by_count) - MOST_LINES} classes between these …")
        bar = "█" * max(1, round(24 * entry["count"] / most))
        name = visible(entry["name"], 24)
        chance = entry.get("p_no_positive")
        shown_chance = "" if chance is None else f" P(no positive) {chance:.2g}"
        lines.append(f"  {name:<{width}} {entry['count']:>8} {bar:<24}{shown_chance}".rstrip())
    return lines


def _corrupt_lines(title: str, corrupt: list[dict[str, str]]) -> list[str]:
    lines = [f"{title} {len(corrupt) or 'none'}"]
    lines += [f"  {visible(entry['id'])}: {visible(entry['reason'])}" for entry in corrupt[:MOST_LINES]]
    return lines if len(corrupt) <= MOST_LINES else [*lines, f"  … and {len(corrupt) - MOST_LINES} more"]


def _duplicate_lines(duplicates: dict[str, Any]) -> list[str]:
    groups = sorted(duplicates["groups"], key=lambda group: not group["cross_label"])
    if not groups:
        return ["copies    none"]
    lines = [f"copies    {duplicates['redundant']} in {counted(len(groups), 'group')} of identical pixels"]
    for group in groups[:MOST_LINES]:
        lines.append(f"  {first_few(group['ids'])}" + ("  (different labels!)" if group["cross_label"] else ""))
    return lines if len(groups) <= MOST_LINES else [*lines, f"  … and {len(groups) - MOST_LINES} more groups"]


def _spread(survey: dict[str, Any], side: str) -> str:
    low, high = survey[f"{side}_range"]
    return f"{low}" if low == high else f"{low}…{high} (median {survey[side]:g})"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
