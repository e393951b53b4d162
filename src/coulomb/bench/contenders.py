"""Ours and plain PyTorch: eager and compiled. Each makes a step: inputs → (loss, gradients)."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from coulomb import losses
from coulomb.bench import dense, dense_small
from coulomb.bench.cases import Case
from coulomb.bench.inputs import Inputs
from coulomb.bench.memory import dense_bytes

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
    """The function of `coulomb.bench.dense` or `dense_small`, its options filled in."""
    found = getattr(dense, case.dense, None) or getattr(dense_small, case.dense)
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


CONTENDERS = {
    "coulomb": Contender("coulomb", ours),
    "dense": Contender("dense PyTorch", dense_eager, needs=dense_bytes),
    "compiled": Contender("dense, torch.compile", dense_compiled, needs=dense_bytes, fresh=False),
}
