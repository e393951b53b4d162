"""`coulomb export` and `coulomb push`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, say
from coulomb.cli.options import JSON, OWN_ENCODER, examples, one_of
from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError

ENCODER_TO, INDEX_TO = ("onnx", "hub"), ("faiss", "lance", "csv", "npz")
BELONGS = {"unit": "onnx", "int8": "onnx", "on": "onnx hub", "on_labels": "onnx hub", "image_size": "onnx hub"} | {
    "encoder": "onnx hub",
    "kind": "faiss",
}


@app.command(
    epilog=examples(
        "coulomb export lite0 --image-size 128 --to onnx --out model.onnx --unit",
        "coulomb export runs/photos --to hub --out photos-encoder",
        "coulomb export photos.index --to faiss --out photos.faiss",
    )
)
def export(
    source: Annotated[
        str,
        typer.Argument(
            help="run folder (of images, texts or pairs) or published weights (lite0, …) for onnx and hub; index folder for "
            "the others"
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            help="onnx, hub, faiss, lance, csv or npz",
            show_default=False,
            autocompletion=one_of([*ENCODER_TO, *INDEX_TO]),
        ),
    ],
    out: Annotated[Path, typer.Option(help="file or folder to write; it must not exist", show_default=False)],
    unit: Annotated[
        bool, typer.Option("--unit", help="onnx: features of unit length", rich_help_panel="Encoder")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="onnx: 8-bit integers; needs --on", rich_help_panel="Encoder")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            help="onnx: photos on which the file is checked, and with --int8 the loss is measured; hub: labeled photos on "
            "which published weights are measured for the card",
            rich_help_panel="Encoder",
        ),
    ] = None,
    on_labels: Annotated[
        str | None, typer.Option(help="column of a table that holds the labels of --on", rich_help_panel="Encoder")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="for published weights: side of the input in pixels", min=4, rich_help_panel="Encoder"),
    ] = None,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="faiss: flat, hnsw or ivf; default: by the number of images", rich_help_panel="Index"),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Export an encoder or an index to other programs.

    onnx: one file that takes photos of any size as they are, with a script that uses it. hub: a folder for the
    Hugging Face hub with a model card; `coulomb push` uploads it. faiss, lance, csv, npz: the features of an index.

    Every file is checked before it is kept: onnxruntime must return the features of PyTorch, and the recall of faiss and lance
    is measured.
    """
    from coulomb import export as exports
    from coulomb.training.plan.given import load_module

    require_option("to", to, str, choices=(*ENCODER_TO, *INDEX_TO))
    given = {"unit": unit, "int8": int8, "on": on, "on_labels": on_labels, "image_size": image_size}
    given |= {"encoder": encoder, "kind": kind}
    for name, value in given.items():
        if value and to not in BELONGS[name].split():
            raise InputError(f"--{name.replace('_', '-')}: has no meaning for --to {to}; leave it out")
    result: dict[str, Any]
    if to in INDEX_TO:
        opened = coulomb.Index.open(source)
        options = {"kind": kind} if to == "faiss" else {}
        result = getattr(exports, f"to_{to}")(opened, out, **options)
        if opened.kind != "image":
            result[f"{opened.kind}s"] = result.pop("images")
    else:
        loaded = coulomb.load(source, load_module(encoder), image_size=image_size)
        if to == "onnx":
            result = exports.to_onnx(loaded, out, unit=unit, int8=int8, on=on, labels=on_labels)
        else:
            result = exports.to_hub(loaded, out, on=on, labels=on_labels, progress=not as_json)
    say(json.dumps(result, ensure_ascii=False) if as_json else summary(to, result))


@app.command(
    epilog=examples(
        "coulomb push runs/photos my-name/photos-encoder",
        "coulomb push photos-encoder my-name/test --private --json",
    )
)
def push(
    folder: Annotated[Path, typer.Argument(help="run folder, or a folder that coulomb export --to hub wrote")],
    name: Annotated[str, typer.Argument(help="repository, user/name; created if needed")],
    private: Annotated[bool, typer.Option("--private", help="make a new repository private")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Upload the encoder of a run, or an exported folder, to the Hugging Face hub; log in first with: hf auth login."""
    from coulomb import export as exports

    result = exports.push(folder, name, private=private or None)
    say(json.dumps(result) if as_json else f"uploaded: {result['url']}")


def summary(to: str, result: dict[str, Any]) -> str:
    """Returns the lines that are printed."""
    if to == "hub":
        card = "with its evaluation" if result["evaluated"] else "without an evaluation"
        return f"{result['out']}: {', '.join(result['files'])}; the card is {card}"
    if to == "onnx" and "towers" in result:
        return "\n".join([*map(onnx_lines, result["towers"].values()), f"how to use them together: {result['readme']}"])
    if to == "onnx":
        return onnx_lines(result)
    what = "images" if "images" in result else "texts"
    lines = [f"{result['out']}: {result[what]:,} {what} of {result['features']} features"]
    if to == "faiss":
        effort = "".join(f", {name}={value}" for name, value in result["effort"].items())
        lines.append(f"{result['kind']}{effort}; ids of its rows: {result['ids']}")
    if "recall" in result:
        lines.append(f"recall of the 10 nearest neighbors: {result['recall']:.1%}")
    return "\n".join(lines)


def onnx_lines(result: dict[str, Any]) -> str:
    """Returns the lines on one ONNX file."""
    check = result["check"]
    size = f" at {result['image_size']} pixels" if "image_size" in result else ""
    beside = f"; tokenizer: {result['tokenizer']}" if "tokenizer" in result else ""
    photos = f" and {check['photos']} photos" if "photos" in check else ""
    lines = [
        f"{result['out']}: {result['encoder']}{size}, {result['features']} features, "
        f"{result['bytes'] / 1e6:.1f} MB ({result['seconds']:.0f} s); example: {result['script']}{beside}",
        f"same features as PyTorch: smallest cosine {check['cosine']:.7f} in batches of "
        f"{', '.join(map(str, check['batches']))}{photos}",
    ]
    if "int8" in result:
        lines.append(loss_line(result["int8"]))
    return "\n".join(lines)


def loss_line(loss: dict[str, Any]) -> str:
    """Returns one line on how much accuracy 8-bit integers lose."""
    kept = loss["neighbors_kept"]
    parts = [] if kept is None else [f"{kept:.1%} of the 10 nearest neighbors are the same"]
    if knn := loss.get("knn"):
        parts.append(
            f"kNN {knn['float']:.1%} in floats, {knn['int8']:.1%} in 8 bits ({knn['int8'] - knn['float']:+.1%})"
        )
    return f"8-bit integers, on {loss['images']} images: {'; '.join(parts) or 'too few images to measure the loss'}"
