"""Overhead of the measurements during training (the pulse): ``python -m benchmarks.pulse``."""

from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.command import Json, command, show
from benchmarks.timing import interleaved, medians
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds.kind import Share
from coulomb.methods import METHODS
from coulomb.models import ViewRows, build_encoder
from coulomb.training.order import TrainingBatch
from coulomb.training.plan.config import Config
from coulomb.training.watching.pulse import Pulse

TARGET = 0.03  # overhead, of the training time
PERIOD = int(Config().pulse)
IMAGES = 2048  # size of the simulated data set
CASES: dict[str, dict[str, Any]] = {
    "digits: simclr": {"method": "simclr", "channels": 1, "size": 16},
    "digits: moco, queue of 1024": {"method": "moco", "channels": 1, "size": 16, "own": {"queue_size": 1024}},
    "digits: byol": {"method": "byol", "channels": 1, "size": 16},
    "CIFAR: simclr": {"method": "simclr", "channels": 3, "size": 32},
    "CIFAR: moco, queue of 4096": {"method": "moco", "channels": 3, "size": 32, "own": {"queue_size": 4096}},
}


def bench_pulse(batch: int = 128, repeats: int = 5, cases: list[str] | None = None) -> dict[str, Any]:
    """Measures training steps with and without the pulse, and the pulse's share of the training time at its period.

    As in the small preset: ConvNets of width 32, batches of 128. A step is the method's forward, backward and
    update on random images. Making views is left out, so the share is an upper bound, and so is the pulse of the first update.

    Returns:
        ``{"batch", "period", "threads", "repeats", "cases": {case: {"step", "with_pulse", "share"}}}``; medians in seconds.

    Raises:
        InputError: a number is too small.
    """
    if batch < 2 or repeats < 1:
        raise InputError(f"batch={batch}: must be at least 2; repeats={repeats}: must be at least 1")
    found = {}
    for name, case in CASES.items():
        if cases is not None and name not in cases:
            continue
        step = _Steps(batch, **case)
        seconds = medians(
            interleaved({"step": lambda s=step: s(0), "with_pulse": lambda s=step: s(1)}, repeats, warmup=1)  # type: ignore[misc]
        )
        found[name] = seconds | {"share": (seconds["with_pulse"] - seconds["step"]) / seconds["step"] / PERIOD}
    return {"batch": batch, "period": PERIOD, "threads": torch.get_num_threads(), "repeats": repeats, "cases": found}


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_pulse` as a table."""
    lines = [
        f"the pulse every {result['period']} updates: batch {result['batch']}, {result['threads']} threads, "
        f"median of {result['repeats']}; at most {TARGET:.0%} of training",
        f"{'':40}{'step':>10}{'with it':>10}{'share':>9}",
    ]
    for name, case in result["cases"].items():
        lines.append(f"{name:40}{case['step']:>8.3f} s{case['with_pulse']:>8.3f} s{case['share']:>9.2%}")
    return "\n".join(lines)


class _Steps:
    """A method and its optimizer, with the steps of the trainer."""

    def __init__(self, batch: int, *, method: str, channels: int, size: int, own: dict[str, Any] | None = None):
        network = build_encoder("convnet", channels=channels, image_size=size, width=32)
        made: Any = METHODS[method](METHODS[method].tower_for(network), **(own or {}))
        self.method = made.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=1e-3, momentum=0.9)
        draw = generator(0, "bench", "pulse")
        self.views = [
            torch.rand(batch, channels, size, size, generator=draw).contiguous(memory_format=torch.channels_last)
            for _ in range(2)
        ]
        train_row = torch.randperm(IMAGES, generator=draw)[:batch]
        self.labels = torch.randint(10, (IMAGES,), generator=draw)
        self.batch: Any = TrainingBatch(
            {}, train_row, train_row=train_row, labels=self.labels[train_row], share=Share(torch.arange(batch), batch)
        )
        self.module = SimpleNamespace(method=self.method, completes_update=lambda batch_idx: True)
        self.trainer: Any = SimpleNamespace(is_global_zero=True, global_step=PERIOD - 1)

    def __call__(self, period: int) -> None:
        pulse, trainer, module, batch = Pulse(period, self.labels), self.trainer, self.module, self.batch
        pulse.on_train_batch_start(trainer, module, batch, 0)
        loss = self.method(ViewRows.of(self.views), batch.labels, batch.train_row)
        self.optimizer.zero_grad()
        loss.backward()
        self._tell("after_batch")
        pulse.on_before_optimizer_step(trainer, module, self.optimizer)
        self.optimizer.step()
        self._tell("after_update", 0.5)
        pulse.on_train_batch_end(trainer, module, {}, batch, 0)
        if period and "gradient_norm" not in pulse.figures:
            raise RuntimeError("the pulse was not measured")

    def _tell(self, hook: str, *arguments: float) -> None:
        with torch.no_grad():
            if hasattr(self.method, hook):
                getattr(self.method, hook)(*arguments)


def main(as_json: Json = False) -> None:
    """Measure the overhead of the pulse (negatives, gradients, weights) in percent of a training."""
    show(bench_pulse(), as_json, render)


if __name__ == "__main__":
    command(main, "", "--json")
