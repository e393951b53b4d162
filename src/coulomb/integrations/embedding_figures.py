"""Figures of the embeddings that pass through a loss, and the doctor's live warnings: what the callbacks here have in common.

Nothing of Lightning or transformers is imported here.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from coulomb.evaluation.doctor import Watcher
from coulomb.ground.checked import checked_number, checked_whole, warn
from coulomb.integrations.open_clip import ClipLoss, SigLipLoss
from coulomb.losses import InfoNCELoss, NTXentLoss, SigmoidLoss
from coulomb.losses.options import Loss
from coulomb.metrics import alignment, effective_rank, feature_std, hardness, uniformity
from coulomb.metrics.hardness import Hardness
from coulomb.training.watching.loss_inputs import Labels, read_inputs

EVERY = 50  # updates
ROWS = 512  # of a batch that are measured
KINDS = (Loss, ClipLoss, SigLipLoss)  # losses that are found in a model
METHODS = (
    "compute_loss_from_embeddings",
    "calculate_loss",
)  # of losses of sentence-transformers, whose own calls take texts

log = logging.getLogger("coulomb")


class EmbeddingFigures:
    """Measures the embeddings that a loss is called with, at the first update and at every ``every``-th one.

    Figures, each left out where it is not defined:

    - ``alignment``, ``uniformity`` (Wang and Isola, 2020), ``embedding_rank`` (`coulomb.metrics.effective_rank`) and
      ``embedding_std`` (√D times the standard deviation; 1: even, 0: collapsed) of the unit embeddings;
    - ``effective_negatives``, ``top1_gradient``, ``top10pct_gradient``: how the negatives share the repulsive gradient of a
      softmax, see `coulomb.metrics.Hardness`;
    - ``temperature``.

    With several processes, the first process measures its own rows. The measurement does not affect the training: hooks
    exist for one update only, and no random number is drawn. Of several calls in an update, the first is measured.

    Args:
        loss: the module that is called with embeddings: two matrices [N, D], one [N, V, D] with V views, or one matrix. Any
            module may be named, and losses of sentence-transformers, which compute embeddings themselves. None: all losses of
            coulomb in the model; without one, call `observe`.
        every: updates between measurements.
        rows: at most so many rows of a batch are measured, evenly spaced.
        temperature: τ, for losses whose temperature cannot be read.

    Attributes:
        latest: the figures of the last measurement.
        warnings: the doctor's warnings so far; each is also logged, once.
    """

    def __init__(
        self, loss: nn.Module | None = None, *, every: int = EVERY, rows: int = ROWS, temperature: float | None = None
    ) -> None:
        if loss is not None and not isinstance(loss, nn.Module):
            raise TypeError(f"loss must be a module that is called with embeddings, got {type(loss).__name__}")
        self.loss, self.every = loss, checked_whole("every", every)
        self.rows = checked_whole("rows", rows, at_least=2)
        self.temperature = None if temperature is None else checked_number("temperature", temperature, above=0)
        self.latest: dict[str, float] = {}
        self.warnings: list[str] = []
        self._config: dict[str, Any] = {}
        self._watcher = Watcher(self._config, {}, remedies=False)
        self._hooks: list[Any] = []
        self._listening = False
        self._line: dict[str, Any] = {}
        self._measured = 0  # update

    def is_due(self, update: int) -> bool:
        """True if ``update``, counted from 1, is measured; only once for the batches of an update."""
        return (update == 1 or update % self.every == 0) and update != self._measured

    def listen(self, model: nn.Module) -> None:
        """Registers hooks at the losses, until `finish`."""
        self._remove_hooks()
        root = model if self.loss is None else self.loss
        losses = [part for part in root.modules() if isinstance(part, KINDS) or part is self.loss]
        self._hooks = [part.register_forward_hook(self._listener(model), with_kwargs=True) for part in losses]
        if self.loss is not None:
            self._hooks += [Wrapped(self.loss, name, self._look) for name in METHODS if hasattr(self.loss, name)]
        self._listening, self._line = True, {}

    def observe(self, first: Tensor, second: Tensor | None = None, *, temperature: float | None = None) -> None:
        """Measures embeddings [N, D], and those of the other views or modality, if a measurement is due.

        For losses that are functions, or whose arguments are not embeddings: call it in every step, with or without gradient.
        """
        if not self._listening or self._line:
            return
        with torch.no_grad(), torch.autocast(first.device.type, enabled=False):
            self._line = figures_of(first, second, temperature or self.temperature, self.rows)

    def finish(self, update: int, epoch: int) -> dict[str, float]:
        """Removes the hooks, and returns the figures of this update. Logs the doctor's new warnings.

        Args:
            update: counted from 1.
            epoch: counted from 1.
        """
        self._remove_hooks()
        self._listening, self._measured = False, update
        line, self._line = self._line, {}
        if "dim" not in line:
            if not self.latest:
                warn(
                    f"update {update}: no loss was called with embeddings, so that nothing is measured; pass the module that "
                    "is (loss=…), or call observe(first, second) in the training step"
                )
            return {}
        self.latest = {name: value for name, value in line.items() if name not in ("loss", "no_signal")}
        self._config["embedding_dim"] = line.pop("dim")
        del self.latest["dim"]
        if "temperature" in line:
            self._config["temperature"] = line["temperature"]
        for sentence in self._watcher.read(line | {"step": update, "epoch": epoch}):
            said = sentence.replace("images", "samples")
            self.warnings.append(said)
            log.warning("%s", said)
        return self.latest

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _listener(self, model: nn.Module) -> Any:
        def listen(loss: nn.Module, given: tuple[Any, ...], named: dict[str, Any], value: Any) -> None:
            if self._line:
                return
            try:
                call = dict(inspect.signature(loss.forward).bind(*given, **named).arguments)
            except TypeError:  # the signature of a wrapper
                call = {str(place): each for place, each in enumerate(given)} | named
            self._look(loss, call, value, lambda: read_inputs(loss, given, named, model, Labels()).hardness)

        return listen

    def _look(
        self,
        loss: nn.Module,
        call: Mapping[str, Any],
        value: Any,
        shares: Callable[[], Hardness | None] = lambda: None,
    ) -> None:
        """Measures the arguments of a call, unless there is a measurement already.

        ``shares``: how the negatives share the gradient, if they are known.
        """
        found = None if self._line else embeddings_in(call.values())
        if found is None:
            return
        with torch.no_grad(), torch.autocast(found[0].device.type, enabled=False):
            temperature = temperature_of(loss, call) or self.temperature
            weighs = not isinstance(loss, SigmoidLoss | SigLipLoss)  # negatives by a softmax
            self._line = figures_of(*found, temperature, self.rows, shares(), weighs=weighs)
            self._line |= loss_figures(loss, call, value)


class Wrapped:
    """A method of a module that reports its arguments and its result, until `remove`."""

    def __init__(self, module: nn.Module, name: str, look: Callable[[nn.Module, Mapping[str, Any], Any], None]) -> None:
        self.module, self.name = module, name
        method = getattr(module, name)

        @functools.wraps(method)
        def wrapped(*given: Any, **named: Any) -> Any:
            value = method(*given, **named)
            look(module, {str(place): each for place, each in enumerate(given)} | named, value)
            return value

        setattr(module, name, wrapped)

    def remove(self) -> None:
        """Leaves the method of the class."""
        if self.name in vars(self.module):
            delattr(self.module, self.name)


def embeddings_in(values: Iterable[Any]) -> tuple[Tensor, Tensor | None] | None:
    """Returns the first two of the matrices [N, D] with equally many rows, or two views of [N, V, D]; None without any."""
    found = [one for one in tensors_in(values) if one.is_floating_point() and one.ndim in (2, 3) and one.numel()]
    if not found:
        return None
    first = found[0]
    if first.ndim == 3:
        return first[:, 0], first[:, 1] if first.shape[1] > 1 else None
    same = [one for one in found[1:] if one.shape == first.shape]
    return first, same[0] if same else None


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yields the tensors among ``values``, also those in lists: of columns, each of which may be a list of mini-batches."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for column in value:
                parts = column if isinstance(column, list | tuple) else [column]
                if parts and all(isinstance(part, Tensor) and part.ndim == 2 for part in parts):
                    yield torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def temperature_of(loss: nn.Module, call: Mapping[str, Any]) -> float | None:
    """Returns τ of a call: 1/scale if the scale is an argument, else the loss's temperature or 1/scale; None if unknown."""
    if (scale := call.get("scale", call.get("logit_scale"))) is not None:
        return 1 / float(torch.as_tensor(scale).detach())
    if isinstance(loss, SigmoidLoss):
        learned: Any = loss.log_scale
        return 1 / (loss.scale if learned is None else float(learned.detach().exp()))
    for name in ("temperature", "scale"):
        given: Any = getattr(loss, name, None)
        given = given() if isinstance(given, nn.Module) else given
        given = float(given.detach()) if isinstance(given, Tensor) and given.numel() == 1 else given
        if isinstance(given, int | float) and given > 0:
            return float(given) if name == "temperature" else 1 / given
    return None


