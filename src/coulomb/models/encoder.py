"""Encoders: a backbone and perhaps an adapter; cells of one column in, features out. Each kind of column has its own class."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.models.adapter import build_adapter
from coulomb.models.micro_batches import encode_in_micro_batches


class Encoder(nn.Module):
    """Maps cells [B, …] of a column to features [B, F] by a backbone and perhaps an adapter.

    `ImageNetwork`, `TextNetwork` and `VectorNetwork` derive from it; each has its own ``backbone_pass`` and
    ``trial_cells``.

    Args:
        backbone: the network.
        feature_dim: F.
        config: how to build the encoder again, JSON-serializable, without weights and statistics.
        column: the column of the table that it reads.

    Attributes:
        backbone: the network.
        adapter: map of the backbone's features to the encoder's (`coulomb.models.adapter`), or None.
        feature_dim: F.
        config: how to build the encoder again, JSON-serializable, without weights and statistics.
        fixed: modules that stay in eval mode in training, see `fix`.
        micro_batch: cells that the backbone takes at a time, see `encode_in_micro_batches`; None: all. It is not saved.
        column: the column of the table that it reads. It is not saved.
        cached: True while its cells are features [B, F'] that the frozen backbone computed earlier, so that the adapter alone
            is applied. It is not saved.

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> isinstance(encoder, Encoder), encoder.feature_dim
    (True, 32)
    """

    cells: ClassVar[str]  # what it takes, for messages
    statistics: ClassVar[str] = ""  # name of the part that has mean and standard deviation of the data

    def __init__(self, backbone: nn.Module, *, feature_dim: int, config: Mapping[str, Any], column: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.adapter: nn.Module | None = None
        self.feature_dim = feature_dim
        self.config = dict(config)
        self.fixed: list[nn.Module] = []
        self.micro_batch: int | None = None
        self.column = column
        self.cached = False

    @property
    def frozen(self) -> bool:
        """True if the backbone does not learn, see `freeze`."""
        return any(part is self.backbone for part in self.fixed)

    @property
    def name(self) -> str:
        """Name of the architecture, or of the class of the user's module."""
        return self.config["name"]

    def description(self) -> dict[str, Any]:
        """Returns what ``encoder.json`` says about the encoder besides ``config``, see `coulomb.models.saving`."""
        return {}

    def files(self) -> dict[str, bytes]:
        """Returns the files that are saved beside the weights, by name."""
        return {}

    def forward(self, cells: Any) -> Tensor:
        """Returns features [B, F]; raises `InputError` for cells of another shape or type.

        ``cells`` are what ``column`` names: images [B, C, H, W], `coulomb.kinds.text.Tokens`, or vectors [B, F].
        """
        if self.adapter is None:
            return self.backbone_features(cells)
        adapted: Tensor = self.adapter(cells if self.cached else self.backbone_features(cells))
        return adapted

    def backbone_features(self, cells: Any) -> Tensor:
        """Returns the features [B, F'] of the backbone, without the adapter; raises `InputError` as `forward` does."""
        if self.micro_batch is None:
            return self.backbone_pass(cells)
        return encode_in_micro_batches(self.backbone_pass, cells, self.micro_batch, self.backbone)

    def backbone_pass(self, cells: Any) -> Tensor:
        """Returns the features [B, F'] of cells that the backbone takes at once; each kind of encoder has its own."""
        raise NotImplementedError

    def trial_cells(self, count: int, generator: torch.Generator | None = None) -> Any:
        """Returns cells that the encoder takes, on the CPU, to try it: blank ones, or drawn from ``generator``."""
        raise NotImplementedError

    @property
    def backbone_dim(self) -> int:
        """F', the width of the backbone's features."""
        adapter = self.config.get("adapter")
        return self.feature_dim if adapter is None else adapter["in"]

    def attach_adapter(self, description: Mapping[str, Any], seed: int = 0) -> None:
        """Adds an adapter after the backbone, see `build_adapter`; ``feature_dim`` becomes its output width.

        Raises:
            InputError: ``description`` is invalid, or its input width is not ``feature_dim``.
        """
        if self.adapter is not None or description["in"] != self.feature_dim:
            raise InputError(
                f"adapter of {description['in']} features: {self.name} has {self.feature_dim}"
                + (" and already an adapter" if self.adapter is not None else "")
            )
        self.adapter = build_adapter(description, seed)
        self.config["adapter"] = dict(description)
        self.feature_dim = description["out"]

    def drop_adapter(self) -> None:
        """Removes the adapter; the features are the backbone's again."""
        self.feature_dim, self.adapter = self.backbone_dim, None
        self.config.pop("adapter", None)

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Context in which the encoder returns the features of its backbone."""
        adapter, self.adapter = self.adapter, None
        try:
            yield
        finally:
            self.adapter = adapter

    def freeze(self) -> None:
        """Freezes the backbone: its parameters need no gradient, and it stays in eval mode, as do batch-norm statistics."""
        self.backbone.requires_grad_(False)
        self.fix([self.backbone])

    def fix(self, parts: list[nn.Module]) -> None:
        """Keeps ``parts`` and their submodules, and no others, in eval mode in training."""
        self.fixed = parts
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of all modules but those in ``fixed``, which stay in eval mode."""
        super().train(mode)
        for part in self.fixed:
            part.eval()
        return self
