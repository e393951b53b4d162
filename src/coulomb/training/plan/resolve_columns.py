"""From the options of a run on columns, or from its folder, to its plan.

options  →  columns and their kinds, an encoder and a ``tune`` for each
facts    →  the table, equal cells, a split in which no cell is on both sides
recipe   →  by the encoders and the number of pairs, overridden by the options: the complete `Config`
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coulomb.ground.errors import DataUnavailableError, InputError, counted, did_you_mean
from coulomb.methods import PAIR_METHODS, Method
from coulomb.methods.options import accepted_parameters, find_method
from coulomb.methods.several import SeveralColumns
from coulomb.tables import Columns
from coulomb.tables.cell_split import joint_ids, shared_cells, split_rows
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.scored import ScoredPairs, open_scored_pairs
from coulomb.training.plan.column_recipe import complete
from coulomb.training.plan.column_towers import plan_towers
from coulomb.training.plan.columns import ColumnsPlan, table_fingerprints
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.given import Given
from coulomb.training.plan.resolved import Split, count_processes
from coulomb.training.record.folder import RunFolder, free_folder, read_split
from coulomb.training.record.provenance import changed

log = logging.getLogger("coulomb")


def resolve_columns(options: Given | Mapping[str, Any]) -> ColumnsPlan:
    """Returns the plan of a new run on columns.

    Raises:
        InputError: training would refuse the data or an option.
    """
    given = Given.of(options)
    asked = Config(**given.named)
    plan = _plan(given, asked)
    if plan.config.out is None:
        return replace(plan, config=replace(plan.config, out=str(free_folder(plan.table.name, plan.config.method))))
    return plan


def reopen_columns(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, trains: bool = False
) -> ColumnsPlan:
    """Returns the plan of an existing run on columns; see `coulomb.training.plan.resolve.reopen`.

    Raises:
        InputError: the data or the split changed, or an object is missing.
    """
    given = Given.of(options or {})
    config = load_config(folder.config)
    config = replace(given.resumed(config, folder) if trains else config, out=str(folder.path))
    saved = read_split(folder)
    plan = _plan(given, config, trains=trains, began=saved["fingerprints"])
    now = plan.split_record()
    for part in ("train", "test"):
        if saved[part] != now[part]:
            raise InputError(
                f"{str(folder.path)!r}: the {part} rows are not those the run began with ({len(saved[part])} then, "
                f"{len(now[part])} now); restore the data, or start a new run"
            )
    return plan


def _plan(given: Given, config: Config, *, trains: bool = True, began: Mapping[str, Any] | None = None) -> ColumnsPlan:
    """Opens the data and resolves all names.

    ``began``: fingerprints of the data with which an existing run, in the folder ``config.out``, began; without, what
    ``config``, a user's options, leaves open is filled in.
    """
    asked = parse_columns(str(config.columns))
    if len(asked) > 1 == sum(not column.negative for column in asked):
        raise InputError(
            f"columns={config.columns!r}: hard negatives need two columns that belong together; give their second column too"
        )
    _require_options(given, config, several=len(asked) > 1)
    try:
        table, test_table, scored = open_tables(given, config, asked)
    except DataUnavailableError:
        raise
    except InputError as error:
        if began is None:
            raise
        raise InputError(f"{config.out!r}: the data of the run cannot be opened: {error}; put them back") from None
    kinds = table.kinds
    names = tuple(column.name for column in asked)
    if began is not None and (changes := changed(began, table_fingerprints(table, test_table, names))):
        raise InputError(
            f"{config.out!r}: the data changed since the run began: {changes}; restore them, or start a new run"
        )
    ids = joint_ids([table] if test_table is None else [table, test_table], names)
    cell_ids, test_ids = ids[0], ids[-1]
    split = _split(config, table, test_table, asked, cell_ids, test_ids, scored)
    towers = plan_towers(config, table, asked, split, given.encoders)
    if began is None:
        negatives = any(column.negative for column in asked)
        config = complete(given.named, config, towers, len(split.train), several=len(names) > 1, negatives=negatives)
    method = _method(given, config, several=len(names) > 1)
    if issubclass(method, SeveralColumns):
        try:
            method.require_options(config.method_options, tuple(column.name for column in asked if column.negative))
        except ValueError as error:
            raise InputError(f"method={config.method!r}: {error}") from None
    return ColumnsPlan(
        config,
        table,
        test_table,
        asked,
        kinds,
        towers,
        split,
        cell_ids,
        test_ids,
        method,
        count_processes(config) if trains else 1,
        scored,
    )


def open_tables(
    given: Given, config: Config, asked: tuple[Column, ...]
) -> tuple[Columns, Columns | None, ScoredPairs | None]:
    """Opens the data, the held-out data if they are separate, and these as scored pairs if they are some.

    Raises:
        InputError: the data cannot be opened, or there is no such column.
    """
    table = open_columns(_data(given, "data", config), asked, root=config.root, labels=config.labels)
    test = _data(given, "test", config)
    if test is None:
        return table, None, None
    if len(asked) == 1:
        scored = open_scored_pairs(test, asked[0].name, table.kinds[asked[0].name], root=config.root)
        if scored is not None:
            return table, scored.table, scored
    return table, open_columns(test, asked, root=config.root, labels=config.labels), None


def _data(given: Given, name: str, config: Config) -> Any:
    value = getattr(given, name)
    return getattr(config, name) if value is None else value


# Options of runs on images alone, with the values that mean nothing.
OF_IMAGES = {
    "whitening": 0.0,
    "stay_close": 0.0,
    "neighbors": 0,
    "long_tail": None,
    "sampler": "uniform",
    "compile": False,
    "head_epochs": 0.0,
    "layer_decay": 1.0,
    "preset": "small",
}
OF_ONE_COLUMN = {
    "n_views": 1,
    "head_layers": Config.head_layers,
    "head_hidden_dim": None,
}  # config.yaml has these values


def _require_options(given: Given, config: Config, *, several: bool) -> None:
    """Raises `InputError` for options that have no effect on a run on columns."""
    if given.views is not None:
        raise InputError("views: your own views are for images alone; leave them out with columns")
    for name, default in OF_IMAGES.items():
        if (value := getattr(config, name)) != default:
            raise InputError(f"{name}={value!r}: is for runs on images alone; leave it out with columns")
    if config.bands is not None:
        raise InputError(f"bands={config.bands!r}: pictures of a column are photos of 3 channels; leave it out")
    if config.channels not in (None, 3):
        raise InputError(f"channels={config.channels}: pictures of a column have 3; leave it out")
    for name, default in OF_ONE_COLUMN.items() if several else ():
        if given.named.get(name, default) != default:
            raise InputError(
                f"{name}={given.named[name]!r}: has no effect on several columns, which have one view and no head each; "
                "leave it out"
            )


def _split(
    config: Config,
    table: Columns,
    test_table: Columns | None,
    columns: tuple[Column, ...],
    cell_ids: np.ndarray,
    test_ids: np.ndarray,
    scored: ScoredPairs | None = None,
) -> Split:
    """Splits the rows so that no cell is on both sides, or as the user's test set and group say."""
    places = [place for place, column in enumerate(columns) if not column.negative]
    names, ids = [columns[place].name for place in places], cell_ids[:, places]
    kinds = [table.kinds[name] for name in names]
    if test_table is not None:
        rows, held_out = counted(len(table), "row"), len(test_table)
        of_test = counted(held_out, "row") if scored is None else counted(len(scored), "scored pair")
        sentence = f"the user's own: {rows} of {table.name}, {of_test} of {test_table.name}"
        leak = shared_cells(ids, test_ids[:, places], names, alike=kinds).sentence(test_table.item_id)
        if leak is not None:
            log.warning("%s", leak)
            sentence += f"; {leak}"
        return Split(np.arange(len(table)), np.arange(held_out), sentence)
    train, test, sentence = split_rows(table, config.test_fraction, config.seed, group=config.group, ids=cell_ids)
    shared = shared_cells(ids[train], ids[test], names, alike=kinds)
    if (leak := shared.sentence(lambda row: table.item_id(int(test[row])))) is not None:
        log.warning("%s", leak)
    return Split(train, test, sentence)


def _method(given: Given, config: Config, *, several: bool) -> type[Method]:
    """Returns the class of the method."""
    if given.method is not None:
        return given.method
    if several:
        if config.method not in PAIR_METHODS:
            raise InputError(
                f"method={config.method!r}: contrasts views of one column, and columns={config.columns!r} are several; give "
                f"one of {', '.join(PAIR_METHODS)}{did_you_mean(config.method, PAIR_METHODS)}"
            )
        return PAIR_METHODS[config.method]
    if config.method == "clip":
        raise InputError(
            f"method='clip': contrasts several columns, and columns={config.columns!r} is one; give simclr"
        )
    method = find_method(config.method)
    if {"class_counts", "num_classes"} & set(accepted_parameters(method)[0]) or method.needs_labels:
        raise InputError(f"method={config.method!r}: needs labels, which columns do not have yet; give simclr")
    return method
