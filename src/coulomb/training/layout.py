"""The processes of a run: how many, where, and the part of each in a batch."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy

from coulomb.ground.errors import InputError
from coulomb.ground.team import Torchrun, torchrun
from coulomb.training.plan.config import Config
from coulomb.training.plan.given import Given
from coulomb.training.plan.resolved import Resolved, count_processes

log = logging.getLogger("coulomb")

REPORT_SECONDS = 60  # for a process to report that another one has ended


class PatientDDP(DDPStrategy):
    """DDP in which the first process reports that another one has ended.

    Lightning's observer looks every 5 seconds and kills the first process at once, often before its message is printed; here
    it waits `REPORT_SECONDS`, so that only a process that hangs is killed.
    """

    def setup_environment(self) -> None:
        """Delays the observer, which runs from here on."""
        super().setup_environment()
        for thread in threading.enumerate():
            if thread.name == "child-process-observer":
                thread._terminate_all = partial(_kill_later, thread._terminate_all)  # type: ignore[attr-defined]


def _kill_later(kill: Callable[[], None]) -> None:
    time.sleep(REPORT_SECONDS)
    kill()


class StartedByTorchrun(TorchElasticEnvironment):
    """The processes that torchrun started, which may be more on one machine than on another."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Accepts any number: torchrun has decided it."""


def with_processes(given: Given) -> Given:
    """Returns the options of a new run with the numbers of processes and machines that torchrun started.

    Raises:
        InputError: ``devices`` or ``num_nodes`` are other numbers.
    """
    if (started := torchrun()) is None:
        return given
    even = started.local * started.machines == started.world
    found = {"devices": started.local if even else started.world, "num_nodes": started.machines}
    require_agreement(started, given.named.get("devices"), given.named.get("num_nodes"))
    return dataclasses.replace(given, named=given.named | found)


def require_agreement(started: Torchrun, devices: int | None, num_nodes: int | None) -> None:
    """Raises `InputError` if the given numbers differ from torchrun's; None is any number."""
    given = {"devices": devices, "num_nodes": num_nodes}
    for (name, value), real in zip(given.items(), (started.local, started.machines), strict=True):
        if value not in (None, real):
            raise InputError(
                f"{name}={value}: torchrun started {started.local} processes on this machine and {started.world} in total; "
                f"leave {name} out"
            )


def resumed_on(config: Config, devices: int | None, num_nodes: int | None) -> Config:
    """Returns the configuration of a resumed run with other numbers of processes and machines, in memory only.

    ``batch_size`` remains the batch per process that the run began with, see `coulomb.training.plan.plan.Plan.batch`.
    """
    if (started := torchrun()) is not None:
        require_agreement(started, devices, num_nodes)
        return config
    changes: dict[str, Any] = {
        name: each for name, each in (("devices", devices), ("num_nodes", num_nodes)) if each is not None
    }
    return dataclasses.replace(config, **changes)


def make_trainer(config: Config, folder: Path) -> pl.Trainer:
    """Returns Lightning's trainer for the processes of torchrun, else for those that ``config`` starts.

    Raises:
        InputError: a GPU is requested and there is none.
    """
    accelerator, started = config.accelerator, torchrun()
    devices: int | str = config.devices or ("auto" if accelerator == "gpu" or torch.cuda.is_available() else 1)
    nodes, world = config.num_nodes, count_processes(config)
    if started is not None:
        devices, nodes, world = started.local, started.machines, started.world
    if accelerator == "gpu" and not torch.accelerator.is_available():
        raise InputError(f"accelerator={accelerator!r}: torch finds no GPU on this machine; use 'auto' or 'cpu'")
    strategy: Any = "auto"
    if world > 1:
        # While only the head is trained, no gradient reaches the encoder.
        unused, timeout = bool(config.head_epochs), timedelta(seconds=config.process_timeout)
        strategy = PatientDDP(find_unused_parameters=unused, timeout=timeout)
    return pl.Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        plugins=[StartedByTorchrun()] if started is not None and world > 1 else None,
        precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        max_epochs=1,
        accumulate_grad_batches=config.accumulate,
        use_distributed_sampler=False,
        logger=False,  # the journal writes all metrics, to the loggers too
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=2,  # callbacks such as EarlyStopping then check at live evaluations, see OwnCallbacks
        limit_val_batches=0,
        log_every_n_steps=1,
    )


def require_shares(plan: Resolved, world: int) -> None:
    """Checks that the batch of a run can be divided among ``world`` processes, and logs the shares if they have changed.

    Raises:
        InputError: a share has fewer than two images, or shares differ and the method has no `Method.local_mean`.
    """
    batch, began = plan.batch, plan.processes
    least, rest = divmod(batch, world)
    if least < 2:
        raise InputError(
            f"devices: a batch of {batch} images leaves fewer than two for each of {world} processes; "
            f"start at most {batch // 2}"
        )
    if rest and plan.method.local_mean is None:
        raise InputError(
            f"devices: a batch of {batch} images does not divide evenly among {world} processes, and {plan.method.__name__} "
            "does not say how its loss is averaged; start a number that divides it, or set local_mean (see "
            "coulomb.methods.Method)"
        )
    if world != began:
        each = f"{least} to {least + 1}" if rest else f"{least}"
        log.info(
            "the run began on %d processes and continues on %d: the batch remains %d images, %s per process",
            began, world, batch, each,
        )  # fmt: skip
