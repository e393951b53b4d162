"""Every option of a run, in one place: the same names in Python, on the command line and in ``config.yaml``."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.files import write_atomically
from coulomb.ground.names_elsewhere import run_option
from coulomb.ground.reading import RESTORE, read_yaml
from coulomb.methods import METHODS
from coulomb.methods.options import check_method_name
from coulomb.metrics.class_accuracy import FEW_BELOW, MANY_ABOVE, check_thresholds
from coulomb.models.backbones import NORMS
from coulomb.models.tuning import STATISTICS, Tune
from coulomb.tables.split import SAMPLERS, LongTail

LOGGERS = ("tensorboard", "wandb", "mlflow", "csv", "none")
SCHEDULES = ("cosine", "step", "constant")  # of the learning rate, see `coulomb.training.optimizers.rate`
MOST, MOST_SEED = 10**9, 2**63 - 1  # largest whole numbers: far above any use, and products with them fit 64 bits


def _about(panel: str, text: str, *, choices: tuple[str, ...] | None = None, **limits: float) -> dict:
    """Describes an option: its panel in the help of commands, its help text, choices and limits, see `require_option`."""
    return {"panel": panel, "help": text, "choices": choices, "limits": limits}


def _option(panel: str, default: Any, text: str, **limits: Any) -> Any:
    return field(default=default, metadata=_about(panel, text, **limits))


_data, _method, _optimization, _views, _run, _evaluation = (
    partial(_option, panel) for panel in ("Data", "Method", "Optimization", "Views", "Run", "Evaluation")
)


@dataclass(frozen=True)
class Config:
    """The complete configuration of a run. None means that the recipe decides from the data; the result is then saved.

    The limits of one option stand beside its default; rules about several are in ``__post_init__``.
    """

    data: str = _data(
        "digits",
        "images: digits, a folder, a CSV or Parquet list, Parquet with images, tar shards, URLs of shards, .npy/.npz, "
        "a hub name; with --columns also texts and vectors: CSV, JSON lines, .txt",
    )
    columns: str | None = _data(
        None,
        "columns to contrast, such as image,caption; NAME:text, NAME:image or NAME:vector gives the kind, and "
        "NAME:negative marks hard negatives; default: images alone",
    )
    test: str | None = _data(None, "held-out images; default: a stratified split of DATA, which is saved")
    labels: str | None = _data(None, "column of a table that holds the labels; 'none' ignores all labels")
    test_fraction: float = _data(0.2, "fraction of DATA that is held out without --test", at_least=0.0, below=1.0)
    group: str | None = _data(
        None, "keep images of a group on one side of the split: a column of a table, folder, folder:2 (level), or name"
    )
    long_tail: str | None = _data(
        None, "subsample the training images: exponential:100 or step:100 (largest over smallest class); own: unchanged"
    )
    sampler: str = _data(
        "uniform", "how often each class is drawn; all but uniform need labels", choices=tuple(SAMPLERS)
    )
    root: str | None = _data(None, "folder that the paths of a list are relative to; they must stay inside it")
    cache_gb: float = _data(1.0, "keep decoded images in memory up to this size (GiB)", at_least=0.0)
    workers: int | None = _data(None, "processes that decode images; default: the number of cores", at_least=0)
    max_corrupt: float = _data(0.01, "stop if more than this fraction of the images is unreadable", at_least=0.0)
    method: str = _method("simclr", f"{', '.join(METHODS)}, or my_file.py:MyMethod")
    encoder: str | None = _method(
        None,
        "auto (lite0 for color photos, else from scratch), lite0 (ImageNet weights), lite0-stages (the same, features of "
        "several stages: for enlarged small images), hf:NAME@weights, timm:NAME@weights, "
        "run:FOLDER (an earlier run), a folder or .safetensors file; with random weights: convnet, convnet-pool, resnet10, "
        "resnet18, resnet34, resnet50, vit, lite0-random, hf:NAME, timm:NAME; or my_file.py:MyEncoder; texts: static, "
        "transformer-small, hf:NAME@weights; with --columns by column: image=lite0,caption=static",
    )
    from_scratch: bool = _method(False, "begin from random weights, also where encoder=auto would begin from weights")
    tune: str | None = _method(
        None,
        "what the training changes: all, last:K, head, lora:R, norm, none (cached features), whiten (closed form); with "
        "--columns by column: image=none,caption=last:2",
    )
    norm_statistics: str = _method(
        "moving",
        "batch norms that train: moving follows the training images, frozen keeps the statistics of the weights",
        choices=STATISTICS,
    )
    stay_close: float = _method(
        0.0, "weight of 1 − cosine between a view's features now and by the starting network", at_least=0.0
    )
    whitening: float = _method(
        0.0,
        "power of the whitening of the features after training, from 0 (none) to 1: better neighbors, slightly worse "
        "few-shot accuracy",
        at_least=0.0,
        at_most=1.0,
    )
    temperature: float = _method(0.5, "temperature τ, which divides the similarities", at_least=1e-4)
    preset: str = _method("small", "small is for CPUs, paper has the authors' settings", choices=("small", "paper"))
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("Method", "an option of the method; may be repeated")
    )
    embedding_dim: int = _method(128, "output width of the projection head", at_least=1)
    head_layers: int = _method(2, "linear layers in the projection head", at_least=1)
    head_hidden_dim: int | None = _method(
        None, "hidden width of the projection head; default: the feature width", at_least=1
    )
    encoder_width: int | None = _method(None, "channels of the encoder's first stage", at_least=1)
    norm: str = _method(
        "batch", "norm layers of convnet and resnets: batch, or group, which no other image influences", choices=NORMS
    )
    epochs: int = _optimization(100, "passes over the training images", at_least=0)
    batch_size: int = _optimization(
        256, "images per step and process; the contrastive batch spans all processes", at_least=2
    )
    micro_batch: int | None = _optimization(
        None,
        "views that the encoder takes at a time, twice: its memory is theirs, the loss sees the whole batch; default: all",
        at_least=1,
    )
    lr: float = _optimization(0.06, "peak learning rate", at_least=0.0)
    optimizer: str = _optimization("sgd", "optimizer", choices=("sgd", "adamw", "lars", "muon"))
    weight_decay: float = _optimization(5e-4, "weight decay, not applied to norms and biases", at_least=0.0)
    warmup_epochs: float = _optimization(0.0, "epochs of linear warm-up before the schedule", at_least=0.0)
    head_epochs: float = _optimization(0.0, "epochs at the beginning in which only the head is trained", at_least=0.0)
    layer_decay: float = _optimization(
        1.0,
        "factor on the learning rate from each block of the encoder to the one before it; usual is 0.75",
        above=0.0,
        at_most=1.0,
    )
    schedule: str = _optimization("cosine", "learning rate after the warm-up", choices=SCHEDULES)
    lr_drops: list[float] = field(
        default_factory=lambda: [0.6, 0.8],
        metadata=_about(
            "Optimization", "with --schedule step: fractions of the run at which the learning rate is divided by ten"
        ),
    )
    momentum: float = _optimization(0.9, "momentum of SGD and LARS", at_least=0.0)
    accumulate: int = _optimization(
        1, "steps whose gradients are averaged for one update; this does NOT enlarge the contrastive batch", at_least=1
    )
    precision: str = _optimization("32", "arithmetic of the network", choices=("32", "bf16"))
    compile: bool = _optimization(
        False, "compile the encoder with torch.compile: takes a minute, needs a compiler, results differ by rounding"
    )
    views: str | None = _views(None, "augmentation preset: natural, small-natural, digits, single-channel")
    view_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("Views", "an augmentation strength; may be repeated")
    )
    n_views: int = _views(2, "views per image in a batch; most methods need 2", at_least=1)
    cached_views: int = _views(8, "with --tune none: views per image whose features are computed once", at_least=1)
    neighbors: int = _views(
        0,
        "with --tune none: positives are views of this many nearest images; 0: other views of the same image",
        at_least=0,
    )
    keep_cache: bool = _views(False, "with --tune none: keep the file of the features after the training")
    longest: int | None = _views(
        None, "tokens of a text that are used; default: the encoder's limit, at most 128", at_least=1
    )
    image_size: int | None = _views(None, "side of the network's input in pixels", at_least=4)
    channels: int | None = _views(None, "channels of the network's input: 1 gray, 3 color", at_least=1)
    bands: str | None = _views(None, "channels of satellite or microscopy images that are used, such as 4,3,2 or 1-4")
    out: str | None = _run(None, "run folder to create; default: runs/NAME-METHOD")
    seed: int = _run(0, "seed of every random draw", at_least=-MOST_SEED, at_most=MOST_SEED)
    logger: str = _run(
        "tensorboard", f"where the lines of metrics.jsonl are sent as well, while the run trains: {', '.join(LOGGERS)}"
    )
    accelerator: str = _run("auto", "where to train", choices=("auto", "cpu", "gpu"))
    devices: int | None = _run(
        None, "processes on this machine, one per GPU; default: one on the CPU, all GPUs otherwise", at_least=1
    )
    num_nodes: int = _run(1, "machines that train together", at_least=1)
    process_timeout: float = _run(
        1800.0, "seconds after which a process that waits for another one gives up the run", at_least=1.0
    )
    sync_batchnorm: bool = _run(
        False, "with several processes: batch norms use the images of all; default: each process uses its images only"
    )
    pulse: int = _run(
        10, "updates between measurements of negatives, gradients and weights for metrics.jsonl; 0 for none", at_least=0
    )
    checkpoint_every: int = _run(200, "updates between checkpoints, in addition to one per epoch", at_least=1)
    knn_every: int | None = _evaluation(None, "epochs between live kNN evaluations; 0 for none", at_least=0)
    knn_k: int = _evaluation(
        200, "neighbors in the kNN evaluation; with --preset small 20 below 10,000 training images", at_least=1
    )
    knn_sigma: float = _evaluation(0.1, "temperature of the kNN weights, exp(cos/sigma)", at_least=1e-4)
    many_above: int = _evaluation(
        MANY_ABOVE, "classes with more training images than this are the 'many' ones", at_least=0
    )
    few_below: int = _evaluation(
        FEW_BELOW, "classes with fewer training images than this are the 'few' ones", at_least=0
    )

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Config)
        for option in dataclasses.fields(self):
            value, limits = getattr(self, option.name), option.metadata["limits"]
            if isinstance(value, int) and value > MOST:
                limits = {"at_most": MOST} | limits
            require_option(option.name, value, hints[option.name], choices=option.metadata["choices"], **limits)
        check_method_name(self.method)
        if not all(isinstance(share, int | float) and 0 <= share <= 1 for share in self.lr_drops):
            raise InputError(f"lr_drops={self.lr_drops!r}: must be fractions of the run, from 0 to 1")
        if self.logger not in LOGGERS and not self.logger.startswith("custom:"):
            raise InputError(
                f"logger={self.logger!r}: must be one of {', '.join(LOGGERS)}, or in Python a logger of Lightning"
            )
        check_thresholds(self.many_above, self.few_below)
        for name in ("warmup_epochs", "head_epochs"):
            if getattr(self, name) > self.epochs:
                raise InputError(f"{name}={getattr(self, name)!r}: more than the {self.epochs} epochs of the run")
        if self.columns is not None:
            return  # the others: coulomb.training.plan.columns
        tune = Tune.parse(self.tune)
        for name in ("stay_close", "head_epochs"):
            if tune.frozen and getattr(self, name):
                raise InputError(
                    f"{name}={getattr(self, name)!r}: has no effect with tune={self.tune!r}, which only trains a head; "
                    "leave it out, or use tune='all', 'last:K' or 'lora:R'"
                )
        if self.whitening and tune.kind in ("none", "head"):
            raise InputError(
                f"whitening={self.whitening!r}: has no effect with tune={self.tune!r}, which trains an adapter; leave it "
                "out, or use tune='whiten'"
            )
        if self.sync_batchnorm and self.micro_batch:
            raise InputError(
                f"sync_batchnorm=True: has no effect with micro_batch={self.micro_batch}, which uses the statistics of micro-"
                "batches; leave out one of them, or use norm='group'"
            )
        if self.long_tail is not None:
            LongTail.parse(self.long_tail)
        if self.neighbors and (tune.kind != "none" or self.n_views < 2):
            raise InputError(
                f"neighbors={self.neighbors!r}: needs tune='none' and n_views of at least 2, not tune={self.tune!r} and "
                f"n_views={self.n_views}; leave it out"
            )
        if tune.kind == "none" and self.micro_batch is not None:
            raise InputError(
                f"micro_batch={self.micro_batch!r}: has no effect with tune='none', which computes features once; leave it out"
            )
        if tune.kind in ("none", "whiten") and self.compile:
            raise InputError(
                f"compile=True: has no effect with tune={tune.kind!r}, which computes features once; leave it out"
            )
        if tune.kind == "none" and self.cached_views < self.n_views:
            raise InputError(
                f"cached_views={self.cached_views!r}: fewer than n_views={self.n_views}; use at least as many"
            )

    @property
    def frozen_kind(self) -> str | None:
        """``head``, ``none`` or ``whiten`` if ``tune`` keeps the backbone frozen, see `Tune`; else None, as with columns."""
        return None if self.columns is not None else Tune.parse(self.tune).frozen_kind

    @property
    def encoder_options(self) -> dict[str, Any]:
        """The options of the built-in encoder that are not its defaults, see `coulomb.models.build_encoder`."""
        chosen = {"width": self.encoder_width, "norm": None if self.norm == "batch" else self.norm}
        return {name: value for name, value in chosen.items() if value is not None}

    def save(self, path: Path) -> None:
        """Writes ``config.yaml``."""
        text = yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)
        write_atomically(path, text.encode("utf-8"))


def option_names() -> list[str]:
    """Returns the names of all options, in order."""
    return [option.name for option in dataclasses.fields(Config)]


def load_config(path: Path) -> Config:
    """Reads the configuration from a ``config.yaml``.

    Raises:
        InputError: the file cannot be read (see `coulomb.ground.reading.read_yaml`), or it has unknown options or
            wrong values.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: does not contain options as 'name: value' lines; {RESTORE}")
    try:
        check_names(values)
        return Config(**values)
    except InputError as error:
        raise InputError(f"{path}: {shortened(str(error))}; correct this entry, or {RESTORE}") from None


def shortened(message: str, most: int = 300) -> str:
    """Returns ``message`` without its middle if it is longer than ``most`` characters, as values from a file may be."""
    return message if len(message) <= most else f"{message[: most // 2]} … {message[-most // 2 :]}"


def check_names(values: Mapping[str, Any]) -> None:
    """Raises `InputError` for an unknown option, with the nearest name."""
    for name in values:
        if name not in option_names():
            here = run_option(str(name), option_names())
            hint = did_you_mean(str(name), option_names()) if here is None else f"; use {here!r}"
            raise InputError(f"unknown option {name!r}{hint}")
