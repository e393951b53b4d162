"""What a person sees while training runs."""

import sys
import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar


class Bar(TQDMProgressBar):
    """A bar over the whole run: loss beside the loss of no signal (where there is one), the epoch, and the latest kNN."""

    def get_metrics(self, trainer: pl.Trainer, module: Any) -> dict[str, Any]:
        """The figures at the end of the bar."""
        return _figures(module)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Name the bar: Lightning's one pass is our whole run."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description("training")


class Lines(pl.Callback):
    """For logs and pipes: one line an epoch, but not more than one a second, and the last."""

    def __init__(self) -> None:
        self.printed = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print when an epoch is complete."""
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        if rest or not trainer.is_global_zero or (epoch < module.config.epochs and time.monotonic() - self.printed < 1):
            return
        self.printed = time.monotonic()
        figures = "  ".join(f"{name} {value}" for name, value in _figures(module).items() if name != "epoch")
        print(f"epoch {epoch}/{module.config.epochs}  {figures}", file=sys.stderr, flush=True)  # noqa: T201


class Watch(pl.Callback):
    """Remembers the latest figures for whoever shows them."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keep loss, no-signal value and epoch."""
        module.latest = {"loss": float(outputs["value"]), "no_signal": outputs["no_signal"], "batch": batch_idx}


def progress_callbacks() -> list[pl.Callback]:
    """A bar on a terminal, lines elsewhere."""
    return [Watch(), Bar() if sys.stderr.isatty() else Lines()]


def _figures(module: Any) -> dict[str, str]:
    latest = getattr(module, "latest", None)
    if latest is None:
        return {}
    none = latest["no_signal"]
    figures = {
        "epoch": f"{latest['batch'] // module.steps_per_epoch + 1}/{module.config.epochs}",
        "loss": f"{latest['loss']:.3f}" + ("" if none is None else f" (no signal {none:.3f})"),
    }
    if (knn := getattr(module, "latest_knn", None)) is not None:
        figures["kNN"] = f"{knn:.1%}"
    return figures
