"""Evaluation of a run on columns: retrieval across its first two columns, compared with untouched towers and chance."""

import dataclasses
import io
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.evaluation.pairs import Embedded, PairInputs, assess_pairs
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.randomness import numpy_generator
from coulomb.kinds.image.thumbnail import make_thumbnail
from coulomb.models import Encoder, load_encoder
from coulomb.tables import Columns
from coulomb.tables.workers import progress_bar
from coulomb.training.cells import encode_rows
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.journal import read_metrics
from coulomb.training.record.provenance import environment

MOST_TRAIN = 5_000  # training rows from which the linear map between untouched towers is fitted
PREVIEW = 64  # pixels of a picture in the report


def assess_columns(folder: RunFolder, plan: ColumnsPlan, *, progress: bool = True) -> dict[str, Any]:
    """Evaluates a run on several columns, writes ``evaluation.json`` and ``samples.npz``, and returns the former's content.

    The first two columns are measured on all held-out rows, by the trained towers and by the towers before training; see
    `coulomb.evaluation.pairs.assess_pairs`.
    """
    names = plan.names[0], plan.names[min(1, len(plan.names) - 1)]
    test, train = plan.split.test, plan.split.train
    some = train
    if len(train) > MOST_TRAIN:
        some = np.sort(numpy_generator(plan.config.seed, "linear map").choice(train, MOST_TRAIN, replace=False))
    trained = {name: load_encoder(folder.tower(plan.tower_of(name).name)) for name in names}
    start = {name: load_encoder(folder.start(plan.tower_of(name).name)) for name in names}
    trained_again = [name for name in names if not plan.tower_of(name).cached]
    total = (len(names) + len(trained_again)) * len(test) + len(names) * len(some)
    with progress_bar(total, "evaluating", progress) as advance:
        before = {name: encode_rows(plan, name, start[name], test, progress=advance, held_out=True) for name in names}
        fitted = {name: encode_rows(plan, name, start[name], some, progress=advance, held_out=False) for name in names}
        now = {
            name: encode_rows(plan, name, trained[name], test, progress=advance, held_out=True)
            if name in trained_again
            else (adapted(trained[name], before[name][0]), before[name][1])
            for name in names
        }
    read, known = (found[names[0]][1] & found[names[1]][1] for found in (now, fitted))
    places = [plan.place(name) for name in names]
    texts = [_texts(plan.held_out, name, test[read]) if plan.kinds[name] == "text" else None for name in names]
    assessment = assess_pairs(
        PairInputs(
            columns=names,
            ids=plan.test_ids[test[read]][:, places],
            trained=_kept(now, names, read),
            untouched=_kept(before, names, read),
            untouched_train=_kept(fitted, names, known),
            train_ids=plan.cell_ids[some[known]][:, places],
            weights=" and ".join(
                dict.fromkeys(plan.tower_of(name).encoder for name in names if plan.tower_of(name).weights)
            ),
            shared=plan.tower_of(names[0]) is plan.tower_of(names[1]),
            texts=(texts[0], texts[1]),
            rows=test[read],
            options=dataclasses.asdict(plan.config),
            seed=plan.config.seed,
        )
    )
    metrics = read_metrics(folder.metrics)
    result = assessment.evaluation
    result["protocol"] |= {
        "split": plan.split.sentence,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "updates": max((int(line["step"]) for line in metrics if "loss" in line), default=0),
        "epochs": plan.config.epochs,
        "data": plan.config.data,
        "versions": environment(),
    }
    arrays = dict(assessment.samples)
    for side, (name, shown) in enumerate(zip(names, assessment.shown, strict=True)):
        arrays |= _previews(plan, name, test[read][shown], shown, side)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
    write_atomically(folder.samples, buffer.getvalue())
    write_json(folder.evaluation, result)
    return result


@torch.no_grad()
def adapted(encoder: Encoder, features: Tensor) -> Tensor:
    """Returns the embeddings [n, D] of features [n, F] that the encoder's frozen backbone computed before."""
    return features if encoder.adapter is None else encoder.adapter(features)


def _kept(found: dict[str, tuple[Tensor, np.ndarray]], names: tuple[str, str], read: np.ndarray) -> Embedded:
    first, second = (found[name][0].numpy()[read] for name in names)
    return Embedded(first, second)


def _texts(table: Columns, column: str, rows: np.ndarray) -> list[str]:
    return [table.columns[column][row] for row in rows.tolist()]


def _previews(plan: ColumnsPlan, column: str, rows: np.ndarray, shown: np.ndarray, side: int) -> dict[str, np.ndarray]:
    """Returns the places that are shown, and their texts or thumbnails (JPEG bytes, padded) for the report."""
    arrays = {f"shown_{side}": shown}
    cells = plan.held_out.columns[column]
    if plan.kinds[column] == "text":
        return arrays | {f"texts_{side}": np.array([cells[row] for row in rows.tolist()], dtype=np.str_)}
    if plan.kinds[column] == "image":
        pictures = [np.frombuffer(make_thumbnail(cells.image(row), PREVIEW), np.uint8) for row in rows.tolist()]
        ends = np.cumsum([len(picture) for picture in pictures])
        joined = np.concatenate(pictures) if pictures else np.empty(0, np.uint8)
        return arrays | {f"pictures_{side}": joined, f"ends_{side}": ends}
    return arrays
