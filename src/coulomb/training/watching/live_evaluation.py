"""Live evaluation: kNN on held-out images every few epochs, and the geometry of the embeddings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.ground.randomness import generator
from coulomb.kinds.image.views import ViewMaker
from coulomb.metrics.class_structure import false_negative_rate, neighborhood_purity, tolerance
from coulomb.metrics.geometry import alignment, feature_std, uniformity
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.rank import effective_rank, lidar, singular_values
from coulomb.metrics.retrieval import view_retrieval
from coulomb.metrics.similarities import separation, similarity_histogram, view_similarities
from coulomb.models import Encoder
from coulomb.models.features import extract_features, frozen
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Part, Prepared
from coulomb.training.record.journal import Journal

SPECTRUM = 64  # singular values that are written
NEIGHBORS = 10


def view_geometry(x: Tensor, y: Tensor, labels: Tensor | None) -> dict[str, Any]:
    """Computes the metrics of two views ``x``, ``y`` [N, D] of the same images, the unnormalized outputs of the head:

    - ``alignment``, ``uniformity``, ``embedding_rank``, ``embedding_std``, ``view_retrieval``;
    - ``lidar``: LiDAR with q = 2 views per image and δ = 1e-4. The paper uses 50 views of 1000 images, so values are
      comparable within a run and between runs of the same settings, not with published ones;
    - ``positive_similarity``, ``negative_similarity``, ``hardest_similarity``: mean cosines;
    - ``separation``: P(a positive's cosine > a negative's), ties ½;
    - ``spectrum``: at most 64 singular values of the unit embeddings over the largest;
    - ``similarity_histogram``: ``edges`` (41), ``positive``, ``negative``, ``hardest``, ``same_class`` or null (40 counts);
    - ``embedding_norm``: mean norm before normalization;
    - with labels [N] (−1: unknown), if a class has two images: ``tolerance``, ``purity`` (of the 10 nearest),
      ``false_negative_rate``.

    The result is empty for fewer than two images.
    """
    if len(x) < 2:
        return {}
    norm = (float(x.double().norm(dim=1).mean()) + float(y.double().norm(dim=1).mean())) / 2
    first, second = normalize(x, dim=1), normalize(y, dim=1)
    cosines = view_similarities(first, second)
    geometry: dict[str, Any] = {
        "alignment": alignment(first, second),
        "uniformity": uniformity(first),
        "embedding_rank": effective_rank(first),
        "embedding_std": feature_std(first),
        "embedding_norm": norm,
        "lidar": lidar(torch.stack([x, y], dim=1)),
        "view_retrieval": view_retrieval(first, second),
        "positive_similarity": cosines.positive,
        "negative_similarity": cosines.negative,
        "hardest_similarity": cosines.hardest,
        "separation": separation(first, second),
        "spectrum": [round(value, 6) for value in singular_values(first, SPECTRUM).tolist()],
        "similarity_histogram": similarity_histogram(first, second, labels).as_dict(),
    }
    if labels is not None and (mean_cosine := tolerance(first, labels)) is not None:
        geometry["tolerance"] = mean_cosine
        geometry["purity"] = neighborhood_purity(first, labels, NEIGHBORS)[0]
        geometry["false_negative_rate"] = false_negative_rate(labels)
    return geometry


BANK = 10_000  # training images among which neighbors are searched
QUERIES = 2_000  # held-out images that are classified
PAIRS = 1_024  # held-out images whose two views are compared


class EveryFewEpochs(pl.Callback):
    """Calls ``measure`` before the first epoch and every ``config.knn_every`` epochs."""

    config: Config

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Measures the untrained encoder."""
        if self.config.knn_every and trainer.global_step == 0:
            self.measure(trainer, module, epoch=0)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Measures when enough epochs are complete."""
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        if self.config.knn_every and rest == 0 and (epoch % self.config.knn_every == 0 or epoch == self.config.epochs):
            self.measure(trainer, module, epoch)

    def measure(self, trainer: pl.Trainer, module: Any, epoch: int) -> None:
        """Writes one evaluation line."""
        raise NotImplementedError


@dataclass
class LiveEvaluation(EveryFewEpochs):
    """Computes kNN, effective rank and `view_geometry` every ``config.knn_every`` epochs, and before the first.

    The kNN uses encoder features of at most 10,000 training and 2,000 held-out images, the same ones each time. The geometry
    uses the head's embeddings of two views of at most 1,024 held-out images.
    """

    prepared: Prepared
    views: ViewMaker
    config: Config
    journal: Journal
    computed: dict[str, tuple[Tensor, Any]] = field(default_factory=dict)  # features of a frozen backbone

    def measure(self, trainer: pl.Trainer, module: Any, epoch: int) -> None:
        """Writes one evaluation line."""
        if not trainer.is_global_zero:
            return
        line = {"epoch": epoch, "step": trainer.global_step}
        line |= self.neighbors(module.method.tower.encoder, module.device) | self.geometry(module.method, module.device)
        self.journal.write(line)
        if "knn" in line:
            module.latest_knn = line["knn"]

    def neighbors(self, encoder: nn.Module, device: torch.device) -> dict[str, Any]:
        """Computes the kNN accuracy, if both parts have labels."""
        bank = self.labeled(self.prepared.train, BANK, "bank")
        queries = self.labeled(self.prepared.test, QUERIES, "queries")
        if not len(bank) or not len(queries):
            return {}
        train, test = self.prepared.train, self.prepared.test
        bank_x, bank = self.features(encoder, train, bank, device)
        queries_x, queries = self.features(encoder, test, queries, device)
        assert train.labels is not None and test.labels is not None
        k = min(self.config.knn_k, len(bank))
        labels = torch.from_numpy(train.labels[bank]), torch.from_numpy(test.labels[queries])
        accuracy = knn_accuracy(bank_x, labels[0], queries_x, labels[1], k=k, sigma=self.config.knn_sigma)
        return {
            "knn": accuracy,
            "knn_k": k,
            "knn_sigma": self.config.knn_sigma,
            "effective_rank": effective_rank(queries_x),
        }

    def geometry(self, method: Any, device: torch.device) -> dict[str, Any]:
        """Computes `view_geometry` of held-out images."""
        part = self.prepared.test if len(self.prepared.test.indices) else self.prepared.train
        encoder, head = method.tower.encoder, method.tower.head
        with frozen(method):
            if not isinstance(encoder, Encoder) or not encoder.cached:
                pair, indices = self.pairs(method.tower, part, device)
            else:
                if "pairs" not in self.computed:
                    with encoder.without_adapter():
                        self.computed["pairs"] = self.pairs(encoder, part, device)
                features, indices = self.computed["pairs"]
                pair = torch.stack([head(encoder(each.to(device))).float().cpu() for each in features])
        if not len(indices):
            return {}
        labels = None if part.labels is None else torch.from_numpy(part.labels)[indices]
        return view_geometry(pair[0], pair[1], labels)

    def pairs(self, embed: Callable[[Tensor], Tensor], part: Part, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns ``embed`` of two views of at most 1,024 images, [2, n, D], and the indices of the images, [n]."""
        chosen = part.sample(PAIRS, self.config.seed, "pairs").indices
        embeddings, indices = [torch.empty(2, 0, 0)], [torch.empty(0, dtype=torch.int64)]
        for number, batch in enumerate(part.images.batches(chosen, 256)):
            draw = generator(self.config.seed, "live views", number)
            pair = self.views(batch.stack.to(device), draw, n=2)
            embeddings.append(torch.stack([embed(view).float().cpu() for view in pair]))
            indices.append(batch.sample)
        return torch.cat(embeddings[1:] or embeddings, dim=1), torch.cat(indices)

    def features(
        self, encoder: nn.Module, part: Part, indices: np.ndarray, device: torch.device
    ) -> tuple[Tensor, np.ndarray]:
        """Returns the encoder features of some images; features of a frozen backbone are computed once."""
        if not isinstance(encoder, Encoder) or not encoder.cached:
            return extract_features(encoder, part.images, indices, self.views.plain, device=device)
        side = "train" if part is self.prepared.train else "test"
        if side not in self.computed:
            with encoder.without_adapter():
                self.computed[side] = extract_features(encoder, part.images, indices, self.views.plain, device=device)
        features, which = self.computed[side]
        with frozen(encoder):
            return encoder(features.to(device)).float().cpu(), which

    def labeled(self, part: Part, most: int, purpose: str) -> np.ndarray:
        """Returns at most ``most`` labeled images, the same ones each time."""
        if part.labels is None:
            return np.empty(0, dtype=np.int64)
        labeled = Part(part.images, part.indices[part.labels[part.indices] >= 0], part.labels)
        return labeled.sample(most, self.config.seed, purpose).indices
