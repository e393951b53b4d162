"""Other projects' losses, where they are installed; nothing here is a dependency."""

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.bench.cases import Case
from coulomb.bench.contenders import CONTENDERS as PLAIN
from coulomb.bench.contenders import Contender, Step, UnavailableError, differentiated
from coulomb.bench.inputs import Inputs
from coulomb.bench.memory import dense_bytes

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
