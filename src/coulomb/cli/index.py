"""Commands of an index: `index` and `search`."""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, note, say
from coulomb.cli.options import JSON, examples
from coulomb.ground.errors import InputError
from coulomb.ground.reading.files import size_text
from coulomb.ground.text import visible
from coulomb.index.encoders import title

SHOWN = 5  # unreadable images that are printed
WIDE = 100  # characters of a text that are printed
ENDING = r"\.[A-Za-z]\w{1,4}"  # of a file; "not this. Nor that" has none
INDEX = typer.Argument(help="folder that coulomb index wrote")
ARRAY = typer.Option("--json", help="print one JSON array", rich_help_panel="Output")
LIST = typer.Option(
    help="also write the list: .csv or .parquet, which train, check and browse read", rich_help_panel="Output"
)
ROOT = typer.Option(help="where the folder of the images is now, if it was moved", rich_help_panel="Index")
ENCODER = typer.Option(help="where the encoder of the index is now, if it was moved", rich_help_panel="Index")


@app.command(
    epilog=examples(
        "coulomb index photos/ --out photos.index",
        "coulomb index photos/ --encoder runs/photos --out photos.index",
        "coulomb index notes.csv --columns text --out notes.index",
        "coulomb index photos.index --check",
    )
)
def index(
    data: Annotated[
        str,
        typer.Argument(
            help="images, as for train: a folder, a list, a Parquet file, …; texts, with --columns; with --check an index"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="folder of the index; an existing one is updated; default: DATA.index")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="index the texts of this column of a CSV, JSON lines or Parquet file, or of a .txt file (column text)",
            rich_help_panel="Data",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="run folder, or published weights: lite0, hf:NAME@weights, timm:NAME@weights; default: the encoder of an "
            "existing index, lite0 for a new one of images, static for one of texts",
            rich_help_panel="Encoder",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="for published weights: side of the input in pixels; default: the size of the weights",
            min=4,
            rich_help_panel="Encoder",
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="type of the features: float16 (default) or float32", rich_help_panel="Encoder")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="column of a table that holds the labels; none ignores labels", rich_help_panel="Data"),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="folder that the paths of a list are relative to", rich_help_panel="Data")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes that decode images; default: the number of cores", min=0)
    ] = None,
    batch_size: Annotated[int, typer.Option(help="images or texts per forward pass", min=1)] = 256,
    check: Annotated[
        bool, typer.Option("--check", help="build nothing: verify all files of an existing index by their checksums")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Build an index of images or texts, or update it: features, a table and thumbnails in one folder.

    No training is needed: the default encoder is lite0, of texts static. If the folder exists, only new and changed images
    are read, and images that are gone are removed. The same command finishes an interrupted build, and the index can be read
    while it is updated.
    torchrun distributes the work over processes: torchrun --nproc-per-node 2 -m coulomb index photos/
    """
    if check:
        given = {"out": out, "encoder": encoder, "image_size": image_size, "precision": precision}
        given |= {"labels": labels, "root": root, "workers": workers, "columns": columns}
        for name, value in given.items():
            if value is not None:
                raise InputError(f"--{name.replace('_', '-')}: has no meaning with --check; leave it out")
        found = coulomb.Index.check(data)
        words = f"{data}: {_count(found)}, all {len(found['files'])} files are as they were written"
        say(json.dumps({"index": data, **found}) if as_json else f"{words} ({size_text(found['bytes'])})")
        return
    out = default_folder(data) if out is None else out
    made = coulomb.Index.build(
        data,
        out,
        columns=columns,
        encoder=encoder,
        image_size=image_size,
        precision=precision,
        labels=labels,
        root=root,
        workers=workers,
        batch_size=batch_size,
        progress=not as_json,
    )
    if os.environ.get("RANK", "0") != "0":
        return  # the first process of torchrun prints the result
    for left_out in made.info["data"]["notes"]:
        note(f"note: {visible(left_out, 400)}")
    failed = made.info["failed"]
    for failure in failed["first"][:SHOWN]:
        note(f"warning: not in the index: {visible(failure['id'])}: {visible(failure['reason'])}")
    if failed["count"] > SHOWN:
        note(f"warning: and {failed['count'] - SHOWN} more unreadable {made.kind}s; index.json names the first 100")
    say(json.dumps({"index": str(out), **made.info}, ensure_ascii=False) if as_json else summary(made))


def default_folder(data: str) -> Path:
    """Returns ``NAME.index`` in the current folder for data called NAME."""
    name = Path(data).expanduser().resolve().name.partition(":")[0]
    return Path(f"{Path(name).stem if Path(data).is_file() else name or 'images'}.index")


def summary(made: "coulomb.Index") -> str:
    """Returns one line on what an update did."""
    info, counts = made.info, made.info["last_update"]
    done = ", ".join(f"{counts[name]:,} {name}" for name in ("new", "changed", "kept", "dropped"))
    return (
        f"{made.path}: {_count(info)} ({done}; {info['failed']['count']:,} unreadable), "
        f"{info['features']} features each, {title(info['encoder'])}"
    )


def _count(found: dict[str, Any]) -> str:
    """Returns "1,500 images" or "1,500 texts"."""
    plural = "images" if "images" in found else "texts"
    return f"{found[plural]:,} {plural}"


@app.command(
    epilog=examples(
        "coulomb search photos.index beach.jpg --not indoors.jpg --json",
        'coulomb search photos.index --text "a red flower" --not "people"',
        'coulomb search notes.index --text "a red flower"',
    )
)
def search(
    index: Annotated[Path, INDEX],
    images: Annotated[list[str] | None, typer.Argument(metavar="IMAGE...", help="image files")] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", help="an image of the index; may be repeated", rich_help_panel="Query")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help="words; for an index of images, one that was built with a run on images and captions",
            rich_help_panel="Query",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--not",
            metavar="IMAGE|WORDS",
            help="unlike this image, or these words; may be repeated",
            rich_help_panel="Query",
        ),
    ] = None,
    without_id: Annotated[
        list[str] | None,
        typer.Option("--not-id", metavar="ID", help="unlike this image of the index", rich_help_panel="Query"),
    ] = None,
    top: Annotated[int, typer.Option(help="number of images", min=1, rich_help_panel="Query")] = 20,
    root: Annotated[Path | None, ROOT] = None,
    encoder: Annotated[str | None, ENCODER] = None,
    out: Annotated[Path | None, LIST] = None,
    as_json: Annotated[bool, ARRAY] = False,
) -> None:
    """List the images, or texts, most similar to the given images and words, most similar first.

    Several images are averaged; --not subtracts. Images given by --id are left out of the answer. An index of texts is
    searched by words, by --id ROW, and, if it was built with a run on images and captions, by images.
    """
    from coulomb.index.lists import check_list, write_list

    if out is not None:
        check_list(out)
    opened = coulomb.Index.open(index, root=root, encoder=encoder)
    pictures, words = _separated(without or [])
    found = opened.search(
        images or None, id, text=text, without=pictures, without_ids=without_id, without_text=words, top=top
    )
    if out is not None:
        write_list(out, found, ["id", "path" if opened.kind == "image" else "text", "similarity", "label"])
        note(f"list: {out}")
    say(json.dumps(found, ensure_ascii=False) if as_json else lines(found))


def _separated(given: list[str]) -> tuple[list[str] | None, list[str] | None]:
    """Returns the files, or what has a file's suffix, and the words among the values of ``--not``; None for none."""
    pictures = [each for each in given if re.fullmatch(ENDING, Path(each).suffix) or _exists(each)]
    words = [each for each in given if each not in pictures]
    return pictures or None, words or None


def _exists(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):  # too long for a name, as a text may be
        return False


def named(row: dict[str, Any]) -> str:
    """Returns the id of an image; of a text, its row and the text."""
    return f"{visible(row['id'])}  {visible(row['text'], WIDE)}" if "text" in row else visible(row["id"])


def lines(found: list[dict[str, Any]]) -> str:
    """Returns one line per image or text: similarity, label if there are any, and id with the text."""
    width = max((len(visible(row["label"], 30)) for row in found if row["label"] is not None), default=0)
    shown = [
        (row["similarity"], "" if row["label"] is None else visible(row["label"], 30), named(row)) for row in found
    ]
    return "\n".join(f"{value:6.3f}  {label:{width}}{'  ' if width else ''}{name}" for value, label, name in shown)
