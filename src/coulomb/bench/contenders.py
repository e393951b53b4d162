"""The implementations that are compared: coulomb, plain PyTorch, and other libraries where they are installed."""

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb import losses
from coulomb.bench import dense
from coulomb.bench.cases import Case, Inputs, make_inputs

SHARE = 0.75  # of the free memory that a contender may be expected to need


def free_bytes(device: str = "cpu") -> int:
    """Memory that new work can have, of the machine or of a GPU."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def dense_bytes(case: Case, itemsize: int | None = None) -> int:
    """About what the dense implementation needs for one step."""
    itemsize = itemsize or max(4, case.torch_dtype.itemsize)
    return dense.COPIES.get(case.dense, 6) * case.n * case.m * itemsize


def too_large(needed: int, device: str = "cpu") -> str | None:
    """Why ``needed`` bytes do not fit; None if they do."""
    free = free_bytes(device)
    if needed <= SHARE * free:
        return None
    return f"does not fit: needs about {_gb(needed)}, {_gb(free)} are free"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.{0 if count >= 1e10 else 1}f} GB"


Step = Callable[[Inputs], tuple[Tensor, ...]]


class UnavailableError(Exception):
    """A contender cannot take part, and the message says why."""


@dataclass(frozen=True)
class Contender:
    """Someone who computes a case.

    Args:
        label: for readers.
        make: case → step; raises `UnavailableError`, or whatever the other project raises.
        applies: has it this loss at all?
        needs: bytes that a step takes, about.
        fresh: is the peak of a fresh process's first step its own (not that of a compiler)?
    """

    label: str
    make: Callable[[Case], Step]
    applies: Callable[[Case], bool] = lambda case: True
    needs: Callable[[Case], int] = lambda case: 0
    fresh: bool = True


def differentiated(loss: Callable[..., Tensor]) -> Step:
    """The step of a function: its value and the gradients that the inputs ask for."""

    def step(inputs: Inputs) -> tuple[Tensor, ...]:
        arguments = list(inputs.arguments)
        for place in inputs.learning:
            arguments[place] = arguments[place].detach().requires_grad_()
        value = loss(*arguments)
        grads = torch.autograd.grad(value, [arguments[place] for place in inputs.learning])
        return value.detach(), *grads

    return step


def run_of(step: Step, inputs: Inputs) -> Callable[[], object]:
    """The step on these inputs, for `timing.interleaved`."""
    return lambda: step(inputs)


def ours(case: Case) -> Step:
    """The loss of `coulomb.losses`."""
    made = getattr(losses, case.loss, None)
    if made is None:
        raise UnavailableError(f"coulomb.losses has no {case.loss}")
    module = made(**case.options)
    owned = [name for name, _ in module.named_parameters()]
    if not owned:
        return differentiated(module)
    (name,) = owned  # the last argument stands for it, so that everybody has the same
    delattr(module, name)

    def loss(*arguments: Tensor) -> Tensor:
        setattr(module, name, arguments[-1])
        value: Tensor = module(*arguments[:-1])
        return value

    return differentiated(loss)


def dense_loss(case: Case) -> Callable[..., Tensor]:
    """The function of `coulomb.bench.dense`, its options filled in."""
    found = getattr(dense, case.dense)
    return partial(found, **case.options)


def dense_eager(case: Case) -> Step:
    """Plain PyTorch."""
    return differentiated(dense_loss(case))


def dense_compiled(case: Case) -> Step:
    """The same by torch.compile; it is compiled at the first call, and every error of that is a reason to leave it out."""
    torch._dynamo.reset()
    compiled = torch.compile(dense_loss(case), dynamic=False)
    step = differentiated(compiled)

    def quiet(inputs: Inputs) -> tuple[Tensor, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return step(inputs)

    return quiet


PLAIN = {
    "coulomb": Contender("coulomb", ours),
    "dense": Contender("dense PyTorch", dense_eager, needs=dense_bytes),
    "compiled": Contender("dense, torch.compile", dense_compiled, needs=dense_bytes, fresh=False),
}


STRIP = 1024  # sentence-transformers' mini-batch of rows; their default of 32 is slower


def _module(name: str, package: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            lacking = (error.name or "").split(".")[0]
            if lacking and lacking != name.split(".", maxsplit=1)[0]:
                raise UnavailableError(f"{package} is installed but needs {lacking}, which is not") from error
            raise UnavailableError(f"not installed (pip install {package})") from error


def linear_cross_entropy(case: Case) -> Step:
    """torch's chunked cross-entropy of a linear layer: the positives are the layer's weight."""
    function = getattr(torch.nn.functional, "linear_cross_entropy", None)
    if function is None:
        raise UnavailableError(f"needs torch ≥ 2.13, this is {torch.__version__}")
    scale = 1 / case.options["temperature"]

    def loss(query: Tensor, positive: Tensor) -> Tensor:
        query, positive = normalize(query), normalize(positive)
        target = torch.arange(len(query), device=query.device)
        chunked = torch.nn.LinearCrossEntropyOptions()
        value: Tensor = function(query * scale, positive, target, options=chunked)
        if case.options.get("symmetric"):
            value = (value + function(positive * scale, query, target, options=chunked)) / 2
        return value

    return differentiated(loss)


def metric_learning(case: Case) -> Step:
    """pytorch-metric-learning: rows with labels."""
    theirs = _module("pytorch_metric_learning.losses", "pytorch-metric-learning")
    made = getattr(theirs, case.loss)(temperature=case.options["temperature"])

    def views(view0: Tensor, view1: Tensor) -> Tensor:
        rows = torch.cat([view0, view1])
        value: Tensor = made(rows, torch.arange(len(view0), device=rows.device).repeat(2))
        return value

    def labelled(features: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = made(torch.cat(features.unbind(1)), labels.repeat(features.shape[1]))
        return value

    return differentiated(labelled if case.inputs == "labelled_views" else views)


def metric_learning_bytes(case: Case) -> int:
    """Their NT-Xent compares each positive pair with each negative pair: N³ elements."""
    if case.loss == "NTXentLoss":
        return 3 * case.n * case.n * case.m * case.torch_dtype.itemsize
    return 2 * dense_bytes(case)


def lightly(case: Case) -> Step:
    """lightly's NT-Xent."""
    theirs = _module("lightly.loss.ntx_ent_loss", "lightly")
    return differentiated(theirs.NTXentLoss(temperature=case.options["temperature"]))


