"""The training of a run on columns, as its plan says."""

import dataclasses
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.ground.errors import counted
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.randomness import derive_seed, generator
from coulomb.kinds import Kind
from coulomb.kinds.image.picture import CorruptImage
from coulomb.kinds.image.views import contact_sheet
from coulomb.kinds.vector import StoredViews, Vector
from coulomb.methods import Method
from coulomb.methods.options import SHARED, build_method, build_pair_method
from coulomb.models import Encoder, Tower, Towers, build_pair, save_encoder
from coulomb.models.build_pair import Pair
from coulomb.models.lora import merge_lora
from coulomb.models.saving import DESCRIPTION
from coulomb.tables import Samples
from coulomb.training.checkpoints import is_finished
from coulomb.training.closed_form import fitted_adapters, set_adapter
from coulomb.training.feature_cache import UNREADABLE, FeatureCache
from coulomb.training.loop import Loop
from coulomb.training.order import ColumnViews
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.given import Given
from coulomb.training.plan.shown_views import shown_views, training_kind, what_views_do
from coulomb.training.plan.towers import KINDS, TowerPlan
from coulomb.training.record.folder import RunFolder
from coulomb.training.stopping import Signals
from coulomb.training.watching.live_pairs import LivePairs
from coulomb.training.watching.records import Alarm, CorruptImages, MakeWatcher

log = logging.getLogger("coulomb")

SHEET = 8  # pictures of the contact sheet, and views of each; texts or vectors whose views the report shows


class PlainFirst:
    """The plain view of each cell, then random ones: features of the first are also those of the evaluation."""

    def __init__(self, views: Any) -> None:
        self.views = views

    def __call__(self, stack: Any, generator: torch.Generator, n: int = 2) -> list[Any]:
        """Returns the plain view and ``n`` − 1 random ones."""
        return [self.plain(stack), *(self.views(stack, generator, n=n - 1) if n > 1 else [])]

    def plain(self, stack: Any) -> Any:
        """Returns the plain view."""
        return self.views.plain(stack)


def fit_columns(
    plan: ColumnsPlan,
    folder: RunFolder,
    corrupt: CorruptImages,
    signals: Signals,
    given: Given,
    *,
    checkpoint: Path | None,
    watch: MakeWatcher | None = None,
    progress: bool = True,
) -> None:
    """Trains the towers of a run on columns, and saves their encoders in ``towers/NAME``; arguments as for images.

    Raises:
        InputError: an encoder cannot be built, or too many cells cannot be read.
        LostProcessError: another process of the run ended.
        KeyboardInterrupt: a signal stopped the training.
    """
    config = plan.config
    loop = Loop(plan, folder, corrupt, signals, given, checkpoint=checkpoint, progress=progress)
    encoders = starting_encoders(plan, folder, save=loop.first)
    cells, kinds, views = {}, {}, {}
    caches: dict[str, FeatureCache] = {}
    finished = is_finished(checkpoint, plan.updates)
    for column in plan.columns:
        tower = plan.tower_of(column.name)
        encoder = encoders[tower.name]
        of_kind = plan.kind_of(column.name)
        cells[column.name] = of_kind.cells(plan.table.columns[column.name], encoder)
        kinds[column.name] = training_kind(plan, column.name, encoder)
        for note in getattr(cells[column.name], "notes", ()):  # texts that were cut
            log.info("%s: %s", column.name, note)
        if of_kind.decoded and loop.first and not folder.views.exists():
            save_sheet(folder.views, plan, column.name, kinds[column.name])
        if loop.first and (shown := shown_views(plan, encoder, kinds[column.name], SHEET)) is not None:
            log.info("views of %s: %s", column.name, what_views_do(shown))
            if not folder.shown_views.exists():
                write_json(folder.shown_views, shown)
        if tower.cached and not finished:
            cache = _cached(plan, loop, tower, encoder, column.name, cells, kinds, progress=progress)
            cells[column.name] = cache.cells(plan.first_rows(column.name))
            kinds[column.name] = Vector(StoredViews(), UNREADABLE)
            caches[column.name] = cache
        views[column.name] = ColumnViews(kinds[column.name].views, config.n_views)
    if plan.closed_form:
        fitted = fitted_adapters(plan, caches, folder.initial.with_name("linear_map.npz"), save=loop.first)
        for name, affine in fitted.items():
            set_adapter(encoders[name], affine)
    for tower in plan.towers:
        encoder = encoders[tower.name]
        encoder.column, encoder.cached = tower.name, tower.cached and not finished
    samples = Samples(
        plan.table.with_cells(cells),
        kinds,
        cache_bytes=int(config.cache_gb * 2**30),
        workers=max((plan.workers(name) for name in kinds if name not in caches), default=0),
    )
    corrupt.watch(samples, trains=True)
    samples.load(progress=progress)
    method = make_columns_method(plan, encoders)
    log.info(
        "training %s on %s, %d steps of %d: %s",
        config.method, counted(len(plan.learned), "row"), plan.steps, plan.batch, folder.path,
    )  # fmt: skip
    watchers: list[Any] = [LivePairs(plan, encoders, loop.journal)]
    if watch is not None:
        facts = {"train": len(plan.learned), "class_counts": None}
        watchers.append(Alarm(loop.journal, watch(dataclasses.asdict(config), facts, method.needs_labels)))
    loop.run(method, samples, views, watchers)
    for encoder in encoders.values():
        encoder.cached = False
    if loop.first:
        for name, encoder in encoders.items():
            save_encoder(merge_lora(encoder.cpu()), folder.tower(name))
        write_json(folder.towers, describe_towers(plan, method))
        write_json(folder.data, plan.describe(corrupt.listed()))
        for cache in caches.values():
            if not config.keep_cache:
                cache.delete()


