"""Every option of a run, in one place: the same names in Python, on the command line and in ``config.yaml``."""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from coulomb.data.samplers import SAMPLERS
from coulomb.data.split import LongTail
from coulomb.errors import InputError, did_you_mean
from coulomb.methods import METHODS
from coulomb.methods.options import check_method_name
from coulomb.metrics.class_accuracy import FEW_BELOW, MANY_ABOVE, check_thresholds
from coulomb.models.saving import write_atomically
from coulomb.reading import RESTORE, read_yaml

SCHEDULES = ("cosine", "step", "constant")  # of the learning rate, see `coulomb.training.optimizers.rate`
MOST, MOST_SEED = 10**9, 2**63 - 1  # of whole numbers: far above any use, and arithmetic with them fits 64 bits


def _option(default: Any, text: str, *, choices: tuple[str, ...] | None = None, least: float | None = None) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices, "least": least})


@dataclass(frozen=True)
class Config:
    """The complete configuration of a run. ``None`` means: decided from the data by the recipe, then written down."""

    data: str = _option(
        "digits", "images: digits, a folder, a CSV/Parquet list, a Parquet of images, .npy/.npz, a hub name"
    )
    test: str | None = _option(None, "held-out images; without it a stratified split of DATA is made and written down")
    labels: str | None = _option(None, "column of a table that holds the labels; 'none' ignores all labels")
    root: str | None = _option(None, "folder that the paths of a list are relative to, and must stay in")
    test_fraction: float = _option(0.2, "share of DATA held out when no TEST is given", least=0.0)
    long_tail: str | None = _option(
        None, "thin out the training part: exponential:100, step:100 (most over fewest images), or own: as it is"
    )
    sampler: str = _option(
        "uniform", "how often images of a class are shown; all but uniform need labels", choices=tuple(SAMPLERS)
    )
    out: str | None = _option(None, "run folder to create; default runs/NAME-METHOD")
    method: str = _option("simclr", f"what to learn by: {', '.join(METHODS)}, or my_file.py:MyMethod")
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's own options, as name=value"}
    )
    preset: str = _option("small", "small: for CPUs; paper: the authors' settings", choices=("small", "paper"))
    encoder: str | None = _option(None, "convnet, resnet10/18/34/50, vit, hf:NAME, timm:NAME, or my_file.py:MyEncoder")
    encoder_width: int | None = _option(None, "channels of the encoder's first stage", least=1)
    image_size: int | None = _option(None, "pixels a side that the network sees", least=4)
    channels: int | None = _option(None, "channels that the network sees: 1 grey, 3 colour", least=1)
    views: str | None = _option(None, "augmentation preset: natural, small-natural, digits, single-channel")
    view_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "single strengths of the views, as name=value"}
    )
    n_views: int = _option(2, "views of each image in a batch; most methods need 2", least=1)
    embedding_dim: int = _option(128, "output width of the projection head", least=1)
    head_layers: int = _option(2, "linear layers in the projection head", least=1)
    head_hidden_dim: int | None = _option(
        None, "hidden width of the projection head; default the feature width", least=1
    )
    temperature: float = _option(0.5, "tau: similarities are divided by it", least=1e-4)
    epochs: int = _option(100, "passes over the training images", least=0)
    batch_size: int = _option(256, "images a step and process; all processes' are the contrastive batch", least=2)
    accumulate: int = _option(
        1, "steps whose gradients are averaged for one update; NOT a bigger contrastive batch", least=1
    )
    optimizer: str = _option("sgd", "update rule", choices=("sgd", "adamw", "lars"))
    lr: float = _option(0.06, "peak learning rate", least=0.0)
    momentum: float = _option(0.9, "momentum of SGD and LARS", least=0.0)
    weight_decay: float = _option(5e-4, "on weights; never on norms and biases", least=0.0)
    warmup_epochs: float = _option(0.0, "epochs of linear warm-up before the cosine decay", least=0.0)
    schedule: str = _option("cosine", "the learning rate after warm-up", choices=SCHEDULES)
    lr_drops: list[float] = field(
        default_factory=lambda: [0.6, 0.8],
        metadata={"help": "shares of the run at which schedule=step divides the learning rate by ten"},
    )
    precision: str = _option("32", "arithmetic of the network", choices=("32", "bf16"))
    accelerator: str = _option("auto", "where to train", choices=("auto", "cpu", "gpu"))
    devices: int | None = _option(None, "processes on this machine, one a GPU; default: one on CPU, all GPUs", least=1)
    num_nodes: int = _option(1, "machines that train together", least=1)
    workers: int | None = _option(None, "processes that decode images; default: the cores, at most 8", least=0)
    cache_gb: float = _option(1.0, "decoded images kept in memory up to this size (GiB)", least=0.0)
    max_corrupt: float = _option(0.01, "share of unreadable images above which the run stops", least=0.0)
    seed: int = _option(0, "of every random draw")
    knn_every: int | None = _option(None, "epochs between live kNN evaluations; 0 for none", least=0)
    pulse: int = _option(
        10, "updates between looks at negatives, gradients and weights, for metrics.jsonl; 0 for none", least=0
    )
    knn_k: int = _option(200, "neighbours of the kNN evaluation", least=1)
    knn_sigma: float = _option(0.1, "temperature of the kNN weights, exp(cos/sigma)", least=1e-4)
    many_above: int = _option(MANY_ABOVE, "classes with more training images than this are the 'many' ones", least=0)
    few_below: int = _option(FEW_BELOW, "classes with fewer training images than this are the 'few' ones", least=0)
    checkpoint_every: int = _option(200, "updates between checkpoints, beside one every epoch", least=1)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Config)
        for option in dataclasses.fields(self):
            _validate(option, hints[option.name], getattr(self, option.name))
        check_method_name(self.method)
        if not 0 <= self.test_fraction < 1:
            raise InputError(f"test_fraction={self.test_fraction!r}: must be at least 0 and below 1")
        if self.long_tail is not None:
            LongTail.parse(self.long_tail)
        if not all(isinstance(share, int | float) and 0 <= share <= 1 for share in self.lr_drops):
            raise InputError(f"lr_drops={self.lr_drops!r}: must be shares of the run, from 0 to 1")
        check_thresholds(self.many_above, self.few_below)
        if self.warmup_epochs > self.epochs:
            raise InputError(f"warmup_epochs={self.warmup_epochs!r}: more than the {self.epochs} epochs of the run")

    def save(self, path: Path) -> None:
        """Write ``config.yaml``."""
        text = yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)
        write_atomically(path, text.encode("utf-8"))