def figures_of(
    first: Tensor,
    second: Tensor | None,
    temperature: float | None,
    rows: int,
    known: Hardness | None = None,
    *,
    weighs: bool = True,
) -> dict[str, Any]:
    """Returns the figures of embeddings, and ``dim``; empty for fewer than two rows, or values that are not finite.

    Args:
        first, second: [N, D].
        temperature: τ.
        rows: how many are measured.
        known: how the negatives share the gradient, if the loss's negatives are known; else the other rows of ``second`` are.
        weighs: False for a loss that does not weigh its negatives by a softmax.
    """
    some = torch.arange(min(rows, len(first)), device=first.device) * len(first) // min(rows, len(first))
    both = [None if part is None else normalize(part.detach()[some].float(), dim=1) for part in (first, second)]
    x, y = both
    if x is None or len(x) < 2 or not all(bool(part.isfinite().all()) for part in both if part is not None):
        return {}
    line: dict[str, Any] = {"dim": x.shape[1]}
    if y is not None:
        line["alignment"] = alignment(x, y)
    line |= {"uniformity": uniformity(x), "embedding_rank": effective_rank(x), "embedding_std": feature_std(x)}
    if known is None and weighs and y is not None and temperature is not None:
        places = torch.arange(len(x), device=x.device)
        known = hardness(x, temperature, y, ids=places, key_ids=places)
    if known is not None:
        line["effective_negatives"] = known.effective_negatives
        line["top1_gradient"], line["top10pct_gradient"] = known.top1, known.top10pct
    if temperature is not None:
        line["temperature"] = temperature
    return line


