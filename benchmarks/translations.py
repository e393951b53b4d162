"""Calls of other libraries beside the calls here, and how their values differ: ``python -m benchmarks.translations``.

Each row of the pages "From …" of the guide is here. Both calls are executed as they are printed, where the library is
installed; tests/benchmarks/test_translations.py compares every row with its formula as a double loop as well.
"""

import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.command import Json, command, progress, show
from benchmarks.contenders import UnavailableError, loaded
from coulomb import losses
from coulomb.ground.errors import InputError
from coulomb.integrations import open_clip as drop_in

N, DIM, CLASSES, KEYS = 8, 6, 4, 16
EQUAL = 1e-6  # relative difference of value and gradient that is rounding
Names = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A call in another library, the call here, and why their values differ or what else to know."""

    name: str
    there: str
    here: str
    why: str


@dataclass(frozen=True)
class Library:
    """A library: its name, the version that was read, how to load its names, and the rows of its page."""

    title: str
    version: str
    load: Callable[[Names], Names]
    rows: tuple[Row, ...]


def sample() -> Names:
    """Returns the names that both calls use: x and y [8, 6] with gradient, labels of 4 classes, a queue, centers, a scale."""
    draw = torch.Generator().manual_seed(0)
    x, y, queue, centers = (
        torch.randn(rows, DIM, generator=draw, dtype=torch.float64) for rows in (N, N, KEYS, CLASSES)
    )
    return {
        "x": x.requires_grad_(),
        "y": (x + 0.5 * y).detach().requires_grad_(),
        "labels": torch.tensor([0, 1, 2, 0, 1, 2, 3, 0]),
        "queue": normalize(queue),
        "centers": centers,
        "scale": torch.tensor(12.0, dtype=torch.float64),
        "bias": torch.tensor(-4.0, dtype=torch.float64),
        "classes": CLASSES,
        "dim": DIM,
        "math": math,
        "torch": torch,
        "normalize": normalize,
    }


def ours(names: Names) -> Names:
    """Returns the losses of coulomb by name. Class centers are those of the sample."""
    found = {name: getattr(losses, name) for name in losses.__all__}
    return found | {
        "ArcFaceLoss": with_weights(losses.ArcFaceLoss, "centers", names["centers"]),
        "ClipLoss": drop_in.ClipLoss,
        "SigLipLoss": drop_in.SigLipLoss,
    }


def with_weights(make: Callable[..., nn.Module], name: str, weights: Tensor) -> Callable[..., nn.Module]:
    """Returns a constructor that sets the parameter ``name`` afterwards."""

    def made(*given: Any, **named: Any) -> nn.Module:
        module = make(*given, **named)
        setattr(module, name, nn.Parameter(weights.clone()))
        return module

    return made


def from_file(package: str, path: str, install: str) -> ModuleType:
    """Returns a file of an installed package, loaded by itself, without what its package imports."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise UnavailableError(f"not installed (pip install --no-deps {install})")
    spec = importlib.util.spec_from_file_location(f"{package}_file", Path(found.origin).parent / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def bare_packages(package: str, *inner: str) -> Iterator[None]:
    """Within this block, files of a package are imported without what its ``__init__`` files import, such as torchvision."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise UnavailableError(f"not installed (pip install --no-deps {package})")
    root, before = Path(found.origin).parent, dict(sys.modules)
    for name in ("", *inner):
        module = ModuleType(f"{package}.{name}".rstrip("."))
        module.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[module.__name__] = module
    if (
        importlib.util.find_spec("torchvision") is None
    ):  # lightly.models.utils imports one class, which its losses do not use
        sys.modules["torchvision"], sys.modules["torchvision.ops"] = (
            ModuleType("torchvision"),
            ModuleType("torchvision.ops"),
        )
        sys.modules["torchvision.ops"].__dict__["StochasticDepth"] = nn.Identity
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] in (package, "torchvision")]:
            del sys.modules[name]
        sys.modules.update({name: each for name, each in before.items() if name not in sys.modules})


def lightly(names: Names) -> Names:
    """Returns the losses of lightly by name. Its memory bank holds the queue of the sample."""
    files = "ntx_ent_loss", "dcl_loss", "barlow_twins_loss", "vicreg_loss", "negative_cosine_similarity"
    with bare_packages("lightly", "loss", "utils", "models", "models.modules"):
        modules = [loaded(f"lightly.loss.{file}", "lightly") for file in files]
    found = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, type)}

    def made(*given: Any, **named: Any) -> nn.Module:
        module: nn.Module = found["NTXentLoss"](*given, **named)
        bank: Any = module.memory_bank
        if named.get("memory_bank_size"):
            bank(names["y"].detach(), update=False)  # which creates the bank
            bank.bank = names["queue"].clone()
        return module

    return found | {"NTXentLoss": made}


def metric_learning(names: Names) -> Names:
    """Returns the losses of pytorch-metric-learning by name. Class weights are the centers of the sample."""
    theirs = loaded("pytorch_metric_learning.losses", "pytorch-metric-learning")
    found = {name: getattr(theirs, name) for name in dir(theirs) if name.endswith("Loss")}
    for name in ("ArcFaceLoss", "NormalizedSoftmaxLoss"):
        found[name] = with_weights(found[name], "W", names["centers"].T)
    return found


def solo_learn(names: Names) -> Names:
    """Returns the functions of solo-learn by name, from its files, since the package needs torchvision."""
    files = "simclr", "moco", "byol", "simsiam", "barlow", "vicreg", "nnclr"
    modules = [from_file("solo", f"losses/{file}.py", "solo-learn") for file in files]
    return {name: value for module in modules for name, value in vars(module).items() if name.endswith("_func")}


def open_clip(names: Names) -> Names:
    """Returns the losses of open_clip by name, from its file, since the package needs torchvision."""
    module = from_file("open_clip", "loss.py", "open_clip_torch")
    return {"ClipLoss": module.ClipLoss, "SigLipLoss": module.SigLipLoss}


LIBRARIES: Mapping[str, Library] = {
    "lightly": Library(
        "lightly",
        "1.6.0",
        lightly,
        (
            Row("NT-Xent", "NTXentLoss(0.5)(x, y)", "NTXentLoss(0.5)(x, y)", "the same formula and default τ"),
            Row(
                "memory bank",
                f"NTXentLoss(0.1, memory_bank_size=({KEYS}, dim))(x, y)",
                "InfoNCELoss(0.1)(x, y, queue)",
                "`queue` is `coulomb.negatives.Queue(size, dim).keys()`, filled by you after the loss: "
                "`queue.enqueue(y)`; lightly fills its bank inside the loss",
            ),
            Row("DCL", "DCLLoss(0.1)(x, y)", "DecoupledLoss(0.1)(x, y)", "the same formula and default τ"),
            Row(
                "DCLW",
                "DCLWLoss(0.1, sigma=0.5)(x, y)",
                "DecoupledLoss(0.1, weighted=True, sigma=0.5)(x, y)",
                "lightly detaches the weights; here they have their gradient",
            ),
            Row(
                "Barlow Twins",
                "BarlowTwinsLoss(5e-3)(x, y)",
                "BarlowTwinsLoss(5e-3)(x, y)",
                "the default λ here is the paper's 0.0051",
            ),
            Row("VICReg", "VICRegLoss()(x, y)", "VICRegLoss()(x, y)", "the same formula and weights"),
            Row(
                "SimSiam, BYOL",
                "NegativeCosineSimilarity()(x, y.detach())",
                "NegativeCosineLoss()(x, y)",
                "the target is detached here by default (`stop_gradient=True`)",
            ),
        ),
    ),
    "pytorch-metric-learning": Library(
        "pytorch-metric-learning",
        "2.9.0",
        metric_learning,
        (
            Row(
                "NT-Xent, two views",
                "SelfSupervisedLoss(NTXentLoss(0.07))(x, y)",
                "NTXentLoss(0.07)(x, y)",
                "the same as `NTXentLoss` there with labels `arange(N).repeat(2)`; the default τ here is 0.5",
            ),
            Row(
                "NT-Xent, classes",
                "NTXentLoss(0.07)(x, labels)",
                'SupConLoss(0.07, no_positive="exclude")(x, labels)',
                "there each positive pair has its own softmax over itself and the negatives, and pairs are averaged; SupCon's "
                "softmax also covers the other positives, and anchors are averaged",
            ),
            Row(
                "SupCon",
                "SupConLoss(0.1)(x, labels)",
                'SupConLoss(0.1, no_positive="exclude")(x, labels)',
                "anchors without a positive are left out of the mean there; by default they count as 0 here, as in the "
                "authors' code",
            ),
            Row(
                "triplet",
                "TripletMarginLoss(margin=0.2)(x, labels)",
                'TripletLoss(margin=0.2, distance="euclidean")(x, labels)',
                "all triplets, the mean over those above 0; the default distance here is 1 − cosine",
            ),
            Row(
                "ArcFace",
                "ArcFaceLoss(classes, dim, margin=28.6, scale=64)(x, labels)",
                "ArcFaceLoss(classes, dim, scale=64, margin=math.radians(28.6))(x, labels)",
                "degrees there, radians here; weights `W` [D, C] there, `centers` [C, D] here",
            ),
            Row(
                "normalized softmax",
                "NormalizedSoftmaxLoss(classes, dim, temperature=0.05)(x, labels)",
                "SoftmaxLoss(temperature=0.05, normalize=True)(x, labels, centers)",
                "the centers are an argument here, such as the weight of a linear layer",
            ),
            Row("VICReg", "VICRegLoss()(x, ref_emb=y)", "VICRegLoss()(x, y)", "the same formula and weights"),
        ),
    ),
    "solo-learn": Library(
        "solo-learn",
        "1.0.2",
        solo_learn,
        (
            Row(
                "SimCLR",
                "simclr_loss_func(x, y, temperature=0.1)",
                "NTXentLoss(0.1)(x, y)",
                "on GitHub the call is `simclr_loss_func(cat([x, y]), indexes=arange(N).repeat(2), temperature=0.1)`, with "
                "the same value; exponentials are taken there without subtracting a maximum, which overflows in fp32 below "
                "τ = 0.0113",
            ),
            Row(
                "MoCo",
                "moco_loss_func(normalize(x), normalize(y), queue.T, temperature=0.1)",
                "InfoNCELoss(0.1)(x, y, queue)",
                "`mocov2plus_loss_func` on GitHub; rows are normalized by the method there, by the loss here",
            ),
            Row(
                "BYOL",
                "byol_loss_func(x, y)",
                "2 + 2 * NegativeCosineLoss()(x, y)",
                "2 − 2 cos there, −cos here",
            ),
            Row("SimSiam", "simsiam_loss_func(x, y)", "NegativeCosineLoss()(x, y)", "the same formula"),
            Row(
                "Barlow Twins",
                "barlow_loss_func(x.float(), y.float(), lamb=5e-3, scale_loss=0.025)",
                "0.025 * BarlowTwinsLoss(5e-3)(x, y)",
                "scaled by 0.025 there; the default λ here is the paper's 0.0051",
            ),
            Row(
                "VICReg",
                "vicreg_loss_func(x, y)",
                "VICRegLoss(variance=50)(x, y)",
                "the variance terms of both views are added there, and halved in the authors' code and here: with the default "
                "weights of 25, the loss there weighs the variance by 50",
            ),
            Row(
                "NNCLR",
                "nnclr_loss_func(x, y, temperature=0.1)",
                "InfoNCELoss(0.1)(x, y)",
                "x are the neighbors, y the predictions",
            ),
        ),
    ),
    "open-clip": Library(
        "open_clip",
        "3.3.0",
        open_clip,
        (
            Row(
                "CLIP, drop-in",
                "ClipLoss()(normalize(x), normalize(y), scale)",
                "ClipLoss()(normalize(x), normalize(y), scale)",
                "`from coulomb.integrations.open_clip import ClipLoss`",
            ),
            Row(
                "CLIP",
                "ClipLoss()(normalize(x), normalize(y), scale)",
                "InfoNCELoss(symmetric=True)(x, y, scale=scale)",
                "rows are normalized here; `ids` leave out equal pictures and captions",
            ),
            Row(
                "SigLIP, drop-in",
                "SigLipLoss()(normalize(x), normalize(y), scale, bias)",
                "SigLipLoss()(normalize(x), normalize(y), scale, bias)",
                "`from coulomb.integrations.open_clip import SigLipLoss`",
            ),
            Row(
                "SigLIP",
                "SigLipLoss()(normalize(x), normalize(y), scale, bias)",
                "SigmoidLoss(learnable=False)(x, y, scale=scale, bias=bias)",
                "or `SigmoidLoss()`, which learns its own scale and bias",
            ),
        ),
    ),
}


def with_gradients(value: Tensor, names: Names) -> tuple[Tensor, Tensor]:
    """Returns a value and its gradients for x and y, one after the other (0 where there is none)."""
    leaves = [names["x"], names["y"]]
    grads = torch.autograd.grad(value, leaves, allow_unused=True)
    parts = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, grads, strict=True)]
    return value.detach().double(), torch.cat(parts)


def evaluated(call: str, names: Names) -> tuple[Tensor, Tensor]:
    """Returns value and gradients of a call of this module's tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return with_gradients(eval(call, dict(names)), names)


def here(row: Row) -> tuple[Tensor, Tensor]:
    """Returns value and gradients of the call here."""
    names = sample()
    return evaluated(row.here, names | ours(names))


def there(library: Library, row: Row) -> tuple[Tensor, Tensor]:
    """Returns value and gradients of the call there; raises `UnavailableError` where the library is not installed."""
    names = sample()
    return evaluated(row.there, names | library.load(names))


def difference(theirs: tuple[Tensor, Tensor], mine: tuple[Tensor, Tensor]) -> str:
    """Returns how the call here differs in value and gradient, in words."""
    (value, grad), (own, own_grad) = theirs, mine
    apart = float((own - value).abs() / value.abs())
    bent = float((own_grad - grad).abs().max() / grad.abs().max())
    if max(apart, bent) <= EQUAL:
        return "equal"
    if apart <= EQUAL:
        return f"value equal, gradient by {bent:.0%}"
    if apart < 1e-3:
        return f"by {apart:.0e}"
    return f"{float(value):.3f} there, {float(own):.3f} here"


def table(library: Library, differences: Mapping[str, str]) -> str:
    """Returns the table of a page in Markdown."""
    lines = [
        f"| | {library.title} {library.version} | coulomb | difference | why, and what else to know |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | `{row.there}` | `{row.here}` | {differences[row.name]} | {row.why} |" for row in library.rows
    ]
    return "\n".join(lines)


def translate(libraries: list[str], say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Executes both calls of all rows; returns ``{"libraries": {name: {row: difference or reason}}}``."""
    if unknown := sorted(set(libraries) - set(LIBRARIES)):
        raise InputError(f"library={', '.join(unknown)}: unknown; there are {', '.join(LIBRARIES)}")
    out: dict[str, dict[str, str]] = {}
    for name in libraries or list(LIBRARIES):
        library, found = LIBRARIES[name], {}
        for row in library.rows:
            say(f"{library.title}: {row.name}")
            try:
                found[row.name] = difference(there(library, row), here(row))
            except UnavailableError as reason:
                found[row.name] = str(reason)
        out[name] = found
    return {"libraries": out}


def render(result: dict[str, Any]) -> str:
    """Returns the tables for the terminal and the pages."""
    return "\n\n".join(table(LIBRARIES[name], found) for name, found in result["libraries"].items())


def main(
    library: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    as_json: Json = False,
) -> None:
    """Compare calls of other libraries with the calls here: the tables of the pages "From …" of the guide."""
    with progress(quiet=as_json) as doing:
        result = translate(library or [], doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--library lightly")
