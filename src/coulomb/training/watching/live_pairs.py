"""Live evaluation of a run on columns: retrieval among held-out pairs every few epochs, and the geometry of both columns."""

from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.geometry import feature_std
from coulomb.metrics.matching import distinct_pairs, pair_retrieval
from coulomb.metrics.rank import effective_rank
from coulomb.models import Encoder
from coulomb.models.features import frozen
from coulomb.training.encode_rows import encode_rows
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.record.journal import Journal
from coulomb.training.watching.live_evaluation import EveryFewEpochs, view_geometry

PAIRS = 1_000  # held-out rows that are measured
# Figures of two views of a cell, which say nothing where both are the plain view of one column.
OF_TWO_VIEWS = (
    "alignment", "view_retrieval", "positive_similarity", "separation", "lidar", "similarity_histogram",
)  # fmt: skip


@dataclass
class LivePairs(EveryFewEpochs):
    """Writes retrieval in both directions and `view_geometry` of the first two columns for at most 1,000 held-out rows.

    Of one column only the geometry is written. ``recall_at_1`` … are means of both directions. Features of a frozen backbone
    are computed once.
    """

    plan: ColumnsPlan
    encoders: dict[str, Encoder]
    journal: Journal
    computed: dict[str, tuple[Tensor, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.plan.config
        rows = self.plan.split.test
        if len(rows) > PAIRS:
            rows = rows[numpy_generator(self.config.seed, "live pairs").choice(len(rows), PAIRS, replace=False)]
        self.rows = rows

    def measure(self, trainer: pl.Trainer, module: Any, epoch: int) -> None:
        """Writes one evaluation line."""
        if not trainer.is_global_zero or len(self.rows) < 2:
            return
        names = (*self.plan.names, *self.plan.names)[:2]
        with frozen(module.method):
            found = {name: self.features(name, module.device) for name in set(names)}
        first, second = (found[name][0] for name in names)
        kept = torch.from_numpy(found[names[0]][1] & found[names[1]][1])
        line: dict[str, Any] = {"epoch": epoch, "step": trainer.global_step} | view_geometry(
            first[kept], second[kept], None
        )
        if not self.plan.several:
            line = {name: value for name, value in line.items() if name not in OF_TWO_VIEWS}
        if self.plan.several and int(kept.sum()) > 1:
            unit = [normalize(each[kept], dim=1) for each in (first, second)]
            line["modality_gap"] = float((unit[0].mean(0) - unit[1].mean(0)).norm())
            line["second_std"], line["second_rank"] = feature_std(unit[1]), effective_rank(unit[1])
            places = [self.plan.place(name) for name in names]
            pairs = distinct_pairs(self.plan.test_ids[self.rows][kept.numpy()][:, places])
            scores = pair_retrieval(first[kept][pairs.first_rows], second[kept][pairs.second_rows], pairs.correct)
            line |= {f"recall_at_{k}": value for k, value in scores["mean"]["recall_at"].items()}
            line["mrr"] = module.latest_mrr = scores["mean"]["mrr"]
        self.journal.write(line)

    def features(self, column: str, device: torch.device) -> tuple[Tensor, Any]:
        """Returns embeddings [n, D] of the held-out rows in a column, zeros for unreadable cells, and which were read."""
        encoder = self.encoders[self.plan.tower_of(column).name]
        if not encoder.cached:
            return encode_rows(self.plan, column, encoder, self.rows, device, held_out=True)
        if column not in self.computed:
            encoder.cached = False
            with encoder.without_adapter():
                self.computed[column] = encode_rows(self.plan, column, encoder, self.rows, device, held_out=True)
            encoder.cached = True
        features, read = self.computed[column]
        return encoder(features.to(device)).float().cpu(), read
