"""`coulomb browse`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import note, say
from coulomb.cli.index import INDEX, ROOT
from coulomb.cli.options import with_examples
from coulomb.ground.errors import counted


@with_examples("coulomb browse photos.index", "coulomb browse photos.index --port 8765 --no-open")
def browse(
    index: Annotated[Path, INDEX],
    root: Annotated[Path | None, ROOT] = None,
    port: Annotated[
        int, typer.Option(help="port on 127.0.0.1; 0 takes a free one", min=0, max=65535, rich_help_panel="Page")
    ] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="open the page in the browser", rich_help_panel="Page")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the address as one JSON object")] = False,
) -> None:
    """Show the images of an index on a local page: grid, search by picture, map, duplicates, label errors, labeling.

    The page answers this machine only, and only at the address that is printed; nothing is sent anywhere. Your decisions are
    saved in INDEX/browse/work.jsonl as you make them. No image is changed, moved or deleted. Ctrl-C stops it.
    """
    from coulomb.index import Index
    from coulomb.index.kinds import require_images
    from coulomb_browse.serve import require_server, serve

    require_server()
    opened = Index.open(index, root=root)
    require_images(opened.info, index, "coulomb browse")
    if not as_json:
        note(f"{counted(len(opened), 'image')}; Ctrl-C stops the page, your decisions are saved")
    serve(
        opened,
        port=port,
        open_browser=open_page,
        ready=lambda address: say(json.dumps({"address": address}) if as_json else f"open {address}"),
    )
