"""From the options of a run, or from its folder, to its plan, resolved once: of images here, of columns by `resolve_columns`.

options  →  `Given`: names, and the user's objects and code in place of names
facts    →  `measure`: split, image size, channels, what the encoder begins from
recipe   →  of method and preset, overridden by the options: the complete `Config`
`Plan`   →  the configuration with everything that it names: tables, method, views
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.methods.options import short_name
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.complete import check_encoder, complete
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.facts import Facts, measure, open_data
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import Plan, Sources, arrange
from coulomb.training.plan.resolve_columns import reopen_columns, resolve_columns
from coulomb.training.plan.resolved import count_processes
from coulomb.training.plan.start import AUTO
from coulomb.training.record.folder import RunFolder, free_folder, read_split, stored_bands
from coulomb.training.record.provenance import changed, fingerprints

AnyPlan = Plan | ColumnsPlan


def resolve_run(options: Given | Mapping[str, Any]) -> AnyPlan:
    """Returns the plan of a new run; see `resolve` and `resolve_columns`."""
    given = Given.of(options)
    return resolve(given) if given.named.get("columns") is None else resolve_columns(given)


def resolve(options: Given | Mapping[str, Any], sources: Sources | None = None) -> Plan:
    """Returns the plan of a new run with these options. Images are not decoded, so unreadable ones are included.

    Args:
        options: fields of `Config`; ``data``, ``test``, ``encoder``, ``views`` and ``method`` may be objects, see `Given`.
        sources: data and test set, if they are already open.

    Raises:
        InputError: training would refuse the data or an option.
    """
    given = Given.of(options)
    if given.encoders and given.module is None:
        raise InputError(
            f"encoder={given.named['encoder']!r}: is for columns of texts; give the columns, or one module for images alone"
        )
    named = {name: value for name, value in given.named.items() if (name, value) != ("encoder", AUTO)}
    asked = Config(**named)
    method = given.find_method(asked)
    sources = sources or open_data(asked, given.data, given.test)
    facts = measure(asked, *sources)
    config = complete(named, asked, method, facts, own_encoder=given.module is not None)
    if method.needs_labels and facts.labeled == 0:
        raise InputError(
            f"method={config.method!r}: needs labels, and {sources[0].name!r} has none; use one that needs none: 'simclr'"
        )
    check_encoder(config, facts, given.module)
    if config.out is None:
        name = "whiten" if config.frozen_kind == "whiten" else short_name(config.method)
        config = replace(config, out=str(free_folder(sources[0].name, name)))
    return _plan(config, given, sources, facts, count_processes(config))


def _plan(config: Config, given: Given, sources: Sources, facts: Facts, processes: int) -> Plan:
    """Resolves the names of a complete configuration."""
    prepared = arrange(config, sources, facts)
    views = given.build_views(config, facts.image_size, facts.channels)
    return Plan(config, prepared, given.find_method(config), views, given.module, processes)


def reopen_run(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, progress: bool, trains: bool = False
) -> AnyPlan:
    """Returns the plan of an existing run; see `reopen` and `reopen_columns`."""
    if folder.config.is_file() and load_config(folder.config).columns is not None:
        return reopen_columns(folder, options, trains=trains)
    return reopen(folder, options, progress=progress, trains=trains)


def reopen(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, progress: bool, trains: bool = False
) -> Plan:
    """Returns the plan of an existing run from its folder, with the images decoded; the split must be the saved one.

    Args:
        folder: the run.
        options: objects, user's code and data of this call; everything else is in the folder.
        progress: show progress bars.
        trains: the run will be resumed, so that user code and files outside the folder must be among ``options``, see
            `Given.resumed`; else the number of processes is of no importance.

    Raises:
        InputError: the data or the split changed, or an object is missing.
    """
    given = Given.of(options or {})
    config = load_config(folder.config)
    config = replace(given.resumed(config, folder) if trains else config, out=str(folder.path))
    sources = open_data(config, given.data, given.test)
    saved = read_split(folder)
    if changes := changed(saved["fingerprints"], fingerprints(sources)):
        raise InputError(
            f"{str(folder.path)!r}: the data changed since the run began: {changes}; restore them, or start a new run"
        )
    facts = measure(config, *sources, bands=stored_bands(folder))
    processes = count_processes(config) if trains else 1
    plan = _plan(config, given, sources, facts, processes).decoded(progress=progress)
    for name, part in (("train", plan.prepared.train), ("test", plan.prepared.test)):
        if saved[name] != part.ids:
            raise InputError(
                f"{str(folder.path)!r}: the {name} images are not those the run began with "
                f"({len(saved[name])} then, {len(part.ids)} now); restore the data, or start a new run"
            )
    return plan
