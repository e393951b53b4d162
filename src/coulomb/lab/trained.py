"""A finished run's whole method again, and its embeddings."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.metrics.features import frozen
from coulomb.models import load_encoder
from coulomb.randomness import generator
from coulomb.runs.config import load_config
from coulomb.runs.folder import RunFolder
from coulomb.runs.objects import Objects
from coulomb.runs.plan import learned_from
from coulomb.runs.prepare import Prepared, position_tensor
from coulomb.training.checkpoints import load_method
from coulomb.training.network import method_of

PAIRS = 512  # images at most


@dataclass(frozen=True)
class Trained:
    """What a run has learned.

    Attributes:
        method: the module that was trained, with its buffers (a bank, a queue).
        first, second: embeddings of two views of n held-out images, [n, D], unit length, float64.
        labels: [n], −1 unknown; None without labels.
        slots: [n], the images' positions among the training images; −1 for held-out ones.
        temperature: τ of the run.
    """

    method: nn.Module
    first: Tensor
    second: Tensor
    labels: Tensor | None
    slots: Tensor
    temperature: float


def trained(run: RunFolder, prepared: Prepared, most: int = PAIRS, *, seen: bool = False) -> Trained:
    """The method from the run's checkpoint, and two views of at most ``most`` held-out (or ``seen``) images through it."""
    config, objects = load_config(run.config), Objects()
    learned = learned_from(prepared, objects.method_of(config))
    method: Any = method_of(config, prepared, objects, load_encoder(run.path), len(learned))
    load_method(method, run.checkpoint)
    views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
    part = prepared.train if seen or not len(prepared.test.indices) else prepared.test
    pairs, index = [], []
    with frozen(method), torch.no_grad():
        for number, batch in enumerate(part.images.batches(part.sample(most, config.seed, "pairs").indices, 256)):
            drawn = views(batch["image"], generator(config.seed, "lab views", number), n=2, aspect=batch["aspect"])
            pairs.append(torch.stack([normalize(method.head(method.encoder(view)).double(), dim=1) for view in drawn]))
            index.append(batch["index"])
    first, second = torch.cat(pairs, dim=1)
    labels = None if part.labels is None else torch.from_numpy(part.labels)[torch.cat(index)]
    shown = torch.cat(index)
    slots = position_tensor(learned)[shown] if part is prepared.train else torch.full_like(shown, -1)
    return Trained(method, first, second, labels, slots, config.temperature)
