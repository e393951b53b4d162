"""Evaluation of a run on columns: retrieval across its first two columns, compared with untouched towers and chance."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.evaluation.assess_one_column import assess_single
from coulomb.evaluation.pairs import Embedded, PairInputs, assess_pairs
from coulomb.evaluation.previews import of_training, previews
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.progress import progress_bar
from coulomb.ground.randomness import numpy_generator
from coulomb.models import Encoder
from coulomb.models.folding import folded
from coulomb.models.names import is_local
from coulomb.tables import Columns
from coulomb.training.encode_rows import encode_rows
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.record.folder import RunFolder

MOST_TRAIN = 5_000  # training rows from which the linear map between untouched towers is fitted


def assess_columns(folder: RunFolder, plan: ColumnsPlan, *, progress: bool = True) -> dict[str, Any]:
    """Evaluates a run on columns, writes ``evaluation.json`` and ``samples.npz``, and returns the former's content.

    The first two columns are measured on all held-out rows, by the trained towers and by the towers before training; see
    `coulomb.evaluation.pairs.assess_pairs`. With labels, each tower alone is measured by kNN, too. Of one column:
    `coulomb.evaluation.assess_one_column.assess_single`.
    """
    if len(plan.names) == 1:
        return assess_single(folder, plan, progress=progress)
    names = plan.names[0], plan.names[1]
    test, train = plan.split.test, plan.split.train
    some = train
    if len(train) > MOST_TRAIN:
        some = np.sort(numpy_generator(plan.config.seed, "linear map").choice(train, MOST_TRAIN, replace=False))
    towers = {name: plan.tower_of(name) for name in names}
    trained = {name: tower.load(folder.tower(tower.name)) for name, tower in towers.items()}
    start = {name: tower.load(folder.start(tower.name)) for name, tower in towers.items()}
    labels, train_labels = plan.held_out_labels, None if plan.table.labels is None else plan.table.labels[some]
    alone = labels is not None and train_labels is not None
    passes = {name: 1 if plan.tower_of(name).cached else 2 for name in names}
    total = sum(passes.values()) * len(test) + (sum(passes.values()) if alone else len(names)) * len(some)
    with progress_bar(total, "evaluating", progress) as advance:
        of: dict[str, Any] = {"plan": plan, "start": start, "trained": trained, "advance": advance}
        before, now = _before_and_now(names, test, held_out=True, **of)
        fitted, learned = _before_and_now(names, some, held_out=False, trains=alone, **of)
    read, known = (found[names[0]][1] & found[names[1]][1] for found in (before, fitted))
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
                dict.fromkeys(short_name(plan.tower_of(name).encoder) for name in names if plan.tower_of(name).weights)
            ),
            shared=plan.tower_of(names[0]) is plan.tower_of(names[1])
            or all(plan.tower_of(name).pair for name in names),
            texts=(texts[0], texts[1]),
            labels=labels[read] if labels is not None and alone else None,
            train_labels=train_labels[known] if train_labels is not None and alone else None,
            trained_train=_kept(learned, names, known) if alone else None,
            rows=test[read],
            options=dataclasses.asdict(plan.config),
            seed=plan.config.seed,
        )
    )
    result = assessment.evaluation
    result["protocol"] |= of_training(folder, plan)
    arrays = dict(assessment.samples)
    for side, (name, shown) in enumerate(zip(names, assessment.shown, strict=True)):
        arrays |= previews(plan, name, test[read][shown], shown, side)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
    write_atomically(folder.samples, buffer.getvalue())
    write_json(folder.evaluation, result)
    return result


Found = dict[str, tuple[Tensor, np.ndarray]]  # features of each column, and which rows were read


def _before_and_now(
    names: tuple[str, str],
    rows: np.ndarray,
    *,
    plan: ColumnsPlan,
    start: dict[str, Encoder],
    trained: dict[str, Encoder],
    advance: Any,
    held_out: bool,
    trains: bool = True,
) -> tuple[Found, Found]:
    """Returns the features of rows by the towers before and after training; the latter are empty unless ``trains``.

    The backbone of a frozen tower is the same before and after, so that its features are computed once.
    """
    before: Found = {}
    now: Found = {}
    for name in names:
        if plan.tower_of(name).cached:
            with start[name].without_adapter():
                features, read = encode_rows(plan, name, folded(start[name]), rows, progress=advance, held_out=held_out)
            before[name] = adapted(start[name], features), read
            now[name] = adapted(trained[name], features), read
            continue
        before[name] = encode_rows(plan, name, folded(start[name]), rows, progress=advance, held_out=held_out)
        if trains:
            now[name] = encode_rows(plan, name, folded(trained[name]), rows, progress=advance, held_out=held_out)
    return before, now


def short_name(encoder: str) -> str:
    """Returns the name of an encoder for a sentence: of a folder, its end."""
    return "/".join(Path(encoder).parts[-2:]) if is_local(encoder) else encoder


@torch.no_grad()
def adapted(encoder: Encoder, features: Tensor) -> Tensor:
    """Returns the embeddings [n, D] of features [n, F] that the encoder's frozen backbone computed before."""
    return features if encoder.adapter is None else encoder.adapter(features)


def _kept(found: dict[str, tuple[Tensor, np.ndarray]], names: tuple[str, str], read: np.ndarray) -> Embedded:
    first, second = (found[name][0].numpy()[read] for name in names)
    return Embedded(first, second)


def _texts(table: Columns, column: str, rows: np.ndarray) -> list[str]:
    return [table.columns[column][row] for row in rows.tolist()]