def option_names() -> list[str]:
    """Names of all options, in order."""
    return [option.name for option in dataclasses.fields(Config)]


def load_config(path: Path) -> Config:
    """The configuration in a ``config.yaml``.

    Raises:
        InputError: naming the file: it cannot be read (see `coulomb.reading.read_yaml`), or holds unknown options or wrong
            values.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: does not hold options as 'name: value' lines; {RESTORE}")
    try:
        check_names(values)
        return Config(**values)
    except InputError as error:
        raise InputError(f"{path}: {shortened(str(error))}; mend this entry, or {RESTORE}") from None


def shortened(message: str, most: int = 300) -> str:
    """``message`` with its middle left out if it is longer than ``most`` characters: values of a file may be."""
    return message if len(message) <= most else f"{message[: most // 2]} … {message[-most // 2 :]}"


def check_names(values: dict[str, Any]) -> None:
    """Refuse option names that do not exist, with the nearest that do."""
    for name in values:
        if name not in option_names():
            raise InputError(f"unknown option {name!r}{did_you_mean(str(name), option_names())}")


def _validate(option: dataclasses.Field, hint: Any, value: Any) -> None:
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    plain = tuple(typing.get_origin(kind) or kind for kind in allowed)
    if float in plain and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain):
        wanted = " or ".join("none" if kind is types.NoneType else kind.__name__ for kind in plain)
        raise InputError(f"{option.name}={value!r}: expected {wanted}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{option.name}={value!r}: must be a finite number")
    choices, least = option.metadata.get("choices"), option.metadata.get("least")
    if choices and value not in choices:
        raise InputError(f"{option.name}={value!r}: must be one of {', '.join(choices)}")
    if isinstance(value, int) and abs(value) > (most := MOST_SEED if option.name == "seed" else MOST):
        raise InputError(f"{option.name}={value!r}: must be at most {most}")
    if least is not None and isinstance(value, int | float) and value < least:
        raise InputError(f"{option.name}={value!r}: must be at least {least:g}")
