"""Measurements on a run's network for the doctor: from the checkpoint, on batches of views."""

import copy
import logging
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize

from coulomb.ground.errors import DataUnavailableError
from coulomb.ground.randomness import generator
from coulomb.kinds.image.views import ViewMaker
from coulomb.methods import METHODS
from coulomb.metrics.hardness import hardness, temperature_sweep
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.retrieval import view_retrieval
from coulomb.metrics.similarities import separation
from coulomb.models import ImageNetwork, ViewRows
from coulomb.models.features import extract_features, frozen, pixel_features
from coulomb.models.image_network import require_images
from coulomb.models.saving import load_encoder
from coulomb.training.checkpoints import load_method
from coulomb.training.frozen import add_adapter
from coulomb.training.network import make_encoder, make_method, starting_encoder, tune_encoder
from coulomb.training.order import position_tensor
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Part, Plan, Prepared, label_tensor
from coulomb.training.record.folder import RunFolder

MOST, MOST_PIXELS = 256, 2**20  # images and their pixels: a few seconds on a CPU for any encoder
BANK, QUERIES = 2_000, 1_000  # training and held-out images for the kNN of the labels
BANK_PIXELS = 2**24
STRIP = 4  # a transplanted strip has this fraction of the side
SIDE, DIRECTIONS, VIEWS = 8, 16, 4  # view matcher: pixels per side, dimensions of its map, views per image
MATCHER_LEAST, MATCHER_MOST, MATCHER_PIXELS = 64, 1_000, 2**22  # training images of the view matcher and their pixels
RIDGE = 1e-2  # of the mean variance

log = logging.getLogger("coulomb")


