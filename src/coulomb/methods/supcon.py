"""SupCon: SimCLR's batch, with every image of the anchor's class as a positive."""

import math

import torch
from torch import Tensor, nn

from coulomb.losses import SupConLoss
from coulomb.models import Encoder, projection_head


class SupCon(nn.Module):
    """Supervised contrastive learning (Khosla et al., 2020), stage one: the representation.

        z = head(encoder(view))         head: Linear-ReLU-Linear without batch norm, as in the authors' code
        loss = SupCon(z, labels)        mean over positives outside the logarithm

    Labels may be partly unknown (−1): such an image has its own other views as its only positives.
    Stage two, a linear classifier on the frozen encoder, follows in the same command and is kept with the run: multinomial
    logistic regression on the features of the plain training images (the authors: SGD with augmentation for 100 epochs).

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .1 for CIFAR in the paper, .07 in the authors' code.
        embedding_dim: output width of the head (paper: 128).
        head_layers: linear layers in the head (paper: 2).
        head_hidden_dim: width between them; None means the feature width, as in the paper.
        seed: of the head's first weights.
    """

    needs_labels = True
    two_stages = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.1,
        embedding_dim: int = 128,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            batch_norm=False,
            seed=seed,
        )
        self.criterion = SupConLoss(temperature=temperature)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each and labels [B] (−1 unknown); returns a scalar."""
        embeddings = self.head(self.encoder(torch.cat(views)))
        return self.criterion(torch.stack(embeddings.chunk(len(views)), dim=1), labels)

    def no_signal(self, batch: int, views: int) -> float:
        """The loss when all embeddings of all processes' images (``batch``) are alike, ln(n·N − 1): a run must get below."""
        return math.log(max(batch * views - 1, 1))
