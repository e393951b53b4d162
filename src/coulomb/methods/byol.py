"""BYOL: predict what a slowly moving copy of the network says of the other view; no negatives."""

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import NegativeCosineLoss
from coulomb.models import Encoder, predictor, projection_head
from coulomb.negatives import MomentumEncoder


class BYOL(nn.Module):
    """Bootstrap your own latent (Grill et al., 2020).

        p = predictor(head(encoder(view)))      z′ = head′(encoder′(view)) by the target network, without gradient
        loss = (2 − 2cos(p1, z′2)) + (2 − 2cos(p2, z′1))
        after the update, the target network follows: θ′ ← m·θ′ + (1−m)·θ, m from ``momentum`` to 1 by a cosine

    Nothing in the loss keeps images apart: 0 is reached by embeddings that are all alike. ``use_predictor=False`` and
    ``stop_gradient=False`` (the target is then the network itself, and learns) show such collapse. With n views, the mean
    over ordered pairs of different views, times two.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of head and predictor (paper: 256).
        head_layers: linear layers in the head (paper: 2).
        head_hidden_dim: width between them (paper: 4096); None means the feature width.
        predictor_hidden_dim: hidden width of the predictor (paper: 4096); None means that of the head.
        momentum: m at first; .996 in the paper (1000 epochs), .99 for 300 epochs.
        momentum_schedule: ``"cosine"`` from m to 1, or ``"constant"``.
        stop_gradient, use_predictor: see above.
        seed: of the first weights of head and predictor.
    """

    needs_labels = False

    def __init__(
        self,
        encoder: Encoder,
        *,
        embedding_dim: int = 256,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        predictor_hidden_dim: int | None = None,
        momentum: float = 0.996,
        momentum_schedule: str = "cosine",
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        hidden = encoder.feature_dim if head_hidden_dim is None else head_hidden_dim
        self.head = projection_head(
            encoder.feature_dim, hidden_dim=hidden, out_dim=embedding_dim, layers=head_layers, seed=seed
        )
        wide = hidden if predictor_hidden_dim is None else predictor_hidden_dim
        self.predictor = predictor(embedding_dim, hidden_dim=wide, seed=seed) if use_predictor else nn.Identity()
        self.target = MomentumEncoder(self._network(), momentum, schedule=momentum_schedule) if stop_gradient else None
        self.criterion = NegativeCosineLoss(stop_gradient)

    def _network(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.head)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: ``views`` is a list of n tensors [B, C, H, W]; returns a scalar from 0 to 8."""
        if len(views) < 2:
            raise InputError(f"n_views={len(views)}: BYOL needs 2, each of which predicts the other")
        images = torch.cat(views)
        embeddings = self.head(self.encoder(images))
        predictions = self.predictor(embeddings).chunk(len(views))
        targets = (embeddings if self.target is None else self.target(images)).chunk(len(views))
        pairs = [(p, z) for i, p in enumerate(predictions) for j, z in enumerate(targets) if i != j]
        cosines: Tensor = self.criterion(*(torch.cat(side) for side in zip(*pairs, strict=True)))
        return 4 + 4 * cosines

    def after_update(self, progress: float) -> None:
        """The target network follows."""
        if self.target is not None:
            self.target.update(self._network(), progress)

    def floor(self, batch: int, views: int) -> float:
        """Every prediction on its target."""
        return 0.0

    def no_signal(self, batch: int, views: int) -> None:
        """There is no such value: embeddings that are all alike have the least loss."""
