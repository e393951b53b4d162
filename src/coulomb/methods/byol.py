"""BYOL: predict the momentum encoder's embedding of the other view; no negatives."""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from coulomb.losses import NegativeCosineLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, pair_views
from coulomb.models import Encoder, predictor
from coulomb.negatives import MomentumEncoder


class BYOL(ProjectionMethod):
    """Bootstrap your own latent (Grill et al., 2020).

        p = predictor(head(encoder(view)))      z′ = head′(encoder′(view)) by the target network, without gradient
        loss = (2 − 2cos(p1, z′2)) + (2 − 2cos(p2, z′1))
        after the update: θ′ ← m·θ′ + (1−m)·θ, where m goes from ``momentum`` to 1 by a cosine schedule

    The loss does not separate images: constant embeddings reach its minimum, 0. ``use_predictor=False`` and
    ``stop_gradient=False`` (the target is then the network itself, with gradient) demonstrate this collapse. With V views,
    the loss is twice the mean over ordered pairs of different views.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of head and predictor (default and paper: 256).
        head_layers: linear layers in the head (default and paper: 2).
        head_hidden_dim: width between them (paper: 4096); None is the feature width.
        predictor_hidden_dim: hidden width of the predictor (paper: 4096); None: the same as in the head.
        momentum: initial m; .996 in the paper (1000 epochs), .99 for 300 epochs.
        momentum_schedule: ``"cosine"`` from m to 1, or ``"constant"``.
        stop_gradient, use_predictor: see above.
        seed: seed of the initial weights of head and predictor.
    """

    traits = Traits(momentum=True)
    local_mean = True

    default_head: ClassVar[HeadOptions] = {"embedding_dim": 256}

    def __init__(
        self,
        encoder: Encoder,
        *,
        predictor_hidden_dim: int | None = None,
        momentum: float = 0.996,
        momentum_schedule: str = "cosine",
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, **head)
        hidden = next(
            d for d in (predictor_hidden_dim, head.get("head_hidden_dim"), encoder.feature_dim) if d is not None
        )
        self.predictor = predictor(self.embedding_dim, hidden_dim=hidden, seed=seed) if use_predictor else nn.Identity()
        self.target = MomentumEncoder(self.network(), momentum, schedule=momentum_schedule) if stop_gradient else None
        self.criterion = NegativeCosineLoss(stop_gradient)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar from 0 to 8; ``views`` is a list of V tensors [B, C, H, W]."""
        embeddings = self.embed(views)
        predictions = self.predictor(embeddings).chunk(len(views))
        targets = (embeddings if self.target is None else self.target(torch.cat(views))).chunk(len(views))
        cosines: Tensor = self.criterion(*pair_views(predictions, targets))
        return 4 + 4 * cosines

    def after_update(self, progress: float) -> None:
        """Updates the target network, a moving average."""
        if self.target is not None:
            self.target.update(self.network(), progress)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: every prediction equals its target."""
        return 0.0

    # no_signal stays None: constant embeddings reach the minimum.
