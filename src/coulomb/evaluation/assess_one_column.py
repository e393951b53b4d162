"""Evaluation of a run on one column, as its plan says; see `coulomb.evaluation.one_column` for what is measured."""

import dataclasses
import io
from typing import Any

import numpy as np
import torch

from coulomb.evaluation.comparison import START
from coulomb.evaluation.one_column import UNTRAINED, ColumnInputs, Scored, assess_one_column
from coulomb.evaluation.one_column_verdict import RAW_VALUES
from coulomb.evaluation.previews import of_training, previews
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.progress import progress_bar
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features
from coulomb.models import Encoder
from coulomb.models.vector_network import VectorNetwork
from coulomb.training.encode_rows import encode_rows
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.record.folder import RunFolder

MOST_TRAIN = 50_000  # training rows with a label from which classifiers learn
MOST_TEST = 20_000  # held-out rows; of scored pairs, half as many pairs


def assess_single(folder: RunFolder, plan: ColumnsPlan, *, progress: bool = True) -> dict[str, Any]:
    """Evaluates a run on one column, writes ``evaluation.json`` and ``samples.npz``, and returns the former's content."""
    column, seed = plan.names[0], plan.config.seed
    tower, kind = plan.tower_of(column), plan.kinds[column]
    encoders = {
        "trained": tower.load(folder.tower(tower.name)),
        (START if tower.weights else UNTRAINED): tower.load(folder.start(tower.name)),
    }
    labels, known = plan.held_out_labels, plan.table.labels
    places, pairs = _held_out(plan, seed)
    test, train = plan.split.test[places], np.empty(0, np.int64)
    if labels is not None and known is not None and (labels[places] >= 0).any():
        train = _drawn(plan.split.train[known[plan.split.train] >= 0], MOST_TRAIN, seed, "labeled rows")
    held_out: dict[str, Features] = {}
    learned: dict[str, Features] = {}
    read, read_train = np.ones(len(test), bool), np.ones(len(train), bool)
    with progress_bar(len(encoders) * (len(test) + len(train)), "evaluating", progress) as advance:
        for name, encoder in encoders.items():
            found, known_test = encode_rows(plan, column, encoder, test, progress=advance, held_out=True)
            held_out[name], read = found.numpy(), read & known_test
            if len(train):
                found, known_train = encode_rows(plan, column, encoder, train, progress=advance, held_out=False)
                learned[name], read_train = found.numpy(), read_train & known_train
    if kind == "vector":
        held_out[RAW_VALUES] = _raw(plan, column, encoders["trained"], test, held_out=True)
        if len(train):
            learned[RAW_VALUES] = _raw(plan, column, encoders["trained"], train, held_out=False)
    texts = None if kind != "text" else [plan.held_out.columns[column][row] for row in test[read].tolist()]
    train_texts = None if kind != "text" else [plan.table.columns[column][row] for row in train[read_train].tolist()]
    assessment = assess_one_column(
        ColumnInputs(
            column=column,
            kind=kind,
            ids=plan.test_ids[test[read], plan.place(column)],
            held_out={name: np.asarray(x)[read] for name, x in held_out.items()},
            train={name: np.asarray(x)[read_train] for name, x in learned.items()},
            labels=labels[places][read] if labels is not None and len(train) else None,
            train_labels=known[train][read_train] if known is not None and len(train) else None,
            class_names=plan.table.class_names,
            texts=texts,
            train_texts=train_texts,
            scored=None if pairs is None else _scored(plan, pairs, read),
            rows=test[read],
            weights=tower.encoder if tower.weights else "",
            options=dataclasses.asdict(plan.config),
            seed=seed,
        )
    )
    result = assessment.evaluation
    result["protocol"] |= of_training(folder, plan)
    result["protocol"] |= {
        "held_out_left_out": len(plan.split.test) - int(read.sum()),
        "train": int(read_train.sum()),
        "features": "of the encoder, before the head",
        **({"raw_values": "standardized by the training rows"} if kind == "vector" else {}),
    }
    arrays = assessment.samples | previews(plan, column, test[read][assessment.shown], assessment.shown, 0)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
    write_atomically(folder.samples, buffer.getvalue())
    write_json(folder.evaluation, result)
    return result


def _held_out(plan: ColumnsPlan, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns places among the held-out rows, and of scored pairs the numbers of the pairs whose cells these are."""
    if plan.scored is None:
        return _drawn(np.arange(len(plan.split.test)), MOST_TEST, seed, "held-out rows"), None
    pairs = _drawn(np.arange(len(plan.scored)), MOST_TEST // 2, seed, "scored pairs")
    first, second = plan.scored.places
    return np.concatenate([first[pairs], second[pairs]]), pairs


def _drawn(rows: np.ndarray, most: int, seed: int, purpose: str) -> np.ndarray:
    """Returns at most ``most`` rows, in their order."""
    return rows if len(rows) <= most else np.sort(numpy_generator(seed, purpose).choice(rows, most, replace=False))


def _scored(plan: ColumnsPlan, pairs: np.ndarray, read: np.ndarray) -> Scored:
    """Returns the scored pairs, both cells of which were read, by their places among the rows that were."""
    assert plan.scored is not None
    place = np.cumsum(read) - 1
    first, second = np.arange(len(pairs)), np.arange(len(pairs), 2 * len(pairs))
    both = read[first] & read[second]
    return Scored(place[first[both]], place[second[both]], plan.scored.scores[pairs[both]])


def _raw(plan: ColumnsPlan, column: str, encoder: Encoder, rows: np.ndarray, *, held_out: bool) -> np.ndarray:
    """Returns the standardized values [n, F] of vectors."""
    assert isinstance(encoder, VectorNetwork)
    values = (plan.held_out if held_out else plan.table).columns[column][rows]
    with torch.no_grad():
        standardized: np.ndarray = encoder.standardize(torch.from_numpy(np.asarray(values, np.float32))).numpy()
    return standardized
