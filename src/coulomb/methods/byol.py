"""BYOL: predict the momentum encoder's embedding of the other view; no negatives."""

from typing import ClassVar

from torch import Tensor, nn

from coulomb.losses import NegativeCosineLoss
from coulomb.methods.interface import OneColumn, Traits, pair_views
from coulomb.models import Tower, ViewRows, predictor
from coulomb.negatives import MomentumEncoder


class BYOL(OneColumn):
    """Bootstrap your own latent (Grill et al., 2020).

        p = predictor(head(encoder(view)))      z′ = head′(encoder′(view)) by the target network, without gradient
        loss = (2 − 2cos(p1, z′2)) + (2 − 2cos(p2, z′1))
        after the update: θ′ ← m·θ′ + (1−m)·θ, where m goes from ``momentum`` to 1 by a cosine schedule

    The loss does not separate images: constant embeddings reach its minimum, 0. ``use_predictor=False`` and
    ``stop_gradient=False`` (the target is then the network itself, with gradient) demonstrate this collapse. With V views,
    the loss is twice the mean over ordered pairs of different views.

    Args:
        tower: encoder and head; the head ends in 256, as in the paper, whose hidden layer has 4096.
        predictor_hidden_dim: hidden width of the predictor (paper: 4096); None: the same as in the head.
        momentum: initial m; .996 in the paper (1000 epochs), .99 for 300 epochs.
        momentum_schedule: ``"cosine"`` from m to 1, or ``"constant"``.
        stop_gradient, use_predictor: see above.
        seed: seed of the predictor's initial weights.
    """

    default_head: ClassVar = {"embedding_dim": 256}
    traits = Traits(momentum=True)
    local_mean = True

    def __init__(
        self,
        tower: Tower,
        *,
        predictor_hidden_dim: int | None = None,
        momentum: float = 0.996,
        momentum_schedule: str = "cosine",
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
    ):
        super().__init__(tower)
        hidden, dim = tower.hidden_dim if predictor_hidden_dim is None else predictor_hidden_dim, tower.embedding_dim
        self.predictor = predictor(dim, hidden_dim=hidden, seed=seed) if use_predictor else nn.Identity()
        self.target = MomentumEncoder(tower, momentum, schedule=momentum_schedule) if stop_gradient else None
        self.criterion = NegativeCosineLoss(stop_gradient)

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar from 0 to 8."""
        rows = self.rows(views)
        embeddings = self.tower(rows)
        predictions, targets = self.predictor(embeddings), embeddings if self.target is None else self.target(rows)
        cosines: Tensor = self.criterion(*pair_views(views.split(predictions), views.split(targets)))
        return 4 + 4 * cosines

    def after_update(self, progress: float) -> None:
        """Updates the target network, a moving average."""
        if self.target is not None:
            self.target.update(self.tower, progress)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: every prediction equals its target."""
        return 0.0

    # no_signal stays None: constant embeddings reach the minimum.