def loss_figures(loss: nn.Module, call: Mapping[str, Any], value: Any) -> dict[str, float]:
    """Returns the ``loss`` and, of losses where it is known, ``no_signal``, its value for constant embeddings."""
    value = next(iter(value.values())) if isinstance(value, dict) and value else value
    value = value[0] if isinstance(value, tuple) and value else value
    if not isinstance(value, Tensor) or value.numel() != 1:
        return {}
    line = {"loss": float(value.detach())}
    keys = keys_of(loss, call)
    if keys is not None:
        line["no_signal"] = float(torch.tensor(keys, dtype=torch.float64).log())
    return line


def keys_of(loss: nn.Module, call: Mapping[str, Any]) -> int | None:
    """Returns how many keys the softmax of each anchor covers in a plain call of InfoNCE or NT-Xent; else None.

    Batches of all processes are taken to be equally large.
    """
    if isinstance(loss, ClipLoss):
        return len(call["image_features"]) * loss.world_size
    if not isinstance(loss, InfoNCELoss | NTXentLoss) or loss.reduction != "mean":
        return None
    gathers = loss.gather is not False and dist.is_available() and dist.is_initialized()
    world = dist.get_world_size() if gathers else 1
    if isinstance(loss, NTXentLoss):
        first = call["view0"]
        return len(first) * (2 if first.ndim == 2 else first.shape[1]) * world - 1
    if call.get("negatives") is not None or call.get("ids") is not None:
        return None
    return len(call["query"]) * world
