"""Computes both sides of each row of the pages for users of other libraries, and compares them with what the page says:

    python tests/peers/calls.py docs/guide/from-lightly.md docs/guide/from-pytorch-metric-learning.md …

A row of such a table has a call of the other library and one of coulomb, which are evaluated on the same eight pairs in fp64.
Prints the difference of the values, and that of the gradients relative to their largest entry. Needs the other library.
"""

import argparse
import importlib.util
import math
import re
import sys
import types
import warnings
from pathlib import Path

import torch
from torch.nn.functional import normalize

import coulomb.integrations.open_clip
import coulomb.losses
from benchmarks.open_clip_tests import PLUGIN

N, DIM, CLASSES, QUEUE = 8, 6, 4, 16
MODULES = {
    "lightly": ["lightly.loss"],
    "pytorch-metric-learning": ["pytorch_metric_learning.losses"],
    "solo-learn": [
        f"solo.losses.{name}" for name in ("simclr", "moco", "byol", "simsiam", "barlow", "vicreg", "nnclr")
    ],
    "open_clip": ["open_clip.loss"],
}
ROW = re.compile(r"^\| ([^|`]+) \| `([^`]+)` \| `([^`]+)` \| ([^|]+) \|", re.M)


def shared():
    """The names in the calls: tensors, drawn anew with the same seed."""
    torch.manual_seed(0)
    x, y = (torch.randn(N, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2))
    queue = normalize(torch.randn(QUEUE, DIM, dtype=torch.float64), dim=1)
    centers = torch.randn(CLASSES, DIM, dtype=torch.float64)
    scale, bias = torch.tensor(10.0, dtype=torch.float64), torch.tensor(-10.0, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])  # one class without a positive
    given = {"x": x, "y": y, "queue": queue, "centers": centers, "scale": scale, "bias": bias, "labels": labels}
    return given | {"dim": DIM, "classes": CLASSES, "normalize": normalize, "math": math, "torch": torch}


def prepared(made, names):
    """A loss with the same centers and memory on both sides."""

    def make(*given, **options):
        loss = made(*given, **options)
        for name, centers in (("W", names["centers"].T), ("centers", names["centers"])):
            if isinstance(getattr(loss, name, None), torch.nn.Parameter):
                getattr(loss, name).data = centers.clone()
        if hasattr(loss, "memory_bank"):
            loss.memory_bank.bank = names["queue"].clone()
        return loss

    return make


def value_and_gradient(call, library):
    """The value of a call, and the gradient of x."""
    names = shared()
    for module in library:
        for name, found in vars(module).items():
            is_loss = isinstance(found, type) and issubclass(found, torch.nn.Module)
            names.setdefault(name, prepared(found, names) if is_loss else found)
    value = eval(call, names)
    value = value["loss"] if isinstance(value, dict) else value
    (gradient,) = torch.autograd.grad(value, names["x"])
    return value.item(), gradient


def import_losses(library):
    """The modules with the losses of another library, without what else its packages import."""
    exec(PLUGIN.partition("if os.environ")[0], {})  # a stand-in for torchvision, which these losses do not use
    if library == "solo-learn":
        (folder,) = importlib.util.find_spec("solo").submodule_search_locations
        for name in ("solo", "solo.losses", "solo.utils"):
            package = sys.modules[name] = types.ModuleType(name)
            package.__path__ = [str(Path(folder, *name.split(".")[1:]))]
    return [importlib.import_module(name) for name in MODULES[library]]


def main(pages):
    """Prints a line per row; returns whether one that is said to be equal is not."""
    wrong = False
    for page in pages:
        text = page.read_text(encoding="utf-8")
        library = next(name for name in MODULES if f"| | {name} " in text)
        theirs = import_losses(library)
        for name, their_call, our_call, said in ROW.findall(text):
            ours = [coulomb.integrations.open_clip if "drop-in" in name else coulomb.losses]
            (value, gradient), (our_value, our_gradient) = (
                value_and_gradient(their_call, theirs),
                value_and_gradient(our_call, ours),
            )
            far = float((gradient - our_gradient).abs().max() / gradient.abs().max())
            same = abs(value - our_value) <= 1e-6 * max(1, abs(value)) and far <= 1e-6
            wrong |= said.strip() == "equal" and not same
            print(f"{library:24} {name:20} {value:10.6f} {our_value:10.6f}  gradient {far:.1e}  page: {said.strip()}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    warnings.simplefilter("ignore")
    sys.exit(main(parser.parse_args().pages))
