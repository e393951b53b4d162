"""The compared implementations: coulomb, plain PyTorch, and other libraries if they are installed."""

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

from benchmarks import dense
from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.timing import STATUS, resident_mib
from coulomb import losses

MAX_SHARE = 0.75  # of the free memory that a contender may need


def free_bytes(device: str = "cpu") -> int:
    """Returns the free memory of the machine or of a GPU."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def dense_bytes(case: Case, itemsize: int | None = None) -> int:
    """Returns about how much memory a step of the dense implementation needs."""
    itemsize = itemsize or max(4, case.torch_dtype.itemsize)
    return dense.COPIES.get(case.dense, 6) * case.n * case.m * itemsize


def too_large(needed: int, device: str = "cpu") -> str | None:
    """Returns the reason if ``needed`` bytes do not fit into memory, else None."""
    free = free_bytes(device)
    if needed <= MAX_SHARE * free:
        return None
    return f"does not fit: needs about {_gb(needed)}, {_gb(free)} are free"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.{0 if count >= 1e10 else 1}f} GB"


Step = Callable[[Inputs], tuple[Tensor, ...]]


class UnavailableError(Exception):
    """A contender cannot compute a case, for the reason in the message."""


@dataclass(frozen=True)
class Contender:
    """An implementation of the cases.

    Args:
        label: its name for readers.
        make: case → step; raises `UnavailableError` or an error of the other library.
        applies: case → whether it has this loss.
        needs: case → approximate bytes of a step.
        fresh: whether the peak memory of a fresh process is the memory of the step, and not of a compiler.
    """

    label: str
    make: Callable[[Case], Step]
    applies: Callable[[Case], bool] = lambda case: True
    needs: Callable[[Case], int] = lambda case: 0
    fresh: bool = True


def differentiated(loss: Callable[..., Tensor]) -> Step:
    """Returns a step that computes a function and its gradients."""

    def step(inputs: Inputs) -> tuple[Tensor, ...]:
        arguments = list(inputs.arguments)
        for place in inputs.learning:
            arguments[place] = arguments[place].detach().requires_grad_()
        value = loss(*arguments)
        grads = torch.autograd.grad(value, [arguments[place] for place in inputs.learning])
        return value.detach(), *grads

    return step


def bind(step: Step, inputs: Inputs) -> Callable[[], object]:
    """Returns the step on these inputs as a function without arguments."""
    return lambda: step(inputs)


# How a loss is called with the inputs of a case, where not all are passed by position
CALLS: dict[str, Callable[..., Tensor]] = {
    "pairs with ids": lambda loss, query, positive, ids: loss(query, positive, ids=ids),
    "pairs with a guide": lambda loss, query, positive, *guide: loss(query, positive, guide=guide),
}


def ours(case: Case) -> Step:
    """Returns a step of the loss in `coulomb.losses`."""
    loss_class = getattr(losses, case.loss, None)
    if loss_class is None:
        raise UnavailableError(f"coulomb.losses has no {case.loss}")
    module = loss_class(**case.options)
    parameters = [name for name, _ in module.named_parameters()]
    if not parameters:
        return differentiated(partial(CALLS[case.inputs], module) if case.inputs in CALLS else module)
    (name,) = parameters  # passed as the last argument, as for the other contenders
    delattr(module, name)

    def loss(*arguments: Tensor) -> Tensor:
        setattr(module, name, arguments[-1])
        value: Tensor = module(*arguments[:-1])
        return value

    return differentiated(loss)


def dense_loss(case: Case) -> Callable[..., Tensor]:
    """Returns the function of `benchmarks.dense` with its options."""
    return partial(getattr(dense, case.dense), **case.options)


def dense_eager(case: Case) -> Step:
    """Returns a step of plain PyTorch."""
    return differentiated(dense_loss(case))


def dense_compiled(case: Case) -> Step:
    """Returns the same step under torch.compile, which compiles at the first call."""
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


STRIP = 1024  # mini-batch of sentence-transformers; the default of 32 is slower


def loaded(name: str, package: str) -> ModuleType:
    """Returns a module of another library; raises `UnavailableError` if it cannot be imported."""
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
    """Returns a step of torch's chunked cross-entropy of a linear layer, with the positives as its weight."""
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
    """Returns a step of pytorch-metric-learning, on rows with labels."""
    theirs = loaded("pytorch_metric_learning.losses", "pytorch-metric-learning")
    made = getattr(theirs, case.loss)(temperature=case.options["temperature"])

    def views(view0: Tensor, view1: Tensor) -> Tensor:
        rows = torch.cat([view0, view1])
        value: Tensor = made(rows, torch.arange(len(view0), device=rows.device).repeat(2))
        return value

    def labeled(features: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = made(torch.cat(features.unbind(1)), labels.repeat(features.shape[1]))
        return value

    return differentiated(labeled if case.inputs == "labeled_views" else views)


def metric_learning_bytes(case: Case) -> int:
    """Returns the memory of pytorch-metric-learning: its NT-Xent compares all positive and negative pairs, N³ elements."""
    if case.loss == "NTXentLoss":
        return 3 * case.n * case.n * case.m * case.torch_dtype.itemsize
    return 2 * dense_bytes(case)


def lightly(case: Case) -> Step:
    """Returns a step of lightly's NT-Xent."""
    theirs = loaded("lightly.loss.ntx_ent_loss", "lightly")
    return differentiated(theirs.NTXentLoss(temperature=case.options["temperature"]))


CACHED = "sentence_transformers.sentence_transformer.losses.cached_multiple_negatives_ranking"


def sentence_transformers(case: Case, module: str = CACHED) -> Step:
    """Returns a step of the loss stage of sentence-transformers' cached loss, on given embeddings, or of the drop-in."""
    found = loaded(module, "sentence-transformers").CachedMultipleNegativesRankingLoss
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


def open_clip(case: Case, module: str = "open_clip.loss") -> Step:
    """Returns a step of open_clip's loss for images and texts, or of the drop-in, on embeddings of any length."""
    theirs, options = loaded(module, "open_clip_torch"), case.options
    sigmoid = case.loss == "SigmoidLoss"
    made = theirs.SigLipLoss() if sigmoid else theirs.ClipLoss()
    further = [options["scale"], options["bias"]] if sigmoid else [1 / options["temperature"]]
    return differentiated(lambda query, positive: made(normalize(query), normalize(positive), *further))


def _both_directions(case: Case) -> bool:
    return case.inputs == "pairs" and (case.loss == "SigmoidLoss" or bool(case.options.get("symmetric")))


def _has(*losses: str, inputs: tuple[str, ...], half: bool = False) -> Callable[[Case], bool]:
    return lambda case: case.loss in losses and case.inputs in inputs and (half or case.dtype != "bfloat16")


_in_batch = _has("InfoNCELoss", inputs=("pairs",), half=True)
PEERS = {
    "linear_cross_entropy": Contender("F.linear_cross_entropy", linear_cross_entropy, _in_batch),
    "pytorch-metric-learning": Contender(
        "pytorch-metric-learning",
        metric_learning,
        _has("NTXentLoss", "SupConLoss", inputs=("views", "labeled_views")),
        metric_learning_bytes,
    ),
    "lightly": Contender("lightly", lightly, _has("NTXentLoss", inputs=("views",)), dense_bytes),
    "sentence-transformers": Contender(
        "sentence-transformers, cached", sentence_transformers, _in_batch, lambda case: 6 * STRIP * case.m * 4
    ),
    "open_clip": Contender("open_clip", open_clip, _both_directions, dense_bytes),
}
DROP_INS = {
    "drop-in for open_clip": Contender(
        "coulomb's drop-in for open_clip", partial(open_clip, module="coulomb.integrations.open_clip"), _both_directions
    ),
    "drop-in for sentence-transformers": Contender(
        "coulomb's drop-in for sentence-transformers",
        partial(sentence_transformers, module="coulomb.integrations.sentence_transformers"),
        _in_batch,
    ),
}
CONTENDERS = PLAIN | PEERS | DROP_INS


def peak_of_fresh_process(contender: str, case: Case) -> float | None:
    """Returns the peak memory in MB of one step above its inputs, in a fresh process; None if it cannot be measured."""
    if not STATUS.exists():
        return None
    spec = json.dumps(dataclasses.asdict(case) | {"targets": ()})
    code = "import sys; from benchmarks.contenders import print_peak; print_peak(*sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, contender, spec], capture_output=True, text=True, check=False
    )
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def print_peak(contender: str, spec: str) -> None:
    """Prints the peak memory of the first step in MB above the inputs; runs in the fresh process."""
    case = Case(**json.loads(spec))
    step = CONTENDERS[contender].make(case)
    inputs = make_inputs(case)
    with contextlib.suppress(OSError):  # resets the recorded peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_mib("VmRSS")
    step(inputs)
    sys.stdout.write(f"{max(0.0, resident_mib('VmHWM') - before)}")
