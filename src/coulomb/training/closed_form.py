"""The best linear map between two frozen towers, in closed form: where the training of their adapters begins."""

import io
import logging
from pathlib import Path

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.reading import open_arrays
from coulomb.metrics.linear_map import LinearMap, fit_linear_map, unit_features
from coulomb.models import Encoder
from coulomb.training.feature_cache import FeatureCache
from coulomb.training.plan.columns import ColumnsPlan

log = logging.getLogger("coulomb")

Affine = tuple[np.ndarray, np.ndarray]  # A [D, F] and b [D]: x → A x/‖x‖ + b


def fitted_adapters(plan: ColumnsPlan, caches: dict[str, FeatureCache], path: Path, *, save: bool) -> dict[str, Affine]:
    """Returns the adapters of both towers by their names: the linear map under which training pairs match best.

    Every cached view of a picture is a row, paired with the same text, see `coulomb.metrics.linear_map.fit_linear_map`. The
    embeddings of the training rows have length 1 on average; of more than ``embedding_dim`` dimensions, those of the largest
    variance are kept.

    Args:
        plan: a run on two columns, each with a frozen tower.
        caches: the features of each column; needed if there is no file yet.
        path: ``.npz`` file that a resumed run reads.
        save: write the file.
    """
    names = [plan.tower_of(name).name for name in plan.names]
    if path.exists():
        with open_arrays(path) as stored:
            return {name: (stored[f"weight_{side}"], stored[f"bias_{side}"]) for side, name in enumerate(names)}
    rows = plan.split.train
    places = [plan.place(name) for name in plan.names]
    features = [_training_views(caches[name], plan, name) for name in plan.names]
    views = max(len(each) for each in features)
    both = [np.concatenate([each[view % len(each)] for view in range(views)]) for each in features]
    usable = ~(np.isnan(both[0]).any(1) | np.isnan(both[1]).any(1))
    if usable.sum() < 2:
        raise InputError(f"data={plan.config.data!r}: fewer than two training rows can be read")
    ids = np.tile(plan.cell_ids[rows][:, places], (views, 1))[usable]
    found = fit_linear_map(both[0][usable], both[1][usable], ids, seed=plan.config.seed)
    log.info("the linear map between both towers: %s, ridge %g, chosen on training rows", found.way, found.strength)
    adapters = _scaled(found, [each[usable] for each in both], plan.config.embedding_dim)
    if save:
        _write(path, adapters)
    return dict(zip(names, adapters, strict=True))


def set_adapter(encoder: Encoder, affine: Affine) -> None:
    """Gives an encoder the adapter x → A x/‖x‖ + b."""
    weight, bias = (torch.from_numpy(np.ascontiguousarray(part)).float() for part in affine)
    encoder.attach_adapter({"kind": "unit", "in": weight.shape[1], "out": weight.shape[0]})
    assert isinstance(encoder.adapter, torch.nn.Linear)
    with torch.no_grad():
        encoder.adapter.weight.copy_(weight)
        encoder.adapter.bias.copy_(bias)


def _training_views(cache: FeatureCache, plan: ColumnsPlan, column: str) -> list[np.ndarray]:
    """Returns the features [N, F] of the training rows, for each stored view."""
    at = cache.cells(plan.first_rows(column)).at[plan.split.train]
    rows = np.where((at < 0)[:, None, None], np.nan, cache.rows[np.maximum(at, 0)])
    return [rows[:, view] for view in range(rows.shape[1])]


def _scaled(found: LinearMap, both: list[np.ndarray], most: int) -> list[Affine]:
    adapters = []
    for x, mean, weight in zip(both, found.means, found.maps, strict=True):
        matrix = np.eye(len(mean)) if weight is None else weight
        length = float(np.linalg.norm((unit_features(x) - mean) @ matrix, axis=1).mean()) or 1.0
        adapters.append((matrix.T / length, -mean @ matrix / length))
    if len(adapters[0][1]) > most:
        embedded = np.concatenate([unit_features(x) @ a.T + b for x, (a, b) in zip(both, adapters, strict=True)])
        _, axes = np.linalg.eigh(embedded.T @ embedded)
        kept = axes[:, ::-1][:, :most].T
        adapters = [(kept @ a, kept @ b) for a, b in adapters]
    return adapters


def _write(path: Path, adapters: list[Affine]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for side, (weight, bias) in enumerate(adapters):
        arrays |= {f"weight_{side}": weight, f"bias_{side}": bias}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
    write_atomically(path, buffer.getvalue())
