"""Views by name."""

from dataclasses import replace
from typing import Any

from coulomb.data.views.own import TakingTurns
from coulomb.data.views.presets import PRESETS
from coulomb.data.views.spec import ViewSpec, check_fields
from coulomb.data.views.views import Views
from coulomb.errors import InputError


def make_views(preset: str | ViewSpec = "small-natural", size: int = 32, channels: int = 3, **overrides: Any) -> Views:
    """Views for ``channels``-channel images, ``size`` × ``size`` pixels each.

    ``preset`` is a name of `PRESETS` or a specification of your own; ``overrides`` are fields of `ViewSpec`, as in
    ``make_views("natural", size=96, blur=0)``. Saturation, hue and grey of a preset are left out where there are not
    three channels (``describe()`` says so). Raises InputError for an unknown preset or field, a value outside its
    range, or colour asked for by name where there is none.
    """
    if isinstance(preset, str):
        if preset not in PRESETS:
            raise InputError(f"unknown views preset {preset!r}; the presets are {', '.join(PRESETS)}")
        spec, name = PRESETS[preset](), preset
    elif isinstance(preset, ViewSpec):
        spec, name = preset, None
    else:
        raise InputError(f"preset={preset!r}: give one of {', '.join(PRESETS)}, or a ViewSpec")
    check_fields(overrides)
    coloured = [field for field in ("saturation", "hue", "grey") if overrides.get(field)]
    if coloured and channels != 3:
        raise InputError(f"{coloured[0]}={overrides[coloured[0]]!r} needs three channels, these images have {channels}")
    return Views(replace(spec, **overrides), size, channels, name)


def views_from_config(config: dict[str, Any]) -> Views | TakingTurns:
    """The inverse of ``to_config`` for `Views` and `TakingTurns`. Raises InputError for anything else."""
    if "own" in config:
        raise InputError(
            f"these views were made by a function of yours, {config['own']!r}: pass it in again as OwnViews"
        )
    if "taking_turns" in config:
        return TakingTurns([views_from_config(part) for part in config["taking_turns"]])
    return Views.from_config(config)
