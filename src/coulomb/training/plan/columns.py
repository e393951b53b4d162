"""The plan of a run on columns: a tower for each, one way of contrasting them, and what each tower begins from.

options  →  columns and their kinds, an encoder and a ``tune`` for each
facts    →  the table, equal cells, a split in which no cell is on both sides
recipe   →  by the encoders and the number of pairs, overridden by the options: the complete `Config`
"""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.text import safe_name
from coulomb.kinds.image.canvas import canvas_size
from coulomb.kinds.image.views import ViewMaker, make_views
from coulomb.methods import METHODS, PAIR_METHODS, Method
from coulomb.methods.options import accepted_parameters, complete_options, find_method
from coulomb.metrics.matching import first_places
from coulomb.models import has_weights
from coulomb.models.build import require_encoder
from coulomb.models.build_pair import is_pair, pair_facts
from coulomb.models.build_text import require_text_encoder
from coulomb.models.published import WEIGHTS, is_published
from coulomb.models.starting_weights import is_local
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.tuning import Tune
from coulomb.models.vector_network import NAMES as VECTOR_ENCODERS
from coulomb.tables import Columns, Samples
from coulomb.tables.cell_split import joint_ids, shared_cells, split_rows
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.scored import ScoredPairs, open_scored_pairs
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import batches_per_epoch, count_processes
from coulomb.training.plan.prepare import Split, fast_bf16
from coulomb.training.plan.resolved import Steps
from coulomb.training.plan.start import LEAST_SIDE, photo_size
from coulomb.training.record.folder import RunFolder, free_folder, read_split
from coulomb.training.record.provenance import changed, column_fingerprint

log = logging.getLogger("coulomb")

FEW = 20_000  # pairs below which towers with weights stay frozen
ENCODERS = {"image": "lite0", "text": "static", "vector": "mlp"}  # where none is given
LEAST_TEMPERATURE = 0.01  # of method clip, its option's default
MEASURED = 200  # pictures whose sides are looked up
TUNES = ("all", "last", "lora", "norm", "none")  # of a tower; ``head`` and ``whiten`` are for runs on images alone


@dataclass(frozen=True)
class TowerPlan:
    """The tower of one column, or of several with the same encoder.

    Attributes:
        columns: that it reads; the first names it.
        kind: of these columns.
        encoder: by name.
        tune: what the training changes.
        image_size: side of the input in pixels; None for other kinds.
        canvas: side of the square that pictures are stored as; None for other kinds.
        pair: whether it is one of both towers of CLIP or SigLIP, with the projection into their common space.
    """

    columns: tuple[str, ...]
    kind: str
    encoder: str
    tune: Tune
    image_size: int | None = None
    canvas: int | None = None
    pair: bool = False

    @property
    def name(self) -> str:
        """The first column."""
        return self.columns[0]

    @property
    def weights(self) -> bool:
        """Whether it begins from weights that exist."""
        return begins_from_weights(self.kind, self.encoder)

    @property
    def cached(self) -> bool:
        """Whether its features are computed once, so that training reads them instead of the cells."""
        return self.tune.kind == "none"


