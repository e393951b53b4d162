"""Figures of a run's network that its lines do not hold: from the checkpoint, on a batch of views."""

import copy
import logging
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coulomb.assessment.label_figures import label_figures
from coulomb.assessment.transplant import transplants
from coulomb.assessment.view_matcher import matcher_separation
from coulomb.data.views import ViewMaker
from coulomb.diagnostics import hardness, separation, temperature_sweep
from coulomb.evaluation import frozen, view_retrieval
from coulomb.methods import METHODS
from coulomb.models import Encoder
from coulomb.models.saving import load_encoder
from coulomb.randomness import generator
from coulomb.runs.config import Config
from coulomb.runs.objects import Objects
from coulomb.runs.plan import learned_from
from coulomb.runs.prepare import Part, Prepared, label_tensor, position_tensor
from coulomb.runs.run_folder import RunFolder
from coulomb.training.checkpoint_files import load_method
from coulomb.training.network import make_encoder, method_of

MOST, PIXELS = 256, 2**20  # images, and pixels of them, at most: seconds on a CPU, whatever the encoder

log = logging.getLogger("coulomb")


def network_figures(
    config: Config, folder: RunFolder, prepared: Prepared, objects: Objects, views: ViewMaker
) -> dict[str, Any]:
    """What the trained network says; ``{}`` before the first checkpoint.

    - ``distance``, ``growth``: ‖θ − θ₀‖/‖θ₀‖ and ‖θ‖/‖θ₀‖ of the encoder's matrices and filters;
    - ``pixel_retrieval``, ``separation``: how well two views of held-out images are matched by pixels and by embeddings;
      ``identical_views``: share of them whose two views are the same picture; ``matcher_separation``: see
      `coulomb.assessment.view_matcher`;
    - ``transplant``: see `coulomb.assessment.transplant`;
    - ``labels``: kNN accuracy of held-out images by raw pixels and by trained features, ``pixels`` and ``features``, with the
      accuracy of the commonest class, ``chance``, and ``images``, the number of them;
    - ``scale_change``: relative change of the loss of a batch when the head's output is doubled;
    - ``negatives``: shares of the repulsion among the views of a batch at the run's own temperature; ``sweep``: at others, see
      `coulomb.diagnostics.temperature_sweep`.
    """
    if not folder.checkpoint.exists():
        return {}
    encoder = make_encoder(config, prepared, copy.deepcopy(objects.encoder))
    if objects.encoder is not None and folder.initial.exists():
        encoder = load_encoder(folder.initial, module=copy.deepcopy(objects.encoder))
    start = _weights(encoder)
    learned = learned_from(prepared, objects.method_of(config))
    if config.method_options.get("bank_path") is not None:
        return {}  # loading the method would take the bank's file back
    method = method_of(config, prepared, objects, encoder, len(learned))
    own = load_method(method, folder.checkpoint)
    found = _movement(start, _weights(encoder))
    if any(not bool(value.isfinite().all()) for value in own.values() if value.is_floating_point()):
        return found
    most = max(16, min(MOST, PIXELS // prepared.facts.image_size**2))
    try:
        unseen = prepared.unseen.sample(most, config.seed, "pairs")
        found |= _matching(method, encoder, unseen, views, config)
        size = prepared.facts.image_size
        found["matcher_separation"] = matcher_separation(prepared.train, unseen, views, config.seed, size)
        found["labels"] = label_figures(encoder, prepared, views, config)
        part = Part(prepared.train.images, learned, prepared.train.labels)
        part = part.sample(min(most, config.batch_size), config.seed, "doctor")
        found |= _batch(method, part, position_tensor(learned), views, config)
    except Exception as error:
        if config.method in METHODS:
            raise
        log.warning("the doctor could not try %s (%s: %s)", config.method, type(error).__name__, error)
    return found


def _weights(encoder: nn.Module) -> Tensor:
    """All matrices and filters in one vector; norms and biases say little about movement."""
    found = [p.detach().flatten().double() for p in encoder.parameters() if p.ndim > 1]
    return torch.cat(found) if found else torch.empty(0)


def _movement(start: Tensor, end: Tensor) -> dict[str, Any]:
    size = float(start.norm())
    if not size or not bool(end.isfinite().all()):
        return {}
    return {"distance": float((end - start).norm()) / size, "growth": float(end.norm()) / size}


def _matching(method: Any, encoder: Encoder, part: Part, views: ViewMaker, config: Config) -> dict[str, Any]:
    pixels, heads, plain = [], [], []
    with frozen(method):
        for number, batch in enumerate(part.images.batches(part.indices, 256)):
            pair = views(batch["image"], generator(config.seed, "doctor views", number), n=2, aspect=batch["aspect"])
            plain.append(views.plain(batch["image"], batch["aspect"]).float())
            pixels.append(torch.stack([encoder.normalise(view).flatten(1) for view in pair]))
            if hasattr(method, "head"):
                heads.append(torch.stack([method.head(method.encoder(view)).float() for view in pair]))
    if sum(pair.shape[1] for pair in pixels) < 2:
        return {}
    first, second = torch.cat(pixels, dim=1).float()
    found: dict[str, Any] = {"pixel_retrieval": view_retrieval(first, second)}
    found["identical_views"] = float((first == second).all(1).double().mean())
    if heads:
        found["separation"] = separation(*torch.cat(heads, dim=1))
        with frozen(method):
            found["transplant"] = transplants(torch.cat(plain), lambda images: method.head(method.encoder(images)))
    return found


def _batch(method: Any, part: Part, positions: Tensor, views: ViewMaker, config: Config) -> dict[str, Any]:
    batch = next(part.images.batches(part.indices, len(part.indices)))
    drawn = views(batch["image"], generator(config.seed, "doctor batch"), n=config.n_views, aspect=batch["aspect"])
    all_labels = label_tensor(part)
    labels = None if all_labels is None else all_labels[batch["index"]]
    found: dict[str, Any] = {}
    if hasattr(method, "head"):
        found["scale_change"] = _scale_change(method, drawn, labels, positions[batch["index"]])
        found |= _sweep(method, drawn, batch["index"], labels, config)
    return found


def _scale_change(method: Any, drawn: list[Tensor], labels: Tensor | None, index: Tensor) -> float | None:
    """|L(2z) − L(z)| over |L(z)|, in training mode, on a copy; None where losses would wait for other processes."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return None
    trial = copy.deepcopy(method).train()

    def loss() -> float:
        torch.manual_seed(0)
        with torch.no_grad():
            return float(trial(drawn, labels, index))

    before = loss()
    hook = trial.head.register_forward_hook(lambda module, inputs, output: 2 * output)
    after = loss()
    hook.remove()
    return abs(after - before) / max(abs(before), 1e-3)


def _sweep(method: Any, drawn: list[Tensor], index: Tensor, labels: Tensor | None, config: Config) -> dict[str, Any]:
    with frozen(method):
        embedded = torch.cat([method.head(method.encoder(view)).float() for view in drawn[:2]])
    ids = index.repeat(min(2, len(drawn)))
    known = None if labels is None else labels.repeat(min(2, len(drawn)))
    now = hardness(embedded, config.temperature, ids=ids, labels=known)
    if now is None:
        return {}
    shares = {
        "top1_gradient": now.top1,
        "top10pct_gradient": now.top10pct,
        "false_negative_gradient": now.same_class,
        "effective_negatives": now.effective_negatives,
    }
    return {"negatives": shares, "sweep": temperature_sweep(embedded, ids=ids, labels=known).as_dict()}
