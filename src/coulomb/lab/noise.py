"""How near sampled gradients come to the full softmax's, over a bank that was trained."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from coulomb.losses import NCELoss, SoftmaxLoss
from coulomb.randomness import generator

COUNTS = (1, 4, 16, 64, 256, 1024, 4096)  # noise samples
DRAWS = 4


def gradient_cosines(
    query: Tensor, slots: Tensor, bank: Tensor, temperature: float, seed: int = 0
) -> list[dict[str, Any]]:
    """Rows {"noise", "nce", "infonce"}: cosines with the full softmax's gradient by all queries, mean over draws.

    query [N, D] with slots [N] in the bank [n, D], all of unit length. Noise is uniform, with replacement. NCE has the true Z,
    its mean over the queries; InfoNCE is the softmax of the own slot among the noise alone.
    """
    exact = _gradient(query, lambda q: SoftmaxLoss(temperature=temperature, normalize=True)(q, slots, bank))
    normalizer = float((query @ bank.T / temperature).exp().sum(1).mean())
    nce = NCELoss(len(bank), temperature, normalizer)
    rows = []
    for count in COUNTS:
        found = []
        for draw in range(DRAWS):
            drawn = torch.randint(len(bank), (len(query), count), generator=generator(seed, "lab noise", count, draw))
            noise, own = bank[drawn], bank[slots]

            def infonce(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                q = torch.nn.functional.normalize(q, dim=1)
                logits = torch.cat([(q * own).sum(1, keepdim=True), (noise @ q[:, :, None]).squeeze(2)], 1)
                return cross_entropy(logits / temperature, torch.zeros(len(q), dtype=torch.long))

            def by_nce(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                value: Tensor = nce(q, own, noise)
                return value

            found.append([float(cosine_similarity(_gradient(query, loss), exact, dim=0)) for loss in (by_nce, infonce)])
        first, second = torch.tensor(found).mean(0).tolist()
        rows.append({"noise": count, "nce": first, "infonce": second})
    return rows


def _gradient(query: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    leaf = query.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    return found.flatten()
