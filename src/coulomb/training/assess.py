"""The evaluation of a run: the trained encoder beside an untrained one and raw pixels, all measured the same way."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.errors import InputError
from coulomb.evaluation import evaluate_features, extract_features, pixel_features, view_retrieval
from coulomb.models import Encoder, load_encoder
from coulomb.randomness import generator
from coulomb.training.config import Config, load_config
from coulomb.training.environment import environment
from coulomb.training.fit import make_encoder
from coulomb.training.journal import read_metrics
from coulomb.training.launch import reopen
from coulomb.training.objects import Objects
from coulomb.training.prepare import Part, Prepared
from coulomb.training.run_folder import RunFolder, write_json

log = logging.getLogger("coulomb")

SAMPLES = 1_500  # held-out images shown in the report
RETRIEVAL = 2_000  # held-out images whose views are matched

Extract = Callable[[Part], tuple[Tensor, np.ndarray]]


def assess(
    folder: RunFolder, prepared: Prepared | None = None, objects: Objects | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Evaluate a run, write ``evaluation.json`` and ``samples.npz``, and return the former.

    For each of ``trained``, ``random_init`` and ``raw_pixels``: ``knn``, ``linear``, ``few_shot`` and ``protocol``; without
    labels these are None and ``view_retrieval`` says how often the two views of an image find each other.

    Args:
        folder: the run.
        prepared: the run's data, when at hand; else opened and decoded again as ``config.yaml`` says.
        objects: what the run was handed over in Python (data, encoder, views), if anything.
        progress: show what goes on.
    """
    objects = objects or Objects()
    config = load_config(folder.config)
    if prepared is None:
        config, prepared = reopen(folder, objects, progress=progress)
    views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
    device = torch.device("cuda" if torch.cuda.is_available() and config.accelerator != "cpu" else "cpu")
    encoders = {
        "trained": load_encoder(folder.path, module=objects.encoder).to(device).eval(),
        "random_init": _untrained(config, folder, prepared, objects.encoder).to(device).eval(),
    }
    labelled = prepared.train.labels is not None and prepared.test.labels is not None
    result: dict[str, Any] = {}
    for name in ("trained", "random_init", "raw_pixels"):
        pixels = name == "raw_pixels"
        encoder = encoders["trained" if pixels else name]
        log.info("evaluating %s", name)
        extract = _extractor(encoder, views, device, pixels=pixels)
        result[name] = _with_labels(extract, prepared, config) if labelled else _nothing()
        embed = _embedder(encoder, device, pixels=pixels)
        result[name]["view_retrieval"] = _view_retrieval(embed, prepared, views, config.seed)
    metrics = read_metrics(folder.metrics)
    result["protocol"] = {
        "split": prepared.split,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "epochs": config.epochs,
        "seed": config.seed,
        "data": config.data,
        "image_size": prepared.facts.image_size,
        "raw_pixels": "the evaluation view, normalised per channel by the training images as the encoder's input is",
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views",
        "versions": environment(),
    }
    write_json(folder.evaluation, result)
    save_samples(folder.samples, _extractor(encoders["trained"], views, device), prepared, views, config.seed)
    return result


def _extractor(encoder: Encoder, views: ViewMaker, device: torch.device, *, pixels: bool = False) -> Extract:
    """Features of a part of the data, or the pixels that the encoder sees: normalised per channel."""
    if pixels:
        normalise = copy.deepcopy(encoder.normalise).cpu()
        return lambda part: pixel_features(
            part.images, part.indices, lambda canvas, aspect: normalise(views.plain(canvas, aspect))
        )
    return lambda part: extract_features(encoder, part.images, part.indices, views.plain, device=device)


def _embedder(encoder: Encoder, device: torch.device, *, pixels: bool = False) -> Callable[[Tensor], Tensor]:
    """Features of a batch of views, or their normalised pixels."""

    @torch.no_grad()
    def embed(view: Tensor) -> Tensor:
        seen = encoder.normalise(view.to(device)).flatten(1) if pixels else encoder(view.to(device))
        return seen.float().cpu()

    return embed


def _untrained(config: Config, folder: RunFolder, prepared: Prepared, module: nn.Module | None) -> Encoder:
    if module is None:
        return make_encoder(config, prepared, None)
    if not folder.initial.exists():
        raise InputError(f"{str(folder.initial)!r}: missing; it holds the first weights of the run's own encoder")
    return load_encoder(folder.initial, module=copy.deepcopy(module))


def _with_labels(extract: Extract, prepared: Prepared, config: Config) -> dict[str, Any]:
    found = []
    for part in (prepared.train, prepared.test):
        features, kept = extract(part)
        assert part.labels is not None
        found += [features, torch.from_numpy(part.labels[kept])]
    return evaluate_features(*found, k=config.knn_k, sigma=config.knn_sigma, seed=config.seed)


def _nothing() -> dict[str, Any]:
    return {"knn": None, "linear": None, "few_shot": None, "protocol": {"labels": "none: nothing to measure by"}}


def _view_retrieval(embed: Callable[[Tensor], Tensor], prepared: Prepared, views: ViewMaker, seed: int) -> float | None:
    part = prepared.unseen.sample(RETRIEVAL, seed, "retrieval")
    found = []
    for number, batch in enumerate(part.images.batches(part.indices, 256)):
        pair = views(batch["image"], generator(seed, "retrieval views", number), n=2, aspect=batch["aspect"])
        found.append(torch.stack([embed(view) for view in pair]))
    first, second = torch.cat(found, dim=1)
    return view_retrieval(first, second)


def save_samples(path: Path, extract: Extract, prepared: Prepared, views: ViewMaker, seed: int) -> None:
    """Thumbnails and features of held-out images, for the report."""
    part = prepared.unseen.sample(SAMPLES, seed, "samples")
    features, kept = extract(part)
    thumbnails = [thumbnail(views.plain(batch["image"], batch["aspect"])) for batch in part.images.batches(kept, 256)]
    labels = np.full(len(kept), -1) if part.labels is None else part.labels[kept]
    np.savez_compressed(
        path,
        thumbnails=np.concatenate(thumbnails),
        features=features.numpy().astype(np.float16),
        labels=labels.astype(np.int64),
        ids=np.array([part.images.source.item_id(int(index)) for index in kept], dtype=np.str_),
    )


def thumbnail(plain: Tensor, largest: int = 48) -> np.ndarray:
    """Images [B, C, S, S] in [0, 1] → uint8 [B, s, s, 3], s at most ``largest``; the first three channels, or grey."""
    if plain.shape[-1] > largest:
        plain = nn.functional.interpolate(plain, size=largest, mode="bilinear", antialias=True, align_corners=False)
    colour = plain[:, :3] if plain.shape[1] >= 3 else plain[:, :1].expand(-1, 3, -1, -1)
    return (colour.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