def network_figures(plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """Returns measurements on the trained network, ``{}`` before the first checkpoint.

    - ``distance``, ``growth``: ‖θ − θ₀‖/‖θ₀‖ and ‖θ‖/‖θ₀‖ of the encoder's matrices and filters that train;
    - ``pixel_retrieval``, ``separation``: how well two views of held-out images are matched by pixels and by embeddings;
      ``identical_views``: share of images whose two views are identical; ``matcher_separation``: see `matcher_separation`;
    - ``transplant``: see `transplants`;
    - ``labels``: see `label_figures`;
    - ``scale_change``: relative change of the loss of a batch when the head's output is doubled;
    - ``negatives``: how the gradient is shared among the negatives of a batch at the run's temperature; ``sweep``: at other
      temperatures, see `coulomb.metrics.temperature_sweep`.
    """
    if not folder.checkpoint.exists():
        return {}
    config, prepared, views, learned = plan.config, plan.prepared, plan.views, plan.learned
    if plan.module is None:
        encoder = starting_encoder(config, prepared, folder.initial)
    else:
        encoder = make_encoder(config, prepared, copy.deepcopy(plan.module))
        if folder.initial.exists():
            encoder = require_images(load_encoder(folder.initial, module=copy.deepcopy(plan.module)), folder.initial)
    if config.frozen_kind is None:
        tune_encoder(config, encoder)
    else:
        add_adapter(encoder, config, prepared.train, views, torch.device("cpu"), checkpoint=folder.checkpoint)
    start = _weights(encoder)
    if config.method_options.get("bank_path") is not None:
        return {}  # loading the method would restore the bank's file to the checkpoint
    method = make_method(config, prepared, plan.method, encoder, len(learned))
    state = load_method(method, folder.checkpoint)
    # The start of an adapter is not saved.
    figures = _movement(start, _weights(encoder)) if config.frozen_kind is None else {}
    if any(not bool(value.isfinite().all()) for value in state.values() if value.is_floating_point()):
        return figures
    most = max(16, min(MOST, MOST_PIXELS // prepared.facts.image_size**2))
    try:
        unseen = prepared.unseen.sample(most, config.seed, "pairs")
        figures |= _view_figures(method, encoder, unseen, views, config)
        size = prepared.facts.image_size
        figures["matcher_separation"] = matcher_separation(prepared.train, unseen, views, config.seed, size)
        figures["labels"] = label_figures(encoder, prepared, views, config)
        part = Part(prepared.train.images, learned, prepared.train.labels)
        part = part.sample(min(most, config.batch_size), config.seed, "doctor")
        figures |= _loss_figures(method, part, position_tensor(learned), views, config)
    except Exception as error:
        if config.method in METHODS or isinstance(error, DataUnavailableError):
            raise
        log.warning("%s: the doctor's measurements failed (%s: %s)", config.method, type(error).__name__, error)
    return figures


def _weights(encoder: nn.Module) -> Tensor:
    """All matrices and filters that train, in one vector; norms and biases say little about movement."""
    weights = [p.detach().flatten().double() for p in encoder.parameters() if p.ndim > 1 and p.requires_grad]
    return torch.cat(weights) if weights else torch.empty(0)


def _movement(start: Tensor, end: Tensor) -> dict[str, Any]:
    size = float(start.norm())
    if not size or not bool(end.isfinite().all()):
        return {}
    return {"distance": float((end - start).norm()) / size, "growth": float(end.norm()) / size}


def _view_figures(method: Any, encoder: ImageNetwork, part: Part, views: ViewMaker, config: Config) -> dict[str, Any]:
    pixels, heads, plain = [], [], []
    with frozen(method):
        for number, batch in enumerate(part.images.batches(part.indices, 256, part.images.readers)):
            pair = views(batch.stack, generator(config.seed, "doctor views", number), n=2)
            plain.append(views.plain(batch.stack).float())
            pixels.append(torch.stack([encoder.normalize(view).flatten(1) for view in pair]))
            heads.append(torch.stack([method.tower(view).float() for view in pair]))
    if sum(pair.shape[1] for pair in pixels) < 2:
        return {}
    first, second = torch.cat(pixels, dim=1).float()
    figures: dict[str, Any] = {"pixel_retrieval": view_retrieval(first, second)}
    figures["identical_views"] = float((first == second).all(1).double().mean())
    figures["separation"] = separation(*torch.cat(heads, dim=1))
    with frozen(method):
        figures["transplant"] = transplants(torch.cat(plain), method.tower)
    return figures


def _loss_figures(method: Any, part: Part, positions: Tensor, views: ViewMaker, config: Config) -> dict[str, Any]:
    batch = next(part.images.batches(part.indices, len(part.indices)))
    drawn = views(batch.stack, generator(config.seed, "doctor batch"), n=config.n_views)
    all_labels = label_tensor(part)
    labels = None if all_labels is None else all_labels[batch.sample]
    change = _scale_change(method, drawn, labels, positions[batch.sample])
    with frozen(method):
        embedded = torch.cat([method.tower(view).float() for view in drawn[:2]])
    ids = batch.sample.repeat(min(2, len(drawn)))
    labels = None if labels is None else labels.repeat(min(2, len(drawn)))
    now = hardness(embedded, config.temperature, ids=ids, labels=labels)
    if now is None:
        return {"scale_change": change}
    shares = {
        "top1_gradient": now.top1,
        "top10pct_gradient": now.top10pct,
        "false_negative_gradient": now.same_class,
        "effective_negatives": now.effective_negatives,
    }
    sweep = temperature_sweep(embedded, ids=ids, labels=labels).as_dict()
    return {"scale_change": change, "negatives": shares, "sweep": sweep}


def _scale_change(method: Any, drawn: list[Tensor], labels: Tensor | None, train_row: Tensor) -> float | None:
    """|L(2z) − L(z)| / |L(z)|, in training mode, on a copy; None in a process group, where the loss would wait for others."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return None
    trial, views = copy.deepcopy(method).train(), ViewRows.of(drawn, method.tower.column)

    def loss() -> float:
        torch.manual_seed(0)
        with torch.no_grad():
            return float(trial(views, labels, train_row))

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        before = loss()
        trial.tower.head.register_forward_hook(lambda module, inputs, output: 2 * output)
        after = loss()
    return abs(after - before) / max(abs(before), 1e-3)


def label_figures(encoder: ImageNetwork, prepared: Prepared, views: ViewMaker, config: Config) -> dict[str, Any] | None:
    """Whether labels are related to the images: ``{"pixels", "features", "chance", "images"}``.

    ``pixels`` and ``features`` are kNN accuracies of at most 1,000 held-out images (``images``) with at most 2,000
    training images, by raw pixels and by trained features; ``chance`` is the share of the most frequent class among the
    held-out images. Returns None if one side of the split has no labels.
    """
    most = max(100, BANK_PIXELS // prepared.facts.image_size**2)
    bank, queries = (
        _labeled_part(prepared.train, min(BANK, most), config),
        _labeled_part(prepared.test, QUERIES, config),
    )
    if bank is None or queries is None:
        return None
    (bank_x, bank_y), (query_x, query_y) = (_pixels_and_features(encoder, part, views) for part in (bank, queries))
    k = min(config.knn_k, len(bank_y))
    figures: dict[str, Any] = {
        name: knn_accuracy(bank_x[name], bank_y, query_x[name], query_y, k=k, sigma=config.knn_sigma) for name in bank_x
    }
    chance = float(np.bincount(query_y.numpy()).max()) / len(query_y)
    return figures | {"chance": chance, "images": len(query_y)}


def _labeled_part(part: Part, most: int, config: Config) -> Part | None:
    if part.labels is None:
        return None
    labeled = Part(part.images, part.indices[part.labels[part.indices] >= 0], part.labels)
    return labeled.sample(most, config.seed, "doctor labels") if len(labeled.indices) else None


def _pixels_and_features(encoder: ImageNetwork, part: Part, views: ViewMaker) -> tuple[dict[str, Tensor], Tensor]:
    """Returns {"pixels", "features"} of the readable images, and their labels."""
    assert part.labels is not None
    images, readers = part.images, part.images.readers
    pixels, _ = pixel_features(
        images, part.indices, lambda stack: encoder.normalize(views.plain(stack)), workers=readers
    )
    cpu = torch.device("cpu")
    features, indices = extract_features(encoder, images, part.indices, views.plain, device=cpu, workers=readers)
    return {"pixels": pixels, "features": features}, torch.from_numpy(part.labels[indices])


def transplants(images: Tensor, embed: Any) -> dict[str, Any]:
    """The edge region on which the embedding of an image depends most: ``{"region", "share"}``.

    For each edge, the strip along it, a quarter of the side wide, is replaced by the same strip of another image, the donor.
    ``share`` is the share of images whose embedding is then closer to the donor's than to the original image's, although
    three quarters of the picture are unchanged.

    Args:
        images: [n, C, S, S] without augmentation, n ≥ 2.
        embed: images → embeddings [n, D].
    """
    width = max(1, images.shape[-1] // STRIP)
    first, last = slice(0, width), slice(-width, None)
    every = slice(None)
    regions = {"top": (first, every), "bottom": (last, every), "left": (every, first), "right": (every, last)}
    donors = images.roll(1, 0)
    original = normalize(embed(images).float(), dim=1)
    shares = {}
    for name, (rows, columns) in regions.items():
        mixed = images.clone()
        mixed[:, :, rows, columns] = donors[:, :, rows, columns]
        embedded = normalize(embed(mixed).float(), dim=1)
        closer = (embedded * original.roll(1, 0)).sum(1) > (embedded * original).sum(1)
        shares[name] = float(closer.double().mean())
    region = max(shares, key=lambda name: shares[name])
    return {"region": region, "share": shares[region]}


def matcher_separation(train: Part, held_out: Part, views: ViewMaker, seed: int, size: int) -> float | None:
    """Separation of held-out views under a linear map fitted to match views: whether views share learnable content.

    P(two views of one image are more similar than views of two images); .5 is chance. It needs no network and so
    distinguishes views that are too strong from a network that learned nothing.

    Views are reduced to at most 8 × 8 pixels. The map is Fisher's linear discriminant with each training image as a class:
    the 16 directions with the largest variance between images relative to that between views of an image, from four
    views of up to 1,000 training images. Returns None for fewer than 64 training images.
    """
    fitted = train.sample(min(MATCHER_MOST, max(MATCHER_LEAST, MATCHER_PIXELS // size**2)), seed, "matcher")
    if len(fitted.indices) < MATCHER_LEAST or len(held_out.indices) < 2:
        return None
    mean, project = _discriminant(_small_views(fitted, views, seed, "matcher views", VIEWS))
    first, second = ((_small_views(held_out, views, seed, "matched views", 2) - mean) @ project).float()
    return separation(first, second)


def _small_views(part: Part, views: ViewMaker, seed: int, purpose: str, n: int) -> Tensor:
    """Views [n, images, features] of at most 8 × 8 pixels."""
    batches = []
    for number, batch in enumerate(part.images.batches(part.indices, 256, part.images.readers)):
        drawn = views(batch.stack, generator(seed, purpose, number), n=n)
        side = min(SIDE, drawn[0].shape[-1])
        batches.append(torch.stack([adaptive_avg_pool2d(view, side).flatten(1).double() for view in drawn]))
    return torch.cat(batches, dim=1)


def _discriminant(views: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [F] of views [n, images, F], and a map [F, 16] to directions of unit within-image variance."""
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
