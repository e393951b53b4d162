"""What a training would need, before it is begun: measured on a few steps with made-up images."""

import copy
import time
from typing import Any

import torch

from coulomb.methods.making import SHARED, make_method
from coulomb.models import build_encoder, wrap_encoder
from coulomb.randomness import generator
from coulomb.runs.objects import Objects
from coulomb.runs.plan import Plan

LEAST, MOST, SECONDS = 3, 30, 5.0  # steps, and the time after which there are enough


def estimate(plan: Plan, objects: Objects | None = None) -> dict[str, Any]:
    """Time and memory that the run of ``plan`` takes on this machine.

    Real steps (views, forward, backward) of at most 64 images are timed for about five seconds, 3 to 30 of them, the first not
    counted; the shortest is scaled to the batch, the activations' memory too. Numbers are for this
    machine's CPU; an estimate, not a promise.

    Returns:
        ``seconds_per_step``, ``training_seconds``, ``parameters``, ``activation_bytes`` (of a batch), ``model_bytes``
        (weights, gradients and optimiser state), ``note``.
    """
    config, facts, objects = plan.config, plan.prepared.facts, objects or Objects()
    batch = min(config.batch_size, 64)
    size, channels = facts.image_size, facts.channels
    views = objects.views_of(config, size, channels)
    if objects.encoder is None:
        width: dict[str, Any] = {} if config.encoder_width is None else {"width": config.encoder_width}
        encoder = build_encoder(str(config.encoder), channels=channels, image_size=size, **width)
    else:
        encoder = wrap_encoder(copy.deepcopy(objects.encoder), channels=channels, image_size=size)
    counts = plan.prepared.class_counts
    classes = max(1, len(counts or []))
    method = make_method(
        config.method,
        objects.method_of(config),
        encoder,
        shared={name: getattr(config, name) for name in SHARED},
        facts={
            "num_images": len(plan.learned),
            "class_counts": None if counts is None else torch.tensor(counts).clamp(min=1),
            "num_classes": None if counts is None else classes,
        },
        own=config.method_options,
    )
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as in training
    draw = generator(config.seed, "estimate")
    canvas = torch.randint(0, 256, (batch, channels, size, size), dtype=torch.uint8, generator=draw)
    labels = torch.arange(batch) % classes
    kept = _saved_bytes()
    times: list[float] = []
    while len(times) < LEAST or (len(times) < MOST and sum(times) < SECONDS):
        begin = time.perf_counter()
        seen = views(canvas, draw, n=config.n_views)
        seen = [view.contiguous(memory_format=torch.channels_last) for view in seen]
        with kept, torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            loss = method(seen, labels, torch.arange(batch))
        loss.backward()
        if (remember := getattr(method, "after_batch", None)) is not None:
            remember()  # a queue has its price only when it is filled
        times.append(time.perf_counter() - begin)
    scale = config.batch_size / batch
    parameters = sum(p.numel() for p in method.parameters())
    seconds = min(times[1:]) * scale
    return {
        "seconds_per_step": seconds,
        "training_seconds": seconds * plan.steps,
        "parameters": parameters,
        "activation_bytes": int(kept.bytes / len(times) * scale),
        "model_bytes": parameters * 4 * (4 if config.optimizer == "adamw" else 3),
        "note": f"{len(times) - 1} steps of {batch} images timed on this machine's CPU, "
        f"scaled to batches of {config.batch_size}",
    }


class _saved_bytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts what autograd keeps for the backward pass."""

    def __init__(self) -> None:
        self.bytes = 0

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            self.bytes += tensor.numel() * tensor.element_size()
            return tensor

        super().__init__(keep, lambda tensor: tensor)