def save_sheet(path: Path, plan: ColumnsPlan, column: str, kind: Kind) -> None:
    """Saves the contact sheet of the views of a column of pictures, for the report.

    Nothing is saved if training sees each picture as it is only, or if none of the chosen pictures can be read.
    """
    if plan.tower_of(column).cached and plan.config.cached_views == 1:
        return
    distinct = np.unique(plan.first_rows(column)[plan.learned])
    values = []
    for row in distinct[:: max(1, len(distinct) // SHEET)][:SHEET].tolist():
        try:
            values.append(kind.read(plan.table.columns[column], row).value)
        except CorruptImage:  # the training counts it
            continue
    if values:
        buffer = io.BytesIO()
        sheet = contact_sheet(kind.stack(values), kind.views, generator(plan.config.seed, "sheet"), n=SHEET)
        sheet.save(buffer, "PNG")
        write_atomically(path, buffer.getvalue())


def describe_towers(plan: ColumnsPlan, method: Method) -> dict[str, Any]:
    """Returns the content of ``towers.json``: the columns, their kinds and towers, and the temperature that was learned."""
    side = next((tower.canvas for tower in plan.towers if tower.canvas is not None), None)
    return {
        "format": 1,
        "canvas": None if side is None else {"size": side, "dtype": "uint8"},
        "columns": {
            column.name: {"kind": plan.kinds[column.name], "tower": plan.tower_of(column.name).name}
            for column in plan.columns
        },
        **method.figures(),
    }


def starting_encoders(plan: ColumnsPlan, folder: RunFolder, *, save: bool) -> dict[str, Encoder]:
    """Returns the encoders with which a run begins, by the name of their tower, with their adapters, in training mode.

    A new run saves them in ``checkpoints/initial/NAME``, from where a resumed run and the evaluation load them.
    """
    encoders = {}
    pair: Pair | None = None
    for tower in plan.towers:
        start = folder.start(tower.name)
        if (start / DESCRIPTION).is_file():
            encoder = tower.load(start).train()
        else:
            if tower.pair and pair is None:
                pair = new_pair(plan, tower.encoder)
            encoder = new_encoder(plan, tower) if pair is None or not tower.pair else getattr(pair, tower.kind)
            encoder.train()
            if save:
                save_encoder(encoder, start)
        tower.tune.apply(
            encoder, norm_statistics=plan.config.norm_statistics, seed=derive_seed(plan.config.seed, "lora")
        )
        if tower.cached:
            encoder.freeze()
        if plan.several and not plan.closed_form and encoder.adapter is None:  # CLIP's towers have theirs
            width = encoder.feature_dim
            if len(plan.towers) > 1:
                seed = derive_seed(plan.config.seed, "adapter", tower.name)
                encoder.attach_adapter({"kind": "unit", "in": width, "out": plan.config.embedding_dim}, seed=seed)
            elif tower.cached:  # columns of one tower share a space already: begin from it
                set_adapter(encoder, (np.eye(width), np.zeros(width)))
        if plan.config.micro_batch is not None and not tower.cached:
            encoder.micro_batch = plan.config.micro_batch
        encoders[tower.name] = encoder
    return encoders


def new_pair(plan: ColumnsPlan, name: str) -> Pair:
    """Builds both encoders of CLIP or SigLIP, with their projections as adapters."""
    (image,) = (tower for tower in plan.towers if tower.pair and tower.kind == "image")
    seed = derive_seed(plan.config.seed, "encoder", image.name)
    return build_pair(name, image_size=image.image_size, longest=plan.config.longest, seed=seed)


def new_encoder(plan: ColumnsPlan, tower: TowerPlan) -> Encoder:
    """Builds the encoder of a tower by its name."""
    columns = [plan.table.columns[name] for name in tower.columns]
    seed = derive_seed(plan.config.seed, "encoder", tower.name)
    return KINDS[tower.kind].build(tower, columns, plan.learned, plan.config, seed)


def _cached(
    plan: ColumnsPlan,
    loop: Loop,
    tower: TowerPlan,
    encoder: Encoder,
    column: str,
    cells: dict[str, Any],
    kinds: dict[str, Kind],
    *,
    progress: bool,
) -> FeatureCache:
    """Computes the features of the distinct training cells of a column once, by the frozen backbone."""
    distinct = np.unique(plan.first_rows(column)[plan.split.train])
    views = plan.config.cached_views if KINDS[tower.kind].decoded else 1
    path = loop.folder.path / f"features-{plan.place(column)}.f32"
    encoder.to(loop.device)
    cache = FeatureCache(path, distinct, views=views, dim=encoder.backbone_dim, seed=plan.config.seed, of=tower.kind)
    read = Samples(
        plan.table.with_cells({column: cells[column]}),
        {column: kinds[column]},
        workers=plan.workers(column),
    )
    loop.corrupt.watch(read)
    if loop.first:
        cache.fill(encoder, read, PlainFirst(kinds[column].views), loop.device, progress=progress)
    loop.corrupt.add(read, read.failures)
    return cache.opened()


def make_columns_method(plan: ColumnsPlan, encoders: dict[str, Encoder]) -> Method:
    """Builds the method of a run on columns."""
    config = plan.config
    shared = {name: getattr(config, name) for name in SHARED} | {"seed": derive_seed(config.seed, "head")}
    if not plan.several:
        (encoder,) = encoders.values()
        return build_method(
            config.method, plan.method, encoder,
            shared=shared, num_images=len(plan.learned), class_counts=None, own=config.method_options,
        )  # fmt: skip
    towers = {name: Tower(encoder, head_layers=0) for name, encoder in encoders.items()}
    by_column = {column.name: towers[plan.tower_of(column.name).name] for column in plan.columns}
    return build_pair_method(
        config.method,
        plan.method,
        Towers(by_column),
        cell_ids=torch.from_numpy(plan.cell_ids[plan.learned]),
        negatives=plan.negatives,
        shared=shared,
        own=config.method_options,
    )
