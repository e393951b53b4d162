"""A penalty that keeps the features of the encoder close to the features of the network it started from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from coulomb.models import Encoder

Seen = list[tuple[Tensor, Tensor]]


class StayClose:
    """W · mean(1 − cos(f(view), f₀(view))) over the views of a batch, f₀ the starting network.

    The views are those that the method encodes with gradient (with MoCo, the queries); their features are recorded, so that
    the encoder runs once. f₀ runs in eval mode without gradient. It is not a submodule of anything: it is neither trained nor
    part of a checkpoint, and a resumed run passes it again.

    Args:
        start: f₀, images [B, C, H, W] → features [B, F].
        weight: W.
    """

    def __init__(self, start: Encoder, weight: float):
        self.start = start.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.weight = weight

    def distance(self, seen: Seen) -> Tensor | None:
        """Returns mean(1 − cos(f, f₀)) in float32, without W; None if no view was encoded with gradient."""
        if not seen:
            return None
        views = torch.cat([views for views, _ in seen])
        features = torch.cat([features for _, features in seen])
        with torch.no_grad():
            start = self.start(views)
        with torch.autocast(views.device.type, enabled=False):
            return (1 - cosine_similarity(features.float(), start.float(), dim=1)).mean()

    def share(self, device: torch.device) -> None:
        """Moves f₀ to ``device``, and with several processes gives all of them the first one's."""
        self.start.to(device)
        if torch.distributed.is_initialized():
            for tensor in self.start.state_dict().values():
                torch.distributed.broadcast(tensor, 0)


@contextmanager
def recording(encoder: nn.Module) -> Iterator[Seen]:
    """Collects views and features of each call of ``encoder`` with gradient while the block runs."""
    seen: Seen = []

    def listen(encoder: nn.Module, inputs: tuple[Any, ...], features: Tensor) -> None:
        if features.requires_grad:
            seen.append((inputs[0], features))

    handle = encoder.register_forward_hook(listen)
    try:
        yield seen
    finally:
        handle.remove()
