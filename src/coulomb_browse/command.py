"""`coulomb browse`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import note, say
from coulomb.cli.index import ENCODER, INDEX, ROOT
from coulomb.cli.options import with_examples
from coulomb.ground.errors import InputError, counted


@with_examples(
    "coulomb browse photos.index",
    'coulomb browse photos.index --text "a red flower" --not "people"',
    "coulomb browse photos.index --port 8765 --no-open",
)
def browse(
    index: Annotated[Path, INDEX],
    text: Annotated[
        str | None, typer.Option("--text", help="words that the page searches for", rich_help_panel="Query")
    ] = None,
    without: Annotated[
        str | None, typer.Option("--not", metavar="WORDS", help="unlike these words", rich_help_panel="Query")
    ] = None,
    root: Annotated[Path | None, ROOT] = None,
    encoder: Annotated[str | None, ENCODER] = None,
    port: Annotated[
        int, typer.Option(help="port on 127.0.0.1; 0 takes a free one", min=0, max=65535, rich_help_panel="Page")
    ] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="open the page in the browser", rich_help_panel="Page")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the address as one JSON object")] = False,
) -> None:
    """Show an index on a local page: grid, search by picture or words, map, duplicates, label errors, labeling.

    Words are searched for in an index that was built with a run on images and captions, and in one of texts, which are shown
    as cards.
    The page answers this machine only, and only at the address that is printed; nothing is sent anywhere. Your decisions are
    saved in INDEX/browse/work.jsonl as you make them. No image is changed, moved or deleted. Ctrl-C stops it.
    """
    from coulomb.index import Index
    from coulomb_browse.serve import require_server, serve

    require_server()
    if without is not None and text is None:
        raise InputError(f"--not={without!r}: is subtracted from words; give --text, too")
    opened = Index.open(index, root=root, encoder=encoder)
    if not as_json:
        note(f"{counted(len(opened), opened.kind)}; Ctrl-C stops the page, your decisions are saved")
    serve(
        opened,
        port=port,
        open_browser=open_page,
        query={name: value for name, value in (("words", text), ("not", without)) if value is not None},
        ready=lambda address: say(json.dumps({"address": address}) if as_json else f"open {address}"),
    )
