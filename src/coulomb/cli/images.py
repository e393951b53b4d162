"""Looking at images before training: `views`, `check`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import app
from coulomb.cli.console import pairs, say


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


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="images, as for train")],
    batch_size: Annotated[int, typer.Option(help="images a step", min=2)] = 256,
    method: Annotated[str, typer.Option(help="for the estimates")] = "simclr",
    preset: Annotated[str, typer.Option(help="for the estimates")] = "small",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Look at a data set before hours are spent on it."""
    from coulomb.runs.preview import preflight

    result, text = preflight(data, batch_size=batch_size, method=method, preset=preset, progress=not as_json)
    say(json.dumps(result) if as_json else text)
