"""The result of classifying images with the classifier of a run."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.text import visible


@dataclass(frozen=True)
class Classification:
    """Predicted classes of N images and their probabilities.

    Attributes:
        ids: paths as passed, or positions [N].
        class_names: names of the C classes, or their numbers if they have no names.
        probabilities: softmax of the classifier's logits, [N, C]; not calibrated.
        failed: [{``id``, ``reason``}] of images that could not be read and are left out.
    """

    ids: list[str]
    class_names: list[str]
    probabilities: Tensor
    failed: list[dict[str, str]] = field(default_factory=list)

    @property
    def labels(self) -> Tensor:
        """The most probable class of each image, int64 [N]."""
        return self.probabilities.argmax(1)

    @property
    def names(self) -> list[str]:
        """The name of the most probable class of each image."""
        return [self.class_names[label] for label in self.labels.tolist()]

    def top(self, k: int = 3) -> list[list[tuple[str, float]]]:
        """Returns the ``k`` most probable classes of each image as (name, probability) in descending order."""
        best = torch.topk(self.probabilities, min(k, len(self.class_names)), dim=1)
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [[(self.class_names[c], p) for c, p in zip(*row, strict=True)] for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """Returns a dict for JSON: ``class_names``, ``failed``, ``images`` [{``id``, ``name``, ``probability``, …}]."""
        rows = self.probabilities.tolist()
        images = [
            {
                "id": id_,
                "name": name,
                "probability": max(row),
                "probabilities": dict(zip(self.class_names, row, strict=True)),
            }
            for id_, name, row in zip(self.ids, self.names, rows, strict=True)
        ]
        return {"class_names": self.class_names, "images": images, "failed": self.failed}

    def __len__(self) -> int:
        return len(self.ids)

    def __str__(self) -> str:
        """Returns one line per image: its id and the three most probable classes."""
        width = max((len(visible(id_)) for id_ in self.ids), default=0)
        return "\n".join(
            f"{visible(id_):<{width}}  " + "  ".join(f"{visible(name, 40)} {p:.3f}" for name, p in best)
            for id_, best in zip(self.ids, self.top(), strict=True)
        )
