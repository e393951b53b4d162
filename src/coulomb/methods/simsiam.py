"""SimSiam: predict the other view's embedding, whose gradient is stopped; no negatives, no second network."""

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import NegativeCosineLoss
from coulomb.models import Encoder, predictor, projection_head


class SimSiam(nn.Module):
    """Simple siamese representation learning (Chen & He, 2021).

        z = head(encoder(view))         p = predictor(z)
        loss = −½ cos(p1, sg(z2)) − ½ cos(p2, sg(z1))           sg: no gradient

    Nothing in the loss keeps images apart: −1 is reached by embeddings that are all alike. ``stop_gradient=False`` and
    ``use_predictor=False`` show such collapse. With n views, the mean over ordered pairs of different views.

    The head's layers all end in batch norm, the last without scale and shift; the predictor is a bottleneck, and its
    learning rate stays constant, as the authors found best.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of head and predictor (paper: 2048).
        head_layers: linear layers in the head (paper: 3; CIFAR-10: 2).
        head_hidden_dim: width between them (paper: 2048); None means the feature width.
        predictor_hidden_dim: hidden width of the predictor (paper: 512); None means a quarter of ``embedding_dim``.
        stop_gradient, use_predictor: see above.
        seed: of the first weights of head and predictor.
    """

    needs_labels = False
    constant_lr = ("predictor",)

    def __init__(
        self,
        encoder: Encoder,
        *,
        embedding_dim: int = 2048,
        head_layers: int = 3,
        head_hidden_dim: int | None = None,
        predictor_hidden_dim: int | None = None,
        stop_gradient: bool = True,
        use_predictor: bool = True,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            last_batch_norm=True,
            last_scale=False,
            seed=seed,
        )
        narrow = max(1, embedding_dim // 4) if predictor_hidden_dim is None else predictor_hidden_dim
        self.predictor = predictor(embedding_dim, hidden_dim=narrow, seed=seed) if use_predictor else nn.Identity()
        self.criterion = NegativeCosineLoss(stop_gradient)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: ``views`` is a list of n tensors [B, C, H, W]; returns a scalar from −1 to 1."""
        if len(views) < 2:
            raise InputError(f"n_views={len(views)}: SimSiam needs 2, each of which predicts the other")
        embeddings = self.head(self.encoder(torch.cat(views)))
        predictions, targets = self.predictor(embeddings).chunk(len(views)), embeddings.chunk(len(views))
        pairs = [(p, z) for i, p in enumerate(predictions) for j, z in enumerate(targets) if i != j]
        loss: Tensor = self.criterion(*(torch.cat(side) for side in zip(*pairs, strict=True)))
        return loss

    def floor(self, batch: int, views: int) -> float:
        """Every prediction on its target."""
        return -1.0

    def no_signal(self, batch: int, views: int) -> None:
        """There is no such value: embeddings that are all alike have the least loss."""