@dataclass(frozen=True)
class ColumnsPlan(Steps):
    """What a run on columns will do: every value decided, every name resolved.

    Attributes:
        config: the complete configuration, as in ``config.yaml``.
        table: the data.
        test_table: the held-out data, if they are separate.
        columns: the columns, in order.
        kinds: the kind of each.
        towers: the towers, each once.
        split: rows of both sides.
        cell_ids: ids [N, C] of the cells of the table; equal cells of columns of one kind have equal ids.
        test_ids: likewise for the held-out data; of the same table, the same array.
        scored: scored pairs, whose cells are the held-out data; None if held-out data are rows.
        method: the class of the method.
        processes: number of processes that the run begins with.
        learned: the training rows; of one column, one row for each distinct cell: a cell would repel its copies.
        steps_per_epoch: batches per epoch.

    Raises:
        InputError: there are fewer pairs than one batch.
    """

    config: Config
    table: Columns
    test_table: Columns | None
    columns: tuple[Column, ...]
    kinds: dict[str, str]
    towers: tuple[TowerPlan, ...]
    split: Split
    cell_ids: np.ndarray
    test_ids: np.ndarray
    method: type[Method]
    processes: int = 1
    scored: ScoredPairs | None = None
    module: nn.Module | None = None
    learned: np.ndarray = field(init=False)
    steps_per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "learned", learned_rows(self.split, self.cell_ids))
        steps = batches_per_epoch(len(self.learned), self.config.batch_size, self.processes)
        object.__setattr__(self, "steps_per_epoch", steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are contrasted, without negatives."""
        return tuple(column.name for column in self.columns if not column.negative)

    @property
    def negatives(self) -> tuple[str, ...]:
        """The names of the columns of hard negatives."""
        return tuple(column.name for column in self.columns if column.negative)

    @property
    def several(self) -> bool:
        """Whether columns are contrasted with each other; else views of one column."""
        return len(self.columns) > 1

    def place(self, column: str) -> int:
        """Returns the place of a column among all."""
        return [each.name for each in self.columns].index(column)

    def tower_of(self, column: str) -> TowerPlan:
        """Returns the tower of a column."""
        return next(tower for tower in self.towers if column in tower.columns)

    @property
    def held_out(self) -> Columns:
        """The table that holds the rows ``split.test``."""
        return self.table if self.test_table is None else self.test_table

    @property
    def held_out_labels(self) -> np.ndarray | None:
        """Labels of the rows ``split.test`` by the classes of the training rows, −1 for others; None without labels."""
        labels, names, own = self.held_out.labels, self.table.class_names, self.held_out.class_names
        if labels is None or self.table.labels is None:
            return None
        if names is not None and own is not None and own != names:
            number = {name: label for label, name in enumerate(names)}
            labels = np.array([number.get(name, -1) for name in own] + [-1], dtype=np.int64)[labels]
        return labels[self.split.test]

    @property
    def learned_labels(self) -> np.ndarray | None:
        """Labels of the training rows, −1 unknown; None without labels."""
        return None if self.table.labels is None else self.table.labels[self.learned]

    @property
    def blocks(self) -> Blocks | None:
        """None: cells are read one by one."""
        return None

    @property
    def epochs_of(self) -> int:
        """Steps from which on a checkpoint is written at the end of each epoch: those of cached features take milliseconds."""
        return 50

    def decoded(self, *, progress: bool = True) -> "ColumnsPlan":
        """Returns itself: cells are read when they are needed."""
        return self

    @property
    def stores(self) -> list[Samples]:
        """None yet: cells are read by the networks' kinds, which the training builds."""
        return []

    @property
    def closed_form(self) -> bool:
        """Whether the adapters begin as the best linear map: of two columns with frozen towers without a common space."""
        if any(tower.pair for tower in self.towers):
            return False
        apart = len(self.names) == len(self.towers) == 2 and len({self.tower_of(name).name for name in self.names}) == 2
        return apart and all(tower.cached for tower in self.towers)

    def first_rows(self, column: str) -> np.ndarray:
        """Returns for each row of the table the first training row with the same cell; the row itself if there is none."""
        ids = self.cell_ids[:, self.place(column)]
        train, first = self.split.train, np.arange(len(ids))
        _, at, inverse = np.unique(ids[train], return_index=True, return_inverse=True)
        first[train] = train[at[inverse]]
        return first

    def workers(self, column: str) -> int:
        """Processes that read the cells of a column: pictures are decoded, other cells are in memory."""
        if self.kinds[column] != "image":
            return 0
        return cores() if self.config.workers is None else self.config.workers

    def views(self, tower: TowerPlan) -> ViewMaker:
        """Returns the views of pictures for a tower."""
        assert tower.image_size is not None
        return make_views(str(self.config.views), size=tower.image_size, channels=3, **self.config.view_options)

    def announce(self) -> None:
        """Logs what was found in the data, and what each tower begins from."""
        for note in self.table.notes:
            log.info("%s", note)
        if copies := len(self.split.train) - len(self.learned):
            log.info("%s of cells that are there already: each cell is trained once", counted(copies, "row"))
        for tower in self.towers:
            begins = "its own weights" if tower.weights else "random weights"
            log.info(
                "%s: %s begins from %s; tune=%s", ", ".join(tower.columns), tower.encoder, begins, tune_text(tower.tune)
            )

    def describe(self, corrupt: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the content of ``data.json``."""
        return {
            "source": self.table.describe(),
            "kind": "columns",
            "columns": {column.name: self.kinds[column.name] for column in self.columns},
            "negatives": list(self.negatives),
            "distinct": {
                column.name: len(np.unique(self.cell_ids[:, place])) for place, column in enumerate(self.columns)
            },
            **({} if self.table.labels is None else {"classes": self.table.class_names}),
            "train": len(self.split.train),
            "test": len(self.split.test),
            "split": self.split.sentence,
            "corrupt": corrupt,
        }

    def split_record(self) -> dict[str, Any]:
        """Returns the content of ``split.json``."""
        return {
            "seed": self.config.seed,
            "group": self.config.group,
            "train": [self.table.item_id(row) for row in self.split.train.tolist()],
            "test": [self.held_out.item_id(row) for row in self.split.test.tolist()],
            "fingerprints": self.fingerprints(),
        }

    def fingerprints(self) -> dict[str, Any]:
        """Returns the fingerprints of the data, and of separate held-out data."""
        names = [column.name for column in self.columns]
        return {
            "data": column_fingerprint(self.table, names),
            "test": None if self.test_table is None else column_fingerprint(self.test_table, names),
        }


def learned_rows(split: Split, cell_ids: np.ndarray) -> np.ndarray:
    """Returns the training rows; of one column, the first of each distinct cell."""
    if cell_ids.shape[1] > 1:
        return split.train
    return split.train[first_places(cell_ids[split.train, 0])[0]]


def begins_from_weights(kind: str, encoder: str) -> bool:
    """Returns True for an encoder of this kind that begins from weights that exist."""
    if kind == "text":
        return encoder == "static" or is_local(encoder) or (is_published(encoder) and encoder.endswith(WEIGHTS))
    return kind == "image" and has_weights(encoder)


def tune_text(tune: Tune) -> str:
    """Returns the value of the option."""
    return tune.kind if tune.number is None else f"{tune.kind}:{tune.number}"


def by_column(option: str, value: str | None, names: tuple[str, ...]) -> dict[str, str]:
    """Returns the value of an option for each column: ``image=lite0,caption=static``, or one value for all.

    Raises:
        InputError: a name is no column, or appears twice.
    """
    if value is None:
        return {}
    first = value.split(",")[0].partition("=")
    if not first[1] or (first[0].strip() not in names and ":" in first[0]):
        return dict.fromkeys(names, value)
    chosen: dict[str, str] = {}
    for part in value.split(","):
        name, equals, each = (text.strip() for text in part.partition("="))
        if not equals or not each:
            raise InputError(f"{option}={value!r}: {part!r} is not COLUMN=VALUE; give {names[0]}=… for each column")
        if name not in names:
            raise InputError(
                f"{option}={value!r}: there is no column {name!r}; there are {', '.join(names)}{did_you_mean(name, names)}"
            )
        if name in chosen:
            raise InputError(f"{option}={value!r}: gives {name!r} twice")
        chosen[name] = each
    return chosen


def resolve_columns(options: Given | Mapping[str, Any]) -> ColumnsPlan:
    """Returns the plan of a new run on columns.

    Raises:
        InputError: training would refuse the data or an option.
    """
    given = Given.of(options)
    asked = Config(**given.named)
    plan = _plan(given, asked, complete=True)
    if plan.config.out is None:
        return replace(plan, config=replace(plan.config, out=str(free_folder(plan.table.name, plan.config.method))))
    return plan


def reopen_columns(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, trains: bool = False
) -> ColumnsPlan:
    """Returns the plan of an existing run on columns; see `coulomb.training.plan.plan.reopen`.

    Raises:
        InputError: the data or the split changed, or an object is missing.
    """
    given = Given.of(options or {})
    config = load_config(folder.config)
    config = replace(given.resumed(config, folder) if trains else config, out=str(folder.path))
    plan = _plan(given, config, complete=False, trains=trains)
    saved, now = read_split(folder), plan.split_record()
    if changes := changed(saved["fingerprints"], now["fingerprints"]):
        raise InputError(
            f"{str(folder.path)!r}: the data changed since the run began: {changes}; restore them, or start a new run"
        )
    for part in ("train", "test"):
        if saved[part] != now[part]:
            raise InputError(
                f"{str(folder.path)!r}: the {part} rows are not those the run began with ({len(saved[part])} then, "
                f"{len(now[part])} now); restore the data, or start a new run"
            )
    return plan


def _plan(given: Given, config: Config, *, complete: bool, trains: bool = True) -> ColumnsPlan:
    """Opens the data and resolves all names; ``complete``: fill in what ``config``, a user's options, leaves open."""
    asked = parse_columns(str(config.columns))
    if len(asked) > 1 == sum(not column.negative for column in asked):
        raise InputError(
            f"columns={config.columns!r}: hard negatives need two columns that belong together; give their second column too"
        )
    _require_options(given, config, several=len(asked) > 1)
    table, test_table, scored = open_tables(given, config, asked)
    kinds = table.kinds
    names = tuple(column.name for column in asked)
    ids = joint_ids([table] if test_table is None else [table, test_table], names)
    cell_ids, test_ids = ids[0], ids[-1]
    split = _split(config, table, test_table, asked, cell_ids, test_ids, scored)
    towers = plan_towers(config, table, asked, split)
    if complete:
        negatives = any(column.negative for column in asked)
        config = _complete(given.named, config, towers, len(split.train), several=len(names) > 1, negatives=negatives)
    method = _method(given, config, several=len(names) > 1)
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
        scored = open_scored_pairs(test, asked[0], table.kinds[asked[0].name], root=config.root)
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
OF_ONE_COLUMN = ("n_views", "head_layers", "head_hidden_dim")


def _require_options(given: Given, config: Config, *, several: bool) -> None:
    """Raises `InputError` for options that have no effect on a run on columns."""
    if given.module is not None:
        raise InputError("encoder: an object or a file of your own trains on images alone; give names with columns")
    if given.views is not None:
        raise InputError("views: your own views are for images alone; leave them out with columns")
    for name, default in OF_IMAGES.items():
        if (value := getattr(config, name)) != default:
            raise InputError(f"{name}={value!r}: is for runs on images alone; leave it out with columns")
    if config.channels not in (None, 3):
        raise InputError(f"channels={config.channels}: pictures of a column have 3; leave it out")
    for name in OF_ONE_COLUMN if several else ():
        if name in given.named:
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


def plan_towers(config: Config, table: Columns, columns: tuple[Column, ...], split: Split) -> tuple[TowerPlan, ...]:
    """Returns the towers: columns of one kind with the same encoder and ``tune`` share one.

    A column of negatives has by default the encoder of the other columns of its kind, whose cells they resemble.
    """
    kinds, names = table.kinds, tuple(column.name for column in columns)
    encoders, tunes = by_column("encoder", config.encoder, names), by_column("tune", config.tune, names)
    towers: dict[tuple[str, str, str], TowerPlan] = {}
    folders: dict[str, str] = {}
    for column in columns:
        name, kind = column.name, kinds[column.name]
        alike = [
            other.name for other in columns if column.negative and not other.negative and kinds[other.name] == kind
        ]
        encoder = encoders.get(name) or next((encoders[other] for other in alike if other in encoders), ENCODERS[kind])
        require_fitting(name, kind, encoder)
        weights = begins_from_weights(kind, encoder)
        chosen = tunes.get(name) or next((tunes[other] for other in alike if other in tunes), None)
        if chosen is None:
            chosen = "none" if weights and len(split.train) < FEW and len(names) > 1 else "all"
        tune = Tune.parse(chosen)
        if tune.kind not in TUNES:
            raise InputError(f"tune={config.tune!r}: {tune.kind} is for runs on images alone; give {', '.join(TUNES)}")
        if tune.kind == "none" and len(names) == 1:
            raise InputError(
                f"tune={config.tune!r}: of one column nothing would be trained; leave it out, or use the weights as they are: "
                f"coulomb.load({encoder!r})"
            )
        if tune.kind != "all" and not weights:
            raise InputError(
                f"tune={config.tune!r}: {name} begins from random weights ({encoder}), which are not worth keeping; give "
                f"{name}=all, or an encoder with weights"
            )
        if (folder := safe_name(name)) in folders:
            raise InputError(
                f"columns={config.columns!r}: {folders[folder]!r} and {name!r} would have the same folder; rename one"
            )
        folders[folder] = name
        key = kind, encoder, chosen
        if key in towers:
            towers[key] = replace(towers[key], columns=(*towers[key].columns, name))
            continue
        if kind != "image":
            towers[key] = TowerPlan((name,), kind, encoder, tune)
            continue
        sides = Sides.of(table.columns[name])
        size = config.image_size or sides.image_size(encoder, len(split.train))
        towers[key] = TowerPlan((name,), kind, encoder, tune, size, canvas_size(sides.square, size))
    return joined_towers(config, table, tuple(towers.values()))


def joined_towers(config: Config, table: Columns, towers: tuple[TowerPlan, ...]) -> tuple[TowerPlan, ...]:
    """Marks the two towers of CLIP or SigLIP, if columns of images and of texts have the same encoder of both.

    Raises:
        InputError: the columns would share some of its towers only.
    """
    kinds: dict[str, list[str]] = {}
    for tower in towers:
        kinds.setdefault(tower.encoder, []).append(tower.kind)
    pairs = [name for name, found in kinds.items() if {"image", "text"} <= set(found) and is_pair(name)]
    marked = []
    for tower in towers:
        if tower.encoder not in pairs:
            marked.append(tower)
            continue
        if len(kinds[tower.encoder]) > 2:
            raise InputError(
                f"tune={config.tune!r}: columns of one kind with {tower.encoder} share its tower; give them the same value"
            )
        if len(pairs) > 1:
            raise InputError(f"encoder={config.encoder!r}: two models for images and texts; give one")
        size = tower.image_size
        if tower.kind == "image":
            size = config.image_size or pair_facts(tower.encoder).image_size
            canvas = canvas_size(Sides.of(table.columns[tower.name]).square, size)
            marked.append(replace(tower, image_size=size, canvas=canvas, pair=True))
        else:
            marked.append(replace(tower, pair=True))
    return tuple(marked)


def require_fitting(name: str, kind: str, encoder: str) -> None:
    """Raises `InputError` if an encoder by name is of another kind than its column, does not exist or is not installed."""
    anywhere = is_published(encoder) or is_local(encoder)  # of images or of texts; known when it is built
    of_kind = {"text": anywhere or encoder in TEXT_BACKBONES, "vector": encoder in VECTOR_ENCODERS}
    if not of_kind.get(kind, encoder not in TEXT_BACKBONES and encoder not in VECTOR_ENCODERS):
        raise InputError(
            f"encoder={encoder!r}: does not read {kind}s, which the column {name!r} holds; give the encoder of each column, "
            f"such as {name}={ENCODERS[kind]}"
        )
    if kind == "text":
        require_text_encoder(encoder)
    elif kind == "image":
        require_encoder(encoder)


@dataclass(frozen=True)
class Sides:
    """Sides of some pictures in pixels: the median of the shorter, and the side if all are equal squares, else None."""

    short: float
    square: int | None

    @classmethod
    def of(cls, cells: Any) -> "Sides":
        """Measures at most 200 evenly spaced pictures by their headers; those that cannot be read are left out."""
        sizes = []
        for row in np.unique(np.linspace(0, len(cells) - 1, MEASURED).astype(int)).tolist():
            with suppress(InputError):
                header = cells.header(row)
                sizes.append((header.width, header.height))
        if not sizes:
            return cls(224.0, None)
        distinct = {side for size in sizes for side in size}
        return cls(float(np.median([min(size) for size in sizes])), distinct.pop() if len(distinct) == 1 else None)

    def image_size(self, encoder: str, rows: int) -> int:
        """Returns the side of an image encoder's input that these pictures allow."""
        if begins_from_weights("image", encoder):
            return photo_size(max(self.short, LEAST_SIDE), rows)
        return int(min(96, max(16, 8 * round(self.short / 8))))


def _complete(
    named: dict[str, Any],
    asked: Config,
    towers: tuple[TowerPlan, ...],
    rows: int,
    *,
    several: bool,
    negatives: bool = False,
) -> Config:
    """Completes the configuration: settings by the towers and the number of pairs, overridden by the options ``named``."""
    values = settings(towers, rows, named.get("batch_size"), named.get("epochs"), several=several)
    facts = next((pair_facts(tower.encoder) for tower in towers if tower.pair), None)
    sigmoid = facts is not None and facts.bias is not None and not negatives  # as the weights were trained
    default = "simclr" if not several else "siglip" if sigmoid else "clip"
    method = str(named.get("method") or default)
    found = PAIR_METHODS.get(method) if several else METHODS.get(method)
    own = named.get("method_options", {})
    if facts is not None:  # where the training of the weights ended
        values["temperature"] = max(facts.temperature, own.get("least_temperature", LEAST_TEMPERATURE))
        if method == "siglip":
            bias = {} if facts.bias is None else {"bias": facts.bias}
            own = {"scale": 1 / facts.temperature} | bias | own
    chosen = {
        "method": method,
        "encoder": ",".join(f"{name}={tower.encoder}" for tower in towers for name in tower.columns),
        "tune": ",".join(f"{name}={tune_text(tower.tune)}" for tower in towers for name in tower.columns),
        "method_options": complete_options(method, found, own) if found is not None else own,
    }
    taken = {name: value for name, value in named.items() if name not in chosen}
    return replace(asked, **values | taken | chosen)


def settings(
    towers: tuple[TowerPlan, ...], rows: int, batch: int | None, epochs: int | None, *, several: bool
) -> dict[str, Any]:
    """Returns the settings that depend on what is trained, on how many rows, and on ``batch`` and ``epochs`` if given.

    ==============================  =========  ==============  =========================
    what is trained                 lr         batch           epochs
    ==============================  =========  ==============  =========================
    linear maps of cached features  1e-4       up to 1,024     50 updates, more from 1,000 rows on
    static token vectors            3e-2       up to 2,048     by rows
    a transformer from weights      5e-5       up to 128       by rows
    a network from random weights   1e-3       up to 512       by rows
    ==============================  =========  ==============  =========================
    """
    trained = [tower for tower in towers if not tower.cached]
    if not trained:
        lr, most, updates = 1e-4, 1024, max(50, rows // 20)
    elif all(tower.encoder.startswith("static") for tower in trained):
        lr, most, updates = 3e-2, 2048, 150
    elif any(not tower.weights for tower in trained):
        lr, most, updates = 1e-3, 512, 3000
    else:
        lr, most, updates = 5e-5, 128, 1500
    if batch is None:
        batch = max(2, min(most, rows if several else rows // 2))
    if epochs is None:
        epochs = max(1, min(200 if trained else 1000, math.ceil(updates * batch / max(rows, 1))))
    return {
        "batch_size": batch,
        "epochs": epochs,
        "lr": lr,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "warmup_epochs": epochs / 20,
        "temperature": 0.07 if several else 1.0 if towers[0].kind == "vector" else 0.05,  # CLIP, SCARF, SimCSE
        "embedding_dim": 512 if several else 128,
        "n_views": 1 if several else 2,
        "cached_views": 4,
        "views": "captioned",
        "knn_every": max(1, epochs // 10),
        "precision": "bf16" if trained and fast_bf16() else "32",
    }


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