def sentence_transformers(case: Case) -> Step:
    """The loss stage of sentence-transformers' cached loss, on embeddings that are already there."""
    name = "sentence_transformers.sentence_transformer.losses.cached_multiple_negatives_ranking"
    found = _module(name, "sentence-transformers").CachedMultipleNegativesRankingLoss
    both: dict[str, Any] = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    made = found(
        torch.nn.Sequential(torch.nn.Identity()),
        scale=1 / case.options["temperature"],
        mini_batch_size=STRIP,
        **(both if case.options.get("symmetric") else {}),
    )

    def step(inputs: Inputs) -> tuple[Tensor, ...]:
        query, positive = (a.detach().requires_grad_() for a in inputs.arguments)
        value = made.calculate_loss([[query], [positive]], with_backward=True)
        assert query.grad is not None and positive.grad is not None
        return value, query.grad, positive.grad

    return step


def _has(*losses: str, inputs: tuple[str, ...], half: bool = False) -> Callable[[Case], bool]:
    return lambda case: case.loss in losses and case.inputs in inputs and (half or case.dtype != "bfloat16")


_in_batch = _has("InfoNCELoss", inputs=("pairs",), half=True)
PEERS = {
    "linear_cross_entropy": Contender("F.linear_cross_entropy", linear_cross_entropy, _in_batch),
    "pytorch-metric-learning": Contender(
        "pytorch-metric-learning",
        metric_learning,
        _has("NTXentLoss", "SupConLoss", inputs=("views", "labelled_views")),
        metric_learning_bytes,
    ),
    "lightly": Contender("lightly", lightly, _has("NTXentLoss", inputs=("views",)), dense_bytes),
    "sentence-transformers": Contender(
        "sentence-transformers, cached", sentence_transformers, _in_batch, lambda case: 6 * STRIP * case.m * 4
    ),
}
CONTENDERS = PLAIN | PEERS


STATUS = Path("/proc/self/status")


def peak_of_fresh_process(contender: str, case: Case) -> float | None:
    """MB that one step takes at its peak above its inputs, in a process of its own; None where that cannot be told."""
    if not STATUS.exists():
        return None
    told = json.dumps(dataclasses.asdict(case) | {"targets": ()})
    code = "import sys; from coulomb.bench.contenders import print_peak; print_peak(*sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, contender, told], capture_output=True, text=True, check=False
    )
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def print_peak(contender: str, told: str) -> None:
    """For that process: the peak of its memory in its first step, in MB above what it held with its inputs made."""
    case = Case(**json.loads(told))
    step = CONTENDERS[contender].make(case)
    inputs = make_inputs(case)
    with contextlib.suppress(OSError):  # forget earlier peaks
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _held("VmRSS")
    step(inputs)
    sys.stdout.write(f"{max(0.0, _held('VmHWM') - before)}")


def _held(field: str) -> float:
    # Not ru_maxrss: a child process starts with its parent's.
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
