"""SimSiam: predict the embedding of the other view, with stop-gradient; no negatives, no second network."""

from typing import ClassVar, Unpack

from torch import Tensor, nn

from coulomb.losses import NegativeCosineLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, pair_views
from coulomb.models import Encoder, predictor


class SimSiam(ProjectionMethod):
    """Simple siamese representation learning (Chen & He, 2021).

        z = head(encoder(view))         p = predictor(z)
        loss = −½ cos(p1, sg(z2)) − ½ cos(p2, sg(z1))           sg: stop-gradient

    The loss does not separate images: constant embeddings reach its minimum, −1. ``stop_gradient=False`` and
    ``use_predictor=False`` demonstrate this collapse. With V views, the mean is over ordered pairs of different views.

    All layers of the head end in batch norm, the last one without scale and shift. The predictor is a bottleneck, and its
    learning rate stays constant, which the authors found best.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of head and predictor (default and paper: 2048).
        head_layers: linear layers in the head (default and paper: 3; CIFAR-10: 2).
        head_hidden_dim: width between them (paper: 2048); None is the feature width.
        predictor_hidden_dim: hidden width of the predictor (paper: 512); None is a quarter of ``embedding_dim``.
        stop_gradient, use_predictor: see above.
        seed: seed of the initial weights of head and predictor.
    """

    local_mean = True
    constant_lr = ("predictor",)
    default_head: ClassVar[HeadOptions] = {"embedding_dim": 2048, "head_layers": 3}

    def __init__(
        self,
        encoder: Encoder,
        *,
        predictor_hidden_dim: int | None = None,
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, last_batch_norm=True, last_scale=False, **head)
        hidden = max(1, self.embedding_dim // 4) if predictor_hidden_dim is None else predictor_hidden_dim
        self.predictor = predictor(self.embedding_dim, hidden_dim=hidden, seed=seed) if use_predictor else nn.Identity()
        self.criterion = NegativeCosineLoss(stop_gradient)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar from −1 to 1; ``views`` is a list of V tensors [B, C, H, W]."""
        embeddings, count = self.embed(views), len(views)
        loss: Tensor = self.criterion(*pair_views(self.predictor(embeddings).chunk(count), embeddings.chunk(count)))
        return loss

    def floor(self, batch: int, views: int) -> float:
        """Returns −1: every prediction equals its target."""
        return -1.0

    # no_signal stays None: constant embeddings reach the minimum.
