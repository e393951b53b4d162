"""Instance discrimination: each image against the memory of all others."""

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.errors import InputError
from coulomb.losses import NCELoss, SoftmaxLoss
from coulomb.models import Encoder, projection_head
from coulomb.negatives import MemoryBank
from coulomb.randomness import generator


class InstDisc(nn.Module):
    """Every image is a class of its own, its centre a slot of a memory bank (Wu et al., 2018).

        f = head(encoder(view))
        loss = NCE(f, bank[image], bank[m random images])       or, ``full=True``, the exact softmax over the bank
             + λ·mean ‖f/‖f‖ − bank[image]‖²                    proximal term; λ = 0 switches it off
        after the batch, bank[image] ← normalised (½·bank[image] + ½·f)

    The paper takes NCE on ImageNet and the full softmax (τ .1) on CIFAR-10; its head is one linear layer. One view an image
    and batch suffices (``n_views=1``); of several each has a loss, and their mean goes into the bank.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        num_images: n, training images: slots of the bank.
        temperature: τ; .07 in the paper, .1 on CIFAR-10.
        embedding_dim: output width of the head (paper: 128).
        head_layers: linear layers in the head (paper: 1).
        head_hidden_dim: width between them; None means the feature width.
        full: softmax over all n slots: exact, B·n·D multiplications.
        noise_samples: m of NCE; 4096 in the paper. Their memory is B·m·D numbers.
        normalizer: Z of NCE: ``"first"``: estimated on the first batch and fixed, as in the authors' code, which rests
            on the first weights; ``"ema"``: estimated on every batch, a moving average.
        bank_momentum: share of the old slot; .5 in the authors' code.
        bank_path: file for a bank larger than memory; see `MemoryBank`.
        proximal: λ; the authors' code has no such term.
        seed: of the head's first weights, the bank's first slots, and the noise.
    """

    needs_labels = False
    batches: Tensor

    def __init__(
        self,
        encoder: Encoder,
        *,
        num_images: int,
        temperature: float = 0.07,
        embedding_dim: int = 128,
        head_layers: int = 1,
        head_hidden_dim: int | None = None,
        full: bool = False,
        noise_samples: int = 4096,
        normalizer: str = "first",
        bank_momentum: float = 0.5,
        bank_path: str | None = None,
        proximal: float = 0.0,
        seed: int = 0,
    ):
        super().__init__()
        if normalizer not in ("first", "ema"):
            raise InputError(f"normalizer={normalizer!r} must be 'first' or 'ema'")
        if noise_samples < 1 or proximal < 0:
            raise InputError(f"noise_samples={noise_samples} must be at least 1, proximal={proximal} at least 0")
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim, hidden_dim=head_hidden_dim, out_dim=embedding_dim, layers=head_layers, seed=seed
        )
        self.bank = MemoryBank(num_images, embedding_dim, momentum=bank_momentum, path=bank_path, seed=seed)
        self.nce = None if full else NCELoss(num_images, temperature, None if normalizer == "first" else normalizer)
        self.softmax = SoftmaxLoss(temperature=temperature, normalize=True)
        self.noise_samples, self.proximal, self.seed = noise_samples, proximal, seed
        self.register_buffer("batches", torch.tensor(0))
        self.pending: tuple[Tensor, Tensor, Tensor | None] | None = None

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each, and which training images they show, [B]; returns a scalar."""
        if index is None:
            raise InputError("index is needed: which training image each one is")
        embeddings, slots = self.head(self.encoder(torch.cat(views))), index.repeat(len(views))
        own = self.bank.lookup(slots)
        normalizer = None
        if self.nce is None:
            loss = self.softmax(embeddings, slots, self.bank.keys())
        else:
            before = self.nce.log_normalizer.clone()
            loss = self.nce(embeddings, own, self._noise(len(slots)).to(embeddings.device))
            normalizer = self.nce.log_normalizer.clone()
            self.nce.log_normalizer.copy_(before)  # a batch counts once, however often it is looked at
        if self.proximal:
            loss = loss + self.proximal * (normalize(embeddings.float(), dim=1) - own).square().sum(1).mean()
        self.pending = slots, embeddings.detach(), normalizer
        return loss

    def _noise(self, rows: int) -> Tensor:
        """Slots of random images, [rows, m, D]; the same ones until `after_batch`, others in each process."""
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        draw = generator(self.seed, "noise", int(self.batches), rank)
        return self.bank.lookup(self.bank.sample((rows, self.noise_samples), draw))

    def after_batch(self) -> None:
        """The batch's images move their slots."""
        if self.pending is not None:
            slots, embeddings, normalizer = self.pending
            self.bank.update(slots, embeddings)
            if self.nce is not None and normalizer is not None:
                self.nce.log_normalizer.copy_(normalizer)
            self.pending = None
        self.batches += 1

    def no_signal(self, batch: int, views: int) -> float:
        """The loss when every image is as likely as any other: ln n, or NCE's of P = 1/n; and 2λ, at right angles."""
        m, n = self.noise_samples, len(self.bank)
        likely = math.log(n) if self.nce is None else math.log1p(m) + m * math.log1p(1 / m)
        return likely + 2 * self.proximal
