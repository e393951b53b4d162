"""`coulomb verify`."""

import importlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, note, parse_pairs, say
from coulomb.cli.options import JSON, examples
from coulomb.ground.errors import InputError
from coulomb.models.user_code import is_user_code, load_user_code


@app.command(
    epilog=examples(
        "coulomb verify my_loss.py:MyLoss --out my_loss.html",
        'coulomb verify my_loss.py:MyLoss --call "(features, labels)"',
        "coulomb verify pytorch_metric_learning.losses:NTXentLoss --json",
    )
)
def verify(
    loss: Annotated[
        str,
        typer.Argument(
            help="my_file.py:Name or package.module:Name, a class, a module or a function; its code is executed",
            show_default=False,
        ),
    ],
    call: Annotated[
        str | None,
        typer.Option(
            help='how it is called, such as "(z0, z1)" or "(features[N, 2, D], labels)"; default: inferred from names',
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="argument of the constructor, several times if needed", metavar="NAME=VALUE"),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            help="my_file.py:function of (n, d, draw) that returns the arguments of a call instead", show_default=False
        ),
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            help="my_file.py:function of the same arguments, such as a double loop: value and gradient must be equal",
            show_default=False,
        ),
    ] = None,
    detached: Annotated[
        list[str] | None, typer.Option(help="argument that gets no gradient on purpose, such as a target")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="dimensions, if the loss accepts one number only", min=1)] = None,
    laws: Annotated[
        str | None, typer.Option(help="laws to check, with commas; default: all", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="page to write, such as loss.html", show_default=False)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check any contrastive loss: gradient, order, processes, memory, precision, degenerate batches, …

    Each law holds, does not hold (with the smallest example and the likely cause), or does not apply. Takes seconds on a
    CPU. The file or package is executed, because you name it: verify only code that you would run.

    Exit code 0: all laws hold or do not apply; 1: a law does not hold; 2: the loss cannot be loaded or called.
    """
    from coulomb.report.certificate import write_certificate
    from coulomb.report.pages.page import check_target

    target = None if out is None else check_target(out)
    certificate = coulomb.verify(
        load_named("loss", loss),
        None if inputs is None else load_named("inputs", inputs),
        call=call,
        options=parse_pairs(option or [], "--option temperature=0.1"),
        formula=None if formula is None else load_named("formula", formula),
        detached=detached or (),
        dim=dim,
        laws=None if laws is None else [one.strip() for one in laws.split(",")],
        name=loss,
    )
    say(json.dumps(certificate.to_dict(), ensure_ascii=False) if as_json else str(certificate))
    if target is not None:
        note(f"page: {write_certificate(certificate, target)}")
    if not certificate.holds:
        raise typer.Exit(1)


def load_named(option: str, text: str) -> Any:
    """Executes the file or imports the module of ``text``, and returns what it names.

    Raises:
        InputError: naming ``option``: it is neither ``file.py:Name`` nor ``package.module:Name``, or there is no such name.
    """
    if is_user_code(text):
        return load_user_code(option, text)
    module, colon, name = text.partition(":")
    if not colon or not module or not name or module.endswith(".py"):
        raise InputError(f"{option}={text!r}: write my_file.py:Name or package.module:Name")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{option}={text!r}: {module} cannot be imported: {error}") from None
    except Exception as error:
        raise InputError(f"{option}={text!r}: importing {module} failed: {type(error).__name__}: {error}") from error
    loaded = getattr(found, name, None)
    if not callable(loaded):
        raise InputError(f"{option}={text!r}: {module} has no class or function {name!r}")
    return loaded
