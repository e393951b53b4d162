"""SimSiam: predict the embedding of the other view, with stop-gradient; no negatives, no second network."""

from typing import ClassVar

from torch import Tensor, nn

from coulomb.losses import NegativeCosineLoss
from coulomb.methods.interface import OneColumn, pair_views
from coulomb.models import Tower, ViewRows, predictor


class SimSiam(OneColumn):
    """Simple siamese representation learning (Chen & He, 2021).

        z = head(encoder(view))         p = predictor(z)
        loss = −½ cos(p1, sg(z2)) − ½ cos(p2, sg(z1))           sg: stop-gradient

    The loss does not separate images: constant embeddings reach its minimum, −1. ``stop_gradient=False`` and
    ``use_predictor=False`` demonstrate this collapse. With V views, the mean is over ordered pairs of different views.

    All layers of the head end in batch norm, the last one without scale and shift. The predictor is a bottleneck, and its
    learning rate stays constant, which the authors found best.

    Args:
        tower: encoder and head; the head has 3 layers and ends in 2048, as in the paper (CIFAR-10: 2 layers).
        predictor_hidden_dim: hidden width of the predictor (paper: 512); None is a quarter of ``embedding_dim``.
        stop_gradient, use_predictor: see above.
        seed: seed of the predictor's initial weights.
    """

    default_head: ClassVar = {"embedding_dim": 2048, "head_layers": 3, "last_batch_norm": True, "last_scale": False}
    local_mean = True
    constant_lr = ("predictor",)

    def __init__(
        self,
        tower: Tower,
        *,
        predictor_hidden_dim: int | None = None,
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
    ):
        super().__init__(tower)
        dim = tower.embedding_dim
        hidden = max(1, dim // 4) if predictor_hidden_dim is None else predictor_hidden_dim
        self.predictor = predictor(dim, hidden_dim=hidden, seed=seed) if use_predictor else nn.Identity()
        self.criterion = NegativeCosineLoss(stop_gradient)

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar from −1 to 1."""
        embeddings = self.embed(views)
        loss: Tensor = self.criterion(*pair_views(views.split(self.predictor(embeddings)), views.split(embeddings)))
        return loss

    def floor(self, batch: int, views: int) -> float:
        """Returns −1: every prediction equals its target."""
        return -1.0

    # no_signal stays None: constant embeddings reach the minimum.
