"""Commands that query an index: `duplicates`, `outliers`, `label-errors`, `choose`, `cluster`, `classify`; and `mine`."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, note, say
from coulomb.cli.index import ARRAY, INDEX, LIST, ROOT, WIDE, named
from coulomb.cli.options import examples
from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import visible

SHOWN = 20  # rows that are printed
SHORT = 60  # characters of each typical text of a cluster
_output = partial(typer.Option, rich_help_panel="Output")
LABELS = typer.Option(help="CSV or Parquet file with columns id and label; default: the labels of the index")
SEED = typer.Option(help="seed of the random draws")


@app.command(
    epilog=examples(
        "coulomb duplicates photos.index --above 0.95 --out drop.sh",
        "coulomb duplicates train.index --against test.index --json",
    )
)
def duplicates(
    index: Annotated[Path, INDEX],
    above: Annotated[
        float, typer.Option(help="smallest cosine of a member with the image to keep, above 0 to 1")
    ] = 0.95,
    against: Annotated[
        Path | None, typer.Option(help="another index, such as the test set: list what this one shares with it")
    ] = None,
    crops: Annotated[
        bool, typer.Option(help="compare thumbnails of the most similar images, which finds crops and edited copies")
    ] = True,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[
        Path | None,
        _output(help="file to write: .csv or .parquet, or .sh for a script that deletes the others when you run it"),
    ] = None,
    as_json: Annotated[bool, _output("--json", help="print one JSON object")] = False,
) -> None:
    """List groups of near-duplicates, each with the image to keep, and exact copies.

    Two images are alike if their cosine is at least --above, or if one is a crop or an edited copy of the other. The most
    similar pairs are grouped first. The file with the most pixels is kept, then format, EXIF date, quality and name decide;
    every other image of a group is like one that is kept. Of texts, the longest is kept, then the first. No file is changed
    or deleted.
    """
    from coulomb.index.lists import SCRIPT

    if against is not None and out is not None and out.suffix.lower() == SCRIPT:
        raise InputError("out: a script deletes duplicates within one index; with --against, write a list as .csv")
    opened = _open(index, root, out, SCRIPT)
    other = None if against is None else coulomb.Index.open(against)
    found = opened.duplicates(above, against=other, crops=crops)
    _finish(found, out, as_json, partial(_groups_text, opened.kind, kept="in the other index" if against else "keep"))


@app.command(epilog=examples("coulomb outliers photos.index --top 50", "coulomb outliers photos.index --json"))
def outliers(
    index: Annotated[Path, INDEX],
    top: Annotated[int, typer.Option(help="number of images", min=1)] = 100,
    neighbors: Annotated[int | None, typer.Option(help="neighbors of each image; default: 10", min=1)] = None,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[Path | None, LIST] = None,
    as_json: Annotated[bool, ARRAY] = False,
) -> None:
    """List the images that are least like the others, with the reason."""
    found = _open(index, root, out).outliers(top, neighbors=neighbors)
    _finish(found, out, as_json, partial(_table, columns={"score": "{:6.1f}", "id": "{}", "reason": "{}"}))


@app.command(
    "label-errors",
    epilog=examples("coulomb label-errors photos.index --top 50", "coulomb label-errors photos.index --out wrong.csv"),
)
def label_errors(
    index: Annotated[Path, INDEX],
    labels: Annotated[Path | None, LABELS] = None,
    top: Annotated[
        int | None,
        typer.Option(help="number of images to list, whatever their confidence; default: all above --cutoff", min=1),
    ] = None,
    cutoff: Annotated[
        float | None,
        typer.Option(
            help="smallest confidence; 0 lists all suspicious labels; default: chosen by flipping 5% of the labels",
            min=0,
            max=1,
        ),
    ] = None,
    seed: Annotated[int, SEED] = 0,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[Path | None, LIST] = None,
    as_json: Annotated[bool, ARRAY] = False,
) -> None:
    """List labels that are probably wrong, the most certain first, with a suggested label.

    A label is suspicious if the 20 nearest images and a cross-validated linear probe together favor another one. It is listed
    if their confidence reaches a cut-off: 5% of the labels are flipped, and the cut-off that detects these best is used.
    """
    found = _open(index, root, out).label_errors(labels, top=top, cutoff=cutoff, seed=seed)
    note(found.note)
    columns = {"confidence": "{:6.3f}", "label": "{}", "suggested": "→ {}", "id": "{}", "reason": "{}"}
    _finish(found, out, as_json, partial(_table, columns=columns))


@app.command(
    epilog=examples(
        "coulomb choose photos.index --number 200 --out to-label.csv",
        "coulomb choose photos.index --number 100 --labels so-far.csv --json",
    )
)
def choose(
    index: Annotated[Path, INDEX],
    number: Annotated[int, typer.Option(help="number of images", min=1)],
    labels: Annotated[
        Path | None, typer.Option(help="labels given so far, as CSV or Parquet file with columns id and label")
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="typical (for up to a few hundred labels) or diverse (covers all images)")
    ] = "typical",
    seed: Annotated[int, SEED] = 0,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[Path | None, LIST] = None,
    as_json: Annotated[bool, ARRAY] = False,
) -> None:
    """Choose the images to label next; images with a label are left out.

    The same seed chooses the same images.
    """
    found = _open(index, root, out).choose(number, labels=labels, strategy=strategy, seed=seed)  # type: ignore[arg-type]
    _finish(found, out, as_json, partial(_table, columns={"id": "{}"}))


@app.command(
    epilog=examples(
        "coulomb cluster photos.index --number 30 --out clusters.csv",
        "coulomb cluster photos.index --least 20 --folders sorted/",
    )
)
def cluster(
    index: Annotated[Path, INDEX],
    number: Annotated[
        int | None, typer.Option(help="number of clusters (k-means); default: √(N/2) for N images", min=1)
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            help="use HDBSCAN with this smallest cluster: it finds the number and leaves outliers in no cluster", min=2
        ),
    ] = None,
    seed: Annotated[int, SEED] = 0,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[Path | None, LIST] = None,
    folders: Annotated[
        Path | None, _output(help="new folder to copy the images to, one folder per cluster; nothing is moved")
    ] = None,
    as_json: Annotated[bool, ARRAY] = False,
) -> None:
    """Divide the images into clusters, each shown by its typical images."""
    from coulomb.index.copies import copy_into_folders

    found = _open(index, root, out).cluster(number, least=least, seed=seed)
    _finish(found, out, as_json, _clusters_text)
    if folders is not None:
        copied, skipped = copy_into_folders(found, folders)
        note(f"{copied} images copied to {folders}, {skipped} without a readable file skipped")


@app.command(
    epilog=examples(
        "coulomb mine pairs.csv --encoder run --columns image,text --out h.parquet",
        "coulomb mine faq.csv --encoder static --columns q,a --out hard.parquet",
    )
)
def mine(
    data: Annotated[str, typer.Argument(help="pairs: a table or a folder, as for train --columns")],
    encoder: Annotated[
        str,
        typer.Option(
            help="run on these columns; or for pairs of texts static, hf:NAME@weights or a local folder, for pairs of images "
            "an encoder of images"
        ),
    ],
    columns: Annotated[str, typer.Option(help="the two columns; negatives are cells of the second")],
    out: Annotated[Path, typer.Option(help="Parquet file to write: the pairs and the columns negative_1, …")],
    number: Annotated[int, typer.Option(help="negatives per row", min=1)] = 1,
    margin: Annotated[
        float, typer.Option(help="least distance of a negative's cosine from the best right cell's", min=0)
    ] = 0.05,
    relative: Annotated[
        float | None, typer.Option(help="least distance relative to the cosine of the best right cell", min=0)
    ] = None,
    skip: Annotated[int, typer.Option(help="leave out the most similar SKIP negatives within the margins", min=0)] = 0,
    same: Annotated[
        list[str] | None,
        typer.Option(help="column of the data: rows of equal value are right for each other; may be repeated"),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="folder that the paths of pictures are relative to")] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes that decode pictures; default: the number of cores", min=0)
    ] = None,
    batch_size: Annotated[int, typer.Option(help="cells per forward pass", min=1)] = 256,
    page: Annotated[
        Path | None, _output(help="HTML page to write: the hardest rows and some at random, to look at")
    ] = None,
    as_json: Annotated[bool, _output("--json", help="print one JSON object")] = False,
) -> None:
    """Find hard negatives for pairs: cells of the second column that are similar to the first without being right.

    All cells are searched. Those within --margin of a right cell may be right without being marked, and are left out. The
    file has the same rows, pictures as bytes, and train reads it: --columns image,caption,negative_1:negative
    """
    from coulomb.report.mined import write_mined
    from coulomb.report.pages.page import check_target

    if page is not None:
        check_target(page)
    found = coulomb.mine(
        data, encoder, columns=columns, out=out, number=number, margin=margin, relative=relative, skip=skip,
        same=same or (), root=root, workers=workers, batch_size=batch_size, progress=not as_json,
    )  # fmt: skip
    for left_out in found["notes"]:
        note(f"note: {visible(left_out, 400)}")
    for failure in found["failed"][:SHOWN]:
        note(f"warning: left out {visible(failure['id'])}: {visible(failure['reason'])}")
    if len(found["failed"]) > SHOWN:
        note(f"warning: and {len(found['failed']) - SHOWN:,} more rows with unreadable pictures")
    if page is not None:
        note(f"page: {write_mined(found, page)}")
    say(json.dumps(found, ensure_ascii=False) if as_json else _mined_text(found, number))


def _mined_text(found: dict[str, Any], number: int) -> str:
    names = found["columns"]
    near = f", cosine {found['negative']:.3f} on average" if found["negative"] is not None else ""
    lines = [
        f"{found['out']}: {counted(found['rows'], 'row')}, {counted(found['negatives'], 'negative')}{near}; right cells "
        f"{found['positive']:.3f}"
    ]
    if found["short"]:
        fewer = f"fewer than {number} negatives, {found['without']:,} none" if number > 1 else "no negative"
        rows = counted(found["short"], "row has", "rows have")
        lines.append(f"{rows} {fewer}: no other cell is within the margins; train leaves these rows out")
    marked = ",".join([*names[:2], *(f"{name}:negative" for name in names[2:])])
    return "\n".join([*lines, f"train on them: coulomb train {found['out']} --columns {marked}"])


def classify_index(index: Path, by: dict[str, Any], root: Path | None, out: Path | None, as_json: bool) -> None:
    """Classifies the images of an index ``by`` some labels, or the names of classes: ``coulomb classify INDEX …``."""
    found = _open(index, root, out).classify(**by)
    note(_accuracy_text(found))
    _finish(found, out, as_json, _classes_text)


def _open(index: Path, root: Path | None, out: Path | None, *endings: str) -> "coulomb.Index":
    """Opens an index, after a check that the list can be written."""
    from coulomb.index.lists import check_list

    if out is not None:
        check_list(out, *endings)
    return coulomb.Index.open(index, root=root)


def _finish(answer: Any, out: Path | None, as_json: bool, text: Any) -> None:
    """Writes the list if ``out`` is given, and prints the answer as JSON or text."""
    from coulomb.index.lists import EMPTY, SCRIPT, list_rows, write_list, write_script

    if out is not None and out.suffix.lower() == SCRIPT:
        note(f"script: {out} deletes {write_script(out, answer)} files when you run it; nothing has been deleted")
    elif out is not None:
        rows = list_rows(answer)
        write_list(out, rows, list(rows[0]) if rows else EMPTY)
        note(f"list: {out} ({len(rows)} rows)")
    shown = answer["images"] if isinstance(answer, dict) and "images" in answer else answer
    say(json.dumps(shown, ensure_ascii=False) if as_json else text(answer))


def _more(count: int, what: str = "images") -> list[str]:
    return [f"… and {count - SHOWN:,} more {what} (--json or --out for all)"] if count > SHOWN else []


def _table(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> str:
    """Returns the first rows with aligned columns; a column maps a key to its format."""
    if not rows:
        return "none found"
    what = "images"
    if "text" in rows[0]:
        what, columns = "texts", columns | {"text": "{}"}
    cells = [
        [
            form.format(visible(row[key], WIDE if key == "text" else 200) if isinstance(row[key], str) else row[key])
            for key, form in columns.items()
        ]
        for row in rows[:SHOWN]
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([*lines, *_more(len(rows), what)])


def _groups_text(kind: str, found: dict[str, Any], kept: str) -> str:
    lines = []
    for title, groups in (("groups of near-duplicates", found["groups"]), ("sets of exact copies", found["copies"])):
        extra = sum(not member["keep"] for group in groups for member in group["members"])
        if kept == "keep":
            lines.append(f"{len(groups):,} {title}: {extra:,} {kind}s besides the ones to keep")
        elif groups:
            lines.append(f"{extra:,} {kind}s are like one of {len(groups):,} {kind}s of the other index")
        for group in groups[:SHOWN]:
            why = f" ({visible(group['reason'])})" if kept == "keep" else ""
            lines.append(f"  {kept}: {named(group | {'id': group['keep']})}{why}")
            for m in group["members"][:SHOWN]:
                note_ = f"  keep too: {m['reason']}" if m["keep"] else ""
                lines.append(f"    {m['similarity']:.3f}  {named(m)}{note_}")
            lines += [f"    {text}" for text in _more(len(group["members"]), f"{kind}s")]
        lines += _more(len(groups), "groups")
    return "\n".join(lines) or f"no {kind} is like one of the other index"


def _clusters_text(rows: Sequence[dict[str, Any]]) -> str:
    members: dict[int, list[str]] = {}
    for row in rows:
        shown = visible(row["text"], SHORT) if "text" in row else visible(row["id"])
        members.setdefault(row["cluster"], []).append(shown)
    what, sign = ("texts", " · ") if rows and "text" in rows[0] else ("images", ", ")
    typical = [
        f"{'none' if number < 0 else number:>5}  {len(ids):6,} {what}  {sign.join([*ids[:3], '…'][: len(ids)])}"
        for number, ids in members.items()
    ]
    return "\n".join([f"clusters, the typical {what} of each first:", *typical])


def _accuracy_text(found: dict[str, Any]) -> str:
    what = "texts" if found["images"] and "text" in found["images"][0] else "images"
    unsure = sum(image["unsure"] for image in found["images"])
    if "prompts" in found:
        prompts = ", ".join(repr(visible(prompt, 60)) for prompt in found["prompts"])
        return (
            f"{len(found['images']):,} images classified by the words of {len(found['classes'])} classes ({prompts}); "
            f"{unsure:,} unsure (no labels: accuracy not measured, margin below 0.5 counts as unsure)"
        )
    measured = "fewer than 20 labels: accuracy not measured, margin below 0.5 counts as unsure"
    if found["accuracy"] is not None:
        sure = "none" if found["sure_accuracy"] is None else f"{found['sure_accuracy']:.1%}"
        measured = (
            f"held-out accuracy {found['accuracy']:.1%}, of {what} not marked as unsure {sure} "
            f"(target: {found['target']:.1%})"
        )
    return (
        f"{len(found['images']):,} {what} classified from {found['labeled']:,} labels of {len(found['classes'])} classes; "
        f"{unsure:,} unsure ({measured})"
    )


def _classes_text(found: dict[str, Any]) -> str:
    rows = [row | {"mark": "unsure" if row["unsure"] else ""} for row in found["images"]]
    return _table(rows, {"probability": "{:6.3f}", "label": "{}", "mark": "{}", "id": "{}"})
