"""`coulomb version`."""

import json
import os
import platform
import re
from typing import Annotated

import typer

from coulomb.cli.app import app, say
from coulomb.cli.options import JSON, examples
from coulomb.ground.version import __version__


@app.command(epilog=examples("coulomb version", "coulomb version --verbose"))
def version(
    verbose: Annotated[
        bool, typer.Option("--verbose", help="also the machine, PyTorch and the packages that coulomb uses")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Print the version; with --verbose what a report of an error needs.

    Nothing that --verbose prints names you, your files or your machine's address.
    """
    facts = {"coulomb": __version__} | (installation() if verbose else {})
    if as_json:
        say(json.dumps(facts))
    elif not verbose:
        say(__version__)
    else:
        width = max(map(len, facts))
        say("\n".join(f"{name:{width}}  {value}" for name, value in facts.items()))


def installation() -> dict[str, str]:
    """Returns the machine, PyTorch's settings, and the version of each package that coulomb uses, or "not installed"."""
    import torch

    from coulomb.ground import machine

    gpus = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    variables = ("OMP_NUM_THREADS", "COULOMB_PRODUCTS", "COULOMB_KEEP_MEMORY", "CUDA_VISIBLE_DEVICES")
    return {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{machine.processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "cores": f"{os.cpu_count()}, {torch.get_num_threads()} threads",
        "products": machine.KERNEL,
        "gpu": ", ".join(gpus) if gpus else "none",
        "cuda": torch.version.cuda or "none",
        **{name: os.environ[name] for name in variables if name in os.environ},
        **packages(),
    }


def packages() -> dict[str, str]:
    """Returns the version of each package that coulomb's metadata names, extras for its own development left out."""
    from importlib import metadata

    left_out = re.compile(r"extra == .(dev|docs)\b")
    lines = [line for line in metadata.requires("coulomb") or () if not left_out.search(line)]
    names = dict.fromkeys(re.match(r"[\w.-]+", line).group() for line in lines)  # type: ignore[union-attr]
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
