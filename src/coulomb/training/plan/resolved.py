"""What the training loop reads of a plan, whatever its samples are; and the steps of a run."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from coulomb.ground.errors import InputError, counted
from coulomb.methods import Method
from coulomb.tables.shards.blocks import Blocks
from coulomb.training.plan.config import Config


@dataclass(frozen=True)
class Split:
    """Rows for training and held-out rows (of the test set, if there is one), and a description of both."""

    train: np.ndarray
    test: np.ndarray
    sentence: str


class Resolved(ABC):
    """What the training loop reads of a plan, whatever its samples are.

    Attributes:
        config: the complete configuration.
        method: the class of the method.
        module: the user's own encoder; None for an encoder that ``config`` names.
        processes: number of processes that the run begins with.
        learned: rows of the table that the method learns from.
        steps_per_epoch: batches per epoch.
    """

    config: Config
    method: type[Method]
    module: nn.Module | None
    processes: int
    learned: np.ndarray
    steps_per_epoch: int

    @property
    @abstractmethod
    def learned_labels(self) -> np.ndarray | None:
        """Labels of ``learned``, −1 unknown; None without labels."""

    @property
    @abstractmethod
    def blocks(self) -> Blocks | None:
        """Parts of shards that are read at once; None where cells are read one by one."""

    @property
    @abstractmethod
    def epochs_of(self) -> int:
        """Steps from which on a checkpoint is written at the end of each epoch."""

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


def count_processes(config: Config) -> int:
    """Returns the number of processes that a run begins with: by default one per GPU, or one on the CPU."""
    gpus = 0 if config.accelerator == "cpu" else torch.cuda.device_count()
    return config.num_nodes * (config.devices or max(gpus, 1))


def batches_per_epoch(samples: int, batch_size: int, processes: int = 1, noun: str = "image") -> int:
    """Returns the number of full batches of ``batch_size`` per epoch and process.

    Raises:
        InputError: there are fewer samples than one batch; ``noun`` says what they are.
    """
    available = samples // processes
    if available >= batch_size:
        return available // batch_size
    each = f" for each of the {processes} processes" if processes > 1 else ""
    if available < 2:
        remedy = "use fewer processes" if each else f"add {noun}s, or pass the held-out ones as test"
        raise InputError(
            f"data: {counted(available, f'training {noun}')}{each}; contrastive learning needs at least 2: {remedy}"
        )
    raise InputError(
        f"batch_size={batch_size}: larger than the {available} training {noun}s{each}; use batch_size={available} or less"
    )
