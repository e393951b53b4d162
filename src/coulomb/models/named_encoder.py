"""What opened encoders of images and of texts have in common."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.models.pretrained import Pretrained


class NamedEncoder(Pretrained, ABC):
    """An encoder by its name, with the preparation of its cells: `ImageEncoder`, `TextEncoder`.

    Attributes:
        name: for messages, and to build its architecture again.
        device: where the encoder is to be; None: where it was built.
    """

    name: str
    device: torch.device | None

    @property
    @abstractmethod
    def encoder(self) -> Any:
        """The encoder in eval mode: cells → features [B, F]."""

    @abstractmethod
    def encode(self, cells: Any, /) -> Any:
        """Returns the features [N, F] of any cells; float32, on the CPU."""

    @abstractmethod
    def embed(self, data: Any, out: str | Path, **options: Any) -> dict[str, Any]:
        """Writes features to a Parquet file."""

    def similarity(self, a: Any, b: Any) -> Tensor:
        """Returns the cosine similarities [N, M] of N and M images or texts, or of features; float32, on the CPU.

        Args:
            a: cells as for `encode`, or features: floats [N, F] or [F]. Rows of zeros have similarity 0.
            b: likewise.

        Raises:
            InputError: as for `encode`, or features are NaN or infinite.

        Example:
            >>> lite0 = coulomb.load("lite0")
            >>> lite0.similarity(lite0.encode("photos/"), "query.jpg").argmax()
        """
        first, second = (functional.normalize(self._features(each, name), dim=1) for each, name in ((a, "a"), (b, "b")))
        return first @ second.T

    def _features(self, given: Any, name: str) -> Tensor:
        """Returns features [N, F], which ``given`` is or whose cells it holds."""
        if not isinstance(given, np.ndarray | Tensor) or given.ndim not in (1, 2) or given.dtype == object:
            return self.encode(given)
        if isinstance(given, np.ndarray) and given.dtype.kind not in "fiub":
            return self.encode(given)
        rows = torch.as_tensor(given).detach().cpu()
        if not rows.is_floating_point() or rows.shape[-1] != self.encoder.feature_dim:
            return self.encode(given)
        if not bool(rows.isfinite().all()):
            raise InputError(f"{name}: features have values that are NaN or infinite")
        return rows.float().reshape(-1, self.encoder.feature_dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def finished(features: Tensor, *, convert_to_numpy: bool, normalize_embeddings: bool) -> Any:
    """Returns features as `NamedEncoder.encode` was asked for: of unit length, as an array."""
    if normalize_embeddings:
        features = functional.normalize(features, dim=1)
    return features.numpy() if convert_to_numpy else features
