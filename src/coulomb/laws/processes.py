"""W processes equal one: loss and parameter gradients, averaged as DistributedDataParallel does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding, no_samples
from coulomb.laws.members import GroupError, cannot_fork, in_processes
from coulomb.laws.subject import D, Subject, floating, normal, relative, seeded, value_of

SAMPLES = 12
WORLDS = (2, 3)


@dataclass(frozen=True)
class Step:
    """The value of a loss, and the gradient of the encoder and of the loss's own parameters."""

    value: float
    gradient: Tensor


def processes(subject: Subject) -> list[Finding]:
    """Returns one finding for each number of processes."""
    return [several(subject, world) for world in WORLDS]


def several(subject: Subject, world: int) -> Finding:
    """Compares ``world`` processes, each with an equal part of the batch, with one process that has all of it."""
    law = f"{world} processes"
    if not dist.is_available() or dist.is_initialized():
        return Finding(law, NOT_APPLICABLE, cause="torch.distributed is in use in this process, or missing")
    if (reason := cannot_fork()) is not None:
        return Finding(law, NOT_APPLICABLE, cause=reason)
    inputs = subject.draw(SAMPLES)
    if not subject.counts_samples(SAMPLES, inputs, subject.split):
        return no_samples(law)
    parts = [subject.part(SAMPLES, inputs, rank, world) for rank in range(world)]
    try:
        whole = step(subject, inputs)
        alone = [step(subject, part) for part in parts]
    except Exception as error:
        return Finding(
            law, NOT_APPLICABLE, cause=f"a part of the batch cannot be evaluated alone ({type(error).__name__})"
        )
    if any(not math.isfinite(one.value) for one in (whole, *alone)):
        return Finding(law, NOT_APPLICABLE, cause="the loss of a part of the batch alone is NaN or infinite")
    try:
        together = in_processes(world, partial(member, subject, parts))
    except GroupError as error:
        if any(f": {kind.__name__}:" in str(error) for kind in (ValueError, NotImplementedError)):
            return Finding(law, NOT_APPLICABLE, cause=f"the loss refuses several processes, {error}")
        return Finding(law, FAILS, cause=f"fails in several processes, {error}", example=code(world))
    finding = judged(law, world, whole, alone, together, 1e-4 if whole.gradient.dtype == torch.float32 else 1e-8)
    if finding.outcome == FAILS and (pools := shared_pools(subject, inputs)):
        cause = f"every process was given all rows of {', '.join(pools)}; if they are part of the batch, use split="
        return Finding(law, NOT_APPLICABLE, finding.measure, finding.figure, finding.bound, cause)
    return finding


def shared_pools(subject: Subject, inputs: Sequence[Any]) -> list[str]:
    """Returns the arguments whose length grows with the batch and is no multiple of it: keys beside the samples."""
    if subject.split is not None:
        return []
    more, blocks = subject.draw(SAMPLES + 1), subject.sample_dims(SAMPLES, inputs)
    return [
        name
        for name, one, other, counts in zip(subject.names, inputs, more, blocks, strict=True)
        if isinstance(one, Tensor) and one.shape[:1] != other.shape[:1] and not any(counts)
    ]


def member(subject: Subject, parts: Sequence[Sequence[Any]], rank: int, world: int) -> Step:
    """Returns the step of one process."""
    return step(subject, parts[rank], **placed(subject, rank, world))


def placed(subject: Subject, rank: int, world: int) -> dict[str, int]:
    """Returns rank and world size for losses whose constructor needs them."""
    return {name: value for name, value in (("rank", rank), ("world_size", world)) if name in subject.options}


def step(subject: Subject, inputs: Sequence[Any], **options: Any) -> Step:
    """Evaluates the loss of rows that a small linear encoder maps, and the gradient of all parameters."""
    with seeded(0):
        loss = subject.made(subject.precise, **options)
    features = [one for one in inputs if floating(one) and one.ndim > 1]
    width = features[0].shape[-1] if features else D
    start = torch.eye(width, dtype=subject.precise) + normal(5)(width, width).to(subject.precise) / 4
    weight = nn.Parameter(start)
    mapped = [one @ weight if floating(one) and one.ndim > 1 and one.shape[-1] == width else one for one in inputs]
    with seeded(0):
        value = value_of(subject.call(loss, mapped))
    value = value.mean() if value.ndim else value
    parameters = [weight, *(p for p in (loss.parameters() if isinstance(loss, nn.Module) else ()) if p.requires_grad)]
    grads = torch.autograd.grad(value, parameters, allow_unused=True)
    flat = [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, grads, strict=True)]
    return Step(float(value.detach()), torch.cat(flat).detach())


