"""The loop of a fine-tuning: a copy of the encoder with a new linear layer, both trained by labels."""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.errors import NonFiniteError
from coulomb.evaluation.features import Batches, Plain
from coulomb.evaluation.frozen import frozen
from coulomb.evaluation.gentle import GentleView
from coulomb.randomness import derive_seed, generator, numpy_generator

BATCH = 128
WEIGHT_DECAY = 1e-4
WARMUP = 0.1  # of the updates
CLIP = 1.0  # norm of the gradient


class Tuned(nn.Module):
    """A copy of an encoder and a linear layer on its features, which starts at zero."""

    def __init__(self, encoder: nn.Module, feature_dim: int, classes: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).requires_grad_(True).train()
        self.linear = nn.utils.skip_init(nn.Linear, feature_dim, classes)  # the global generator is not moved
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, C] of images [B, C, S, S] in [0, 1]."""
        logits: Tensor = self.linear(self.encoder(images))
        return logits


def tune(
    net: Tuned,
    images: Batches,
    positions: np.ndarray,
    targets: np.ndarray,
    view: GentleView,
    *,
    lr: float,
    updates: int,
    seed: int,
    device: torch.device,
    bf16: bool = False,
    workers: int = 0,
) -> None:
    """Train ``net`` in place: AdamW on cross-entropy, batches of 128 (all of them, if fewer), warm-up, then cosine.

    Args:
        images: where the pictures are. positions: [n] of the labelled images; targets: their class numbers [n], 0…C−1.
        view: what the network sees of them. lr: peak learning rate. updates: how many. seed: of order, views and dropout.
        device: where to train. bf16: the network's arithmetic. workers: processes that decode.

    Raises:
        NonFiniteError: the loss became NaN or infinite.
    """
    target_of = torch.full((int(positions.max()) + 1,), -1)
    target_of[torch.from_numpy(positions)] = torch.from_numpy(targets)
    batch = min(BATCH, len(positions))
    net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}], lr=lr
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, updates))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(seed, "fine-tune dropout"))
        read = images.batches(stream(positions, updates * batch, seed), batch, workers)
        for update, found in enumerate(read):
            if len(found["index"]) < 2:
                continue  # BatchNorm needs two; unreadable images are counted where they are read
            seen = view(found["image"], generator(seed, "fine-tune views", update), found["aspect"])
            seen = seen.to(device, memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                logits = net(seen)
            loss = functional.cross_entropy(logits.float(), target_of[found["index"]].to(device))
            if not bool(torch.isfinite(loss)):
                raise NonFiniteError(f"fine-tuning: the loss became {loss.item()} at update {update + 1}, lr {lr:g}")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            schedule.step()


def predict(
    net: Tuned, images: Batches, positions: np.ndarray, plain: Plain, device: torch.device, workers: int = 0
) -> tuple[Tensor, np.ndarray]:
    """Predicted class numbers [n] of the plain views, and the positions [n] that could be read."""
    guesses, kept = [torch.empty(0, dtype=torch.long)], [np.empty(0, dtype=np.int64)]
    with frozen(net):
        for found in images.batches(positions, 512, workers):
            if len(found["index"]):
                logits = net(plain(found["image"].to(device), found["aspect"].to(device)))
                guesses.append(logits.argmax(1).cpu())
                kept.append(found["index"].numpy())
    return torch.cat(guesses), np.concatenate(kept)


def stream(positions: np.ndarray, count: int, seed: int) -> np.ndarray:
    """``count`` positions: one seeded permutation of all after the other."""
    epochs = math.ceil(count / len(positions))
    orders = [numpy_generator(seed, "fine-tune order", epoch).permutation(positions) for epoch in range(epochs)]
    return np.concatenate(orders)[:count]


def rate(step: int, updates: int) -> float:
    """Share of the peak learning rate: a linear warm-up over the first tenth, then half a cosine to 0."""
    warmup = max(1, round(WARMUP * updates))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, updates - warmup))))
