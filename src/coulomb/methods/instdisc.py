"""Instance discrimination: each image against a memory bank of all others."""

import math
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.losses import NCELoss, SoftmaxLoss
from coulomb.methods.interface import OneColumn, Traits, for_rows
from coulomb.models import Tower, ViewRows
from coulomb.negatives import MemoryBank


class InstDisc(OneColumn):
    """Every image is its own class, whose center is a slot of a memory bank (Wu et al., 2018).

        f = head(encoder(view))
        loss = NCE(f, bank[image], bank[m random images])       or, with ``full=True``, the exact softmax over the bank
             + λ·mean ‖f/‖f‖ − bank[image]‖²                    proximal term; λ = 0 disables it
        after the batch, bank[image] ← normalized (½·bank[image] + ½·f)

    The paper uses NCE on ImageNet and the full softmax (τ .1) on CIFAR-10; its head is one linear layer. One view per image
    is enough (``n_views=1``). With several views each contributes to the loss, and their mean is written to the bank.

    Args:
        tower: encoder and head; the head is one layer of 128, as in the paper.
        num_images: n, training images and slots of the bank.
        temperature: τ; .07 in the paper, .1 on CIFAR-10.
        full: softmax over all n slots: exact, B·n·D multiplications.
        noise_samples: m of NCE; 4096 in the paper. They take memory for B·m·D numbers.
        normalizer: Z of NCE. ``"first"`` estimates it on the first batch and keeps it, as in the authors' code; it then
            depends on the initial weights. ``"ema"`` is a moving average over all batches.
        bank_momentum: weight of the previous slot; .5 in the authors' code.
        bank_path: file for a bank larger than memory; see `MemoryBank`.
        proximal: λ; the authors' code has no such term.
        seed: seed of the initial slots, and of the noise.
    """

    default_head: ClassVar = {"head_layers": 1}
    traits = Traits(negatives=True)
    local_mean = True

    least_views = 1
    batches: Tensor

    def __init__(
        self,
        tower: Tower,
        *,
        num_images: int,
        temperature: float = 0.07,
        full: bool = False,
        noise_samples: int = 4096,
        normalizer: str = "first",
        bank_momentum: float = 0.5,
        bank_path: str | None = None,
        proximal: float = 0.0,
        seed: int = 0,
    ):
        if normalizer not in ("first", "ema"):
            raise InputError(f"normalizer={normalizer!r}: must be 'first' or 'ema'")
        if noise_samples < 1 or proximal < 0:
            raise InputError(f"noise_samples={noise_samples} must be at least 1, proximal={proximal} at least 0")
        super().__init__(tower)
        self.bank = MemoryBank(num_images, tower.embedding_dim, momentum=bank_momentum, path=bank_path, seed=seed)
        self.nce = None if full else NCELoss(num_images, temperature, None if normalizer == "first" else normalizer)
        self.softmax = SoftmaxLoss(temperature=temperature, normalize=True)
        self.noise_samples, self.proximal, self.seed = noise_samples, proximal, seed
        self.register_buffer("batches", torch.tensor(0))
        self.pending: tuple[Tensor, Tensor, Tensor | None] | None = None

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar; the train rows [N] are slots of the bank."""
        if train_row is None:
            raise InputError("train_row=None: forward needs the place of each sample among the training samples")
        embeddings = self.embed(views)
        slots = for_rows(train_row, embeddings)
        own = self.bank.lookup(slots)
        normalizer = None
        if self.nce is None:
            loss = self.softmax(embeddings, slots, self.bank.keys())
        else:
            before = self.nce.log_normalizer.clone()
            loss = self.nce(embeddings, own, self._noise(len(slots)).to(embeddings.device))
            normalizer = self.nce.log_normalizer.clone()
            self.nce.log_normalizer.copy_(
                before
            )  # a batch updates Z once, in after_batch, however often it is computed
        if self.proximal:
            loss = loss + self.proximal * (normalize(embeddings.float(), dim=1) - own).square().sum(1).mean()
        self.pending = slots, embeddings.detach(), normalizer
        return loss

    def _noise(self, rows: int) -> Tensor:
        """Returns slots of random images, [rows, m, D]; fixed until `after_batch`, different in each process."""
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        draw = generator(self.seed, "noise", int(self.batches), rank)
        return self.bank.lookup(self.bank.sample((rows, self.noise_samples), draw))

    def after_batch(self) -> None:
        """Updates the slots of the batch's images."""
        if self.pending is not None:
            slots, embeddings, normalizer = self.pending
            self.bank.update(slots, embeddings)
            if self.nce is not None and normalizer is not None:
                self.nce.log_normalizer.copy_(normalizer)
            self.pending = None
        self.batches += 1

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when every image is equally probable: ln n, or the value for NCE; plus 2λ for orthogonal rows."""
        m, n = self.noise_samples, len(self.bank)
        uniform = math.log(n) if self.nce is None else math.log1p(m) + m * math.log1p(1 / m)
        return uniform + 2 * self.proximal
