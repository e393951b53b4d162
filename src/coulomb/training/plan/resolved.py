"""What the training loop reads of a plan, whatever its samples are; and the steps of a run."""

import math
from typing import Any, Protocol

import numpy as np
from torch import nn

from coulomb.methods import Method
from coulomb.tables.shards.blocks import Blocks
from coulomb.training.plan.config import Config


class Steps:
    """Steps and updates of a run, from its options and the number of batches per epoch; both kinds of plans derive from it."""

    config: Config
    processes: int
    learned: np.ndarray
    steps_per_epoch: int

    @property
    def batch(self) -> int:
        """Samples per step of all processes together; a run that is resumed on another number of processes keeps it."""
        return self.config.batch_size * self.processes

    @property
    def steps(self) -> int:
        """Batches in the whole run."""
        return self.config.epochs * self.steps_per_epoch

    @property
    def updates(self) -> int:
        """Optimizer steps in the whole run: one per ``accumulate`` batches."""
        return math.ceil(self.steps / self.config.accumulate)

    def count_steps(self) -> dict[str, Any]:
        """Returns the numbers of epochs, samples, steps, updates and processes, JSON-serializable."""
        return {
            "epochs": self.config.epochs,
            "batch_size": self.config.batch_size,
            "learned": len(self.learned),
            "steps_per_epoch": self.steps_per_epoch,
            "steps": self.steps,
            "updates": self.updates,
            "processes": self.processes,
        }


class Resolved(Protocol):
    """A resolved plan: `coulomb.training.plan.plan.Plan` of images, `coulomb.training.plan.columns.ColumnsPlan` of columns."""

    @property
    def config(self) -> Config:
        """The complete configuration."""
        ...

    @property
    def method(self) -> type[Method]:
        """The class of the method."""
        ...

    @property
    def module(self) -> nn.Module | None:
        """The user's own encoder; None for an encoder that ``config`` names."""
        ...

    @property
    def processes(self) -> int:
        """Number of processes that the run begins with."""
        ...

    @property
    def learned(self) -> np.ndarray:
        """Rows of the table that the method learns from."""
        ...

    @property
    def learned_labels(self) -> np.ndarray | None:
        """Their labels, −1 unknown; None without labels."""
        ...

    @property
    def blocks(self) -> Blocks | None:
        """Parts of shards that are read at once; None where cells are read one by one."""
        ...

    @property
    def epochs_of(self) -> int:
        """Steps from which on a checkpoint is written at the end of each epoch."""
        ...

    @property
    def batch(self) -> int:
        """Samples per step of all processes together."""
        ...

    @property
    def steps(self) -> int:
        """Batches in the whole run."""
        ...

    @property
    def updates(self) -> int:
        """Optimizer steps in the whole run."""
        ...
