"""Looking at images before training: `views`, `check`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coulomb.cli.app import app
from coulomb.cli.console import pairs, say
from coulomb.cli.options import config_parameters, given_options, keyword, with_signature
from coulomb.errors import InputError


@app.command()
def views(
    data: Annotated[str, typer.Argument(help="images, as for train")] = "digits",
    out: Annotated[Path, typer.Option(help="picture to write")] = Path("views.png"),
    preset: Annotated[str | None, typer.Option("--views", help="augmentation preset; default by the images")] = None,
    view: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="single strengths")] = None,
    image_size: Annotated[int | None, typer.Option(help="pixels a side", min=4)] = None,
    n: Annotated[int, typer.Option(help="views of each image", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
) -> None:
    """Save a contact sheet: what the network will see."""
    from coulomb.runs.preview import preview

    used = preview(
        data, out, preset=preset, options=pairs(view or [], "--view flip=0"), image_size=image_size, n=n, seed=seed
    )
    say(f"{out}: each row an image and {n} views of it, preset {used}")


def check(**given: Any) -> None:
    """Look at a data set before hours are spent on it, and show what `train` with the same options would do.

    Corrupt files, exact copies, classes, columns that could be labels, enlarged images; then split, image size, steps,
    time and memory of the training. Exit code 1: `train` would refuse the data or an option.
    """
    from coulomb.api import load_module
    from coulomb.runs.objects import Objects
    from coulomb.runs.preflight import preflight

    as_json = given.pop("as_json")
    options = given_options(given)
    if "data" not in options:
        raise InputError("data: give the images to check: a folder, a list, a Parquet file, …")
    module = load_module(options.get("encoder"))
    if module is not None:
        del options["encoder"]
    result, text = preflight(options, Objects(encoder=module), progress=not as_json)
    say(json.dumps(result) if as_json else text)
    if result["training"]["refused"]:
        raise typer.Exit(1)


as_json = keyword("as_json", bool, typer.Option("--json", help="print one JSON object"), False)
app.command()(with_signature(check, [*config_parameters(without=("out",)), as_json]))