def judged(law: str, world: int, whole: Step, alone: list[Step], together: list[Step], bound: float) -> Finding:
    """Returns the finding: equal to one process with all samples, only the own samples of each process, or neither."""
    mean = sum(one.value for one in together) / world
    gradient = torch.stack([one.gradient for one in together]).mean(0)
    size = max(abs(whole.value), 1e-3)
    value_error, gradient_error = abs(mean - whole.value) / size, relative(gradient, whole.gradient, 1e-6)
    error, measure = max(value_error, gradient_error), "relative error of loss and averaged gradient"
    if error <= bound:
        return Finding(law, HOLDS, measure, error, bound)
    local = torch.stack([one.gradient for one in alone]).mean(0)
    own = max(abs(a.value - b.value) / size for a, b in zip(together, alone, strict=True))
    if max(own, relative(gradient, local, 1e-6)) <= bound:
        return Finding(
            law,
            NOT_APPLICABLE,
            "relative difference to one process with all samples",
            error,
            cause="does not use other processes' samples: each process computes the loss of its own part of the batch",
        )
    if value_error <= bound:
        cause = gradient_cause(world, gradient, whole.gradient)
    else:
        cause = value_cause(world, mean, whole.value, together, alone, bound)
    values = ", ".join(f"{one.value:.6g}" for one in together)
    example = (
        f"{code(world)}\nloss of one process: {whole.value:.6g}; of the processes: {values}\n"
        f"norm of the gradient of one process: {float(whole.gradient.norm()):.6g}; averaged: {float(gradient.norm()):.6g}"
    )
    return Finding(law, FAILS, measure, error, bound, cause, example)


def gradient_cause(world: int, mine: Tensor, true: Tensor) -> str:
    """Returns the likely cause of a wrong gradient with the right value."""
    factor = float((mine * true).sum() / true.square().sum())
    if relative(mine, factor * true, 1e-6) <= 1e-4:
        if abs(factor * world - 1) <= 1e-3:
            return (
                f"the averaged gradient is 1/{world} of the whole batch's: every process computes the whole loss, and "
                f"gathered rows carry no gradient, so that the mean over processes divides it once more"
            )
        if abs(factor - world) <= 1e-2:
            return (
                f"the averaged gradient is {world} times the whole batch's: gathering sums the gradients of all processes, "
                f"and the loss is not divided by their number"
            )
        return f"the averaged gradient is {factor:.4g} times the whole batch's"
    return (
        "gathered rows carry no gradient: the part that reaches the encoder through other processes' losses is missing"
    )


def value_cause(world: int, mean: float, true: float, together: list[Step], alone: list[Step], bound: float) -> str:
    """Returns the likely cause of a wrong value."""
    ratio = mean / true if true else float("inf")
    for factor, words in ((world, f"{world} times"), (1 / world, f"1/{world} of")):
        if abs(ratio - factor) <= max(bound, 1e-4) * factor:
            return f"the loss is {words} that of one process: a sum over processes or a mean taken twice"
    if abs(together[0].value - alone[0].value) <= bound * max(abs(true), 1e-3):
        return "the first process uses only its own samples and others do not"
    if abs(ratio - 1) <= 1e-2 and len({round(one.value, 9) for one in together}) == 1:
        return "every process has the same loss, and it is not that of the whole batch: some pairs are lost or counted twice"
    return (
        "the loss is neither that of the whole batch nor of the own part: positives or labels of gathered rows are at other "
        "places than the code assumes (a missing offset of rank × batch), or some pairs are lost or counted twice"
    )


def code(world: int) -> str:
    """Returns how to reproduce the step."""
    return f"{SAMPLES} samples, {SAMPLES // world} per process; the encoder is one linear layer; gloo"
