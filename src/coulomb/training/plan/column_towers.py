"""The towers of a run on columns: an encoder and a ``tune`` for each column, given or by its kind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.text import safe_name
from coulomb.models.build_pair import is_pair
from coulomb.models.names import is_local, is_published
from coulomb.models.text_objects import is_object
from coulomb.models.tuning import Tune
from coulomb.models.user_code import is_user_code
from coulomb.tables import Columns
from coulomb.tables.columns import Column
from coulomb.training.plan.config import Config
from coulomb.training.plan.resolved import Split
from coulomb.training.plan.towers import KINDS, TowerPlan

FEW = 20_000  # pairs below which towers with weights stay frozen
TUNES = ("all", "last", "lora", "norm", "none")  # of a tower; ``head`` and ``whiten`` are for runs on images alone


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


def plan_towers(
    config: Config,
    table: Columns,
    columns: tuple[Column, ...],
    split: Split,
    objects: Mapping[str, Any] | None = None,
) -> tuple[TowerPlan, ...]:
    """Returns the towers: columns of one kind with the same encoder and ``tune`` share one.

    ``objects``: encoders that this call gives as objects, by the names that stand for them in the configuration.

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
        encoder = _first(encoders, [name, *alike]) or KINDS[kind].encoder
        require_fitting(name, kind, encoder)
        weights = KINDS[kind].begins_from_weights(encoder)
        chosen = _first(tunes, [name, *alike])
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
        else:
            towers[key] = TowerPlan((name,), kind, encoder, tune, weights, given=(objects or {}).get(encoder))
    return tuple(
        KINDS[tower.kind].sized(tower, table.columns[tower.name], config.image_size, len(split.train))
        for tower in marked_pairs(config, tuple(towers.values()))
    )


def _first(values: dict[str, str], names: list[str]) -> str | None:
    return next((values[name] for name in names if name in values), None)


def marked_pairs(config: Config, towers: tuple[TowerPlan, ...]) -> tuple[TowerPlan, ...]:
    """Marks the two towers of CLIP or SigLIP, if columns of images and of texts have the same encoder of both.

    Raises:
        InputError: the columns would share some of its towers only.
    """
    kinds: dict[str, list[str]] = {}
    for tower in towers:
        kinds.setdefault(tower.encoder, []).append(tower.kind)
    pairs = [name for name, found in kinds.items() if {"image", "text"} <= set(found) and is_pair(name)]
    for name in pairs:
        if len(kinds[name]) > 2:
            raise InputError(
                f"tune={config.tune!r}: columns of one kind with {name} share its tower; give them the same value"
            )
    if len(pairs) > 1:
        raise InputError(f"encoder={config.encoder!r}: two models for images and texts; give one")
    return tuple(replace(tower, pair=tower.encoder in pairs) for tower in towers)


def require_fitting(name: str, kind: str, encoder: str) -> None:
    """Raises `InputError` if an encoder by name is of another kind than its column, does not exist or is not installed."""
    if is_object(encoder) and kind != "text":
        raise InputError(
            f"encoder: the object {encoder!r} is for the column {name!r} of {kind}s, and objects are for columns of texts; "
            f"give a name there, such as {{{name!r}: {KINDS[kind].encoder!r}}}"
        )
    if "/" in encoder and not (is_local(encoder) or is_published(encoder) or is_user_code(encoder)):
        raise InputError(
            f"encoder={encoder!r}: there is no such folder; check the path, or give hf:{encoder}@weights for one of the hub"
        )
    if not KINDS[kind].fits(encoder):
        raise InputError(
            f"encoder={encoder!r}: does not read {kind}s, which the column {name!r} holds; give the encoder of each column, "
            f"such as {name}={KINDS[kind].encoder}"
        )
    KINDS[kind].require(encoder)
