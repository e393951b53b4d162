"""InfoNCE with a guide and distillation, beside InfoNCE without a teacher and beside plain PyTorch that stores the matrices.

    python -m benchmarks.teachers

Forward and backward of the mean loss, medians of interleaved rounds, in milliseconds and relative to InfoNCE alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.command import Repeats, command
from benchmarks.timing import interleaved, medians
from coulomb.ground.machine import processor
from coulomb.losses import DistillationLoss, InfoNCELoss

TAU, TAU_T = 0.1, 0.05


def dense_guided(query: Tensor, key: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """InfoNCE with a guide on the stored matrices."""
    scores, g = normalize(query) @ normalize(key).T / TAU, normalize(a) @ normalize(b).T
    left_out = (g >= g.diagonal()[:, None]).fill_diagonal_(False)
    return cross_entropy(scores.masked_fill(left_out, -torch.inf), torch.arange(len(query)))


def dense_distilled(query: Tensor, key: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Cross-entropy between the softmaxes of the stored matrices."""
    targets = (normalize(a) @ normalize(b).T / TAU_T).softmax(1)
    return cross_entropy(normalize(query) @ normalize(key).T / TAU, targets)


def losses(n: int, dim: int) -> dict[str, Callable[[], Tensor]]:
    """Returns functions that compute the losses of ``n`` pairs, whose guide or teacher has as many dimensions."""
    query, key = (torch.randn(n, dim, requires_grad=True) for _ in range(2))
    a, noise = torch.randn(n, dim), torch.randn(n, dim)
    b = a + noise  # the teacher finds the positive of nearly every query
    alone, both, distilled = InfoNCELoss(TAU), InfoNCELoss(TAU, symmetric=True), DistillationLoss(TAU, TAU_T)
    return {
        "InfoNCE": lambda: alone(query, key),
        "guide": lambda: alone(query, key, guide=(a, b)),
        "guide, dense": lambda: dense_guided(query, key, a, b),
        "symmetric": lambda: both(query, key),
        "symmetric guide": lambda: both(query, key, guide=(a, b)),
        "distillation": lambda: distilled(query, a, key, b),
        "distillation, dense": lambda: dense_distilled(query, key, a, b),
    }


def _step(loss: Callable[[], Tensor]) -> None:
    loss().backward()


def main(
    n: Annotated[int, typer.Option(help="number of pairs")] = 4096,
    dim: Annotated[int, typer.Option(help="width of all embeddings")] = 256,
    repeats: Repeats = 5,
) -> None:
    """Measure losses with a guide or a teacher beside InfoNCE alone and beside plain PyTorch: milliseconds."""
    torch.manual_seed(0)
    print(f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}; {n} x {dim}")
    runs = {name: partial(_step, loss) for name, loss in losses(n, dim).items()}
    seconds = medians(interleaved(runs, repeats))
    for name, each in seconds.items():
        print(f"{name:22} {1e3 * each:9.1f} ms  {each / seconds['InfoNCE']:.2f}")


if __name__ == "__main__":
    command(main, "", "--n 2048 --repeats 9")
