"""Figures of a run's network for the doctor: from the checkpoint, on batches of views."""

import copy
import logging
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize

from coulomb.data.views import ViewMaker
from coulomb.methods import METHODS
from coulomb.metrics.features import extract_features, frozen, pixel_features
from coulomb.metrics.hardness import hardness, temperature_sweep
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.retrieval import view_retrieval
from coulomb.metrics.similarities import separation
from coulomb.models import Encoder
from coulomb.models.saving import load_encoder
from coulomb.randomness import generator
from coulomb.runs.config import Config
from coulomb.runs.folder import RunFolder
from coulomb.runs.objects import Objects
from coulomb.runs.plan import learned_from
from coulomb.runs.prepare import Part, Prepared, label_tensor, position_tensor
from coulomb.training.checkpoints import load_method
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
      `matcher_separation`;
    - ``transplant``: see `transplants`;
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


BANK, QUERIES = 2_000, 1_000  # training and held-out images
LABEL_PIXELS = 2**24  # of the training images, at most


def label_figures(encoder: Encoder, prepared: Prepared, views: ViewMaker, config: Config) -> dict[str, Any] | None:
    """``{"pixels", "features", "chance", "images"}``; None where one side of the split has no labels.

    ``pixels`` and ``features`` are kNN accuracies of at most 1,000 held-out images among at most 2,000 training images,
    ``chance`` the accuracy of always answering the class that is commonest among the held-out images.
    """
    most = max(100, LABEL_PIXELS // prepared.facts.image_size**2)
    bank, queries = (
        _labelled_part(prepared.train, min(BANK, most), config),
        _labelled_part(prepared.test, QUERIES, config),
    )
    if bank is None or queries is None:
        return None
    sides = [
        (part, {"pixels": _pixel_rows(encoder, part, views), "features": found[0]}, found[1])
        for part in (bank, queries)
        for found in [extract_features(encoder, part.images, part.indices, views.plain, device=torch.device("cpu"))]
    ]
    (known, known_x, known_at), (asked, asked_x, asked_at) = sides
    assert known.labels is not None and asked.labels is not None
    labels = torch.from_numpy(known.labels[known_at]), torch.from_numpy(asked.labels[asked_at])
    k = min(config.knn_k, len(labels[0]))
    figures: dict[str, Any] = {
        name: knn_accuracy(known_x[name], labels[0], asked_x[name], labels[1], k=k, sigma=config.knn_sigma)
        for name in ("pixels", "features")
    }
    figures["chance"] = float(np.bincount(labels[1].numpy()).max()) / len(labels[1])
    return figures | {"images": len(labels[1])}


def _pixel_rows(encoder: Encoder, part: Part, views: ViewMaker) -> Tensor:
    """Pixels [n, C·S·S], normalised as the encoder's input is."""
    return pixel_features(part.images, part.indices, lambda *given: encoder.normalise(views.plain(*given)))[0]


def _labelled_part(part: Part, most: int, config: Config) -> Part | None:
    if part.labels is None:
        return None
    known = Part(part.images, part.indices[part.labels[part.indices] >= 0], part.labels)
    return known.sample(most, config.seed, "doctor labels") if len(known.indices) else None


STRIP = 4  # a strip is this fraction of the side


def transplants(images: Tensor, embed: Any) -> dict[str, Any]:
    """The region on which the embedding of an image depends most: ``{"region", "share"}``.

    For each strip along an edge, a quarter of the side wide, the strip of every image is replaced by that of another image,
    the donor. ``share`` is the share of images whose embedding is then nearer to the donor's than to its own: three quarters
    of the picture still are the image's own.

    Args:
        images: [n, C, S, S] without augmentation, n ≥ 2.
        embed: images → embeddings [n, D].
    """
    wide = max(1, images.shape[-1] // STRIP)
    first, last = slice(0, wide), slice(-wide, None)
    every = slice(None)
    regions = {"top": (first, every), "bottom": (last, every), "left": (every, first), "right": (every, last)}
    donors = images.roll(1, 0)
    own = normalize(embed(images).float(), dim=1)
    shares = {}
    for name, (rows, columns) in regions.items():
        mixed = images.clone()
        mixed[:, :, rows, columns] = donors[:, :, rows, columns]
        found = normalize(embed(mixed).float(), dim=1)
        nearer = (found * own.roll(1, 0)).sum(1) > (found * own).sum(1)
        shares[name] = float(nearer.double().mean())
    region = max(shares, key=lambda name: shares[name])
    return {"region": region, "share": shares[region]}


SIDE, DIRECTIONS, VIEWS = 8, 16, 4
MATCHER_LEAST, MATCHER_MOST, MATCHER_PIXELS = 64, 1_000, 2**22  # training images, and pixels of them
RIDGE = 1e-2  # of the mean variance


def matcher_separation(train: Part, held_out: Part, views: ViewMaker, seed: int, size: int) -> float | None:
    """P(two held-out views of an image are nearer than views of two images) under a linear map fitted to match views.

    Views are reduced to at most 8 × 8 pixels. The map is Fisher's linear discriminant with every training image as a class:
    the 16 directions in which images differ most in comparison with the views of an image, of four views of up to 1,000
    training images. .5 is chance. It needs no network, so it tells views that are too strong from a network that learned
    nothing. Returns None for fewer than 64 training images.
    """
    fitted = train.sample(min(MATCHER_MOST, max(MATCHER_LEAST, MATCHER_PIXELS // size**2)), seed, "matcher")
    if len(fitted.indices) < MATCHER_LEAST or len(held_out.indices) < 2:
        return None
    known = _small_views(fitted, views, seed, "matcher views", VIEWS)
    mean, project = _discriminant(known)
    first, second = ((_small_views(held_out, views, seed, "matched views", 2) - mean) @ project).float()
    return separation(first, second)


def _small_views(part: Part, views: ViewMaker, seed: int, purpose: str, n: int) -> Tensor:
    """Views [n, images, features] of at most 8 × 8 pixels."""
    found = []
    for number, batch in enumerate(part.images.batches(part.indices, 256)):
        drawn = views(batch["image"], generator(seed, purpose, number), n=n, aspect=batch["aspect"])
        side = min(SIDE, drawn[0].shape[-1])
        found.append(torch.stack([adaptive_avg_pool2d(view, side).flatten(1).double() for view in drawn]))
    return torch.cat(found, dim=1)


def _discriminant(views: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [F] of views [n, images, F], and a map [F, 16] to directions of unit variance within an image."""
    mean, images = views.mean((0, 1)), views.mean(0)
    within = _covariance(views - images) * len(views) / (len(views) - 1)
    between = _covariance(views - mean) - within
    features = len(mean)
    within += torch.eye(features, dtype=views.dtype) * (RIDGE * within.trace() / features + 1e-9)
    root = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(root, between, upper=False)
    whitened = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((whitened + whitened.T) / 2)
    gain = values[-DIRECTIONS:].clamp_min(0)
    directions = torch.linalg.solve_triangular(root.T, vectors[:, -DIRECTIONS:], upper=True)
    return mean, directions * (gain / (1 + gain)).sqrt()


def _covariance(rows: Tensor) -> Tensor:
    flat = rows.flatten(0, 1)
    return flat.T @ flat / len(flat)
