"""The figures of one run with several seeds → their means, and the deviation of each."""

import math
from collections.abc import Sequence
from typing import Any

from coulomb.runs.seeds import deviation


def over_seeds(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means of the figures, with ``NAME_std`` (n − 1) beside every number of them, and ``seeds``, how many there are.

    Lists and tables are averaged place by place where they have one shape; what is no number is the first run's. Runs that
    ``failed`` are left out and counted in ``failed_seeds``; where all did, the first says why.
    """
    well = [run for run in runs if "failed" not in run]
    if not well:
        return dict(runs[0])
    if len(runs) == 1:
        return dict(runs[0])
    found: dict[str, Any] = {}
    for key in well[0]:
        values = [run.get(key) for run in well]
        found[key] = mean_of(values)
        numbers = [float(value) for value in values if value is not None and _number(value)]
        if _number(found[key]) and len(numbers) > 1:
            found[f"{key}_std"] = deviation(numbers)
    return found | {"seeds": len(well)} | ({"failed_seeds": len(runs) - len(well)} if len(well) < len(runs) else {})


def mean_of(values: Sequence[Any]) -> Any:
    """The mean of numbers (those that are there), of lists place by place, of tables by key; else the first."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if all(_number(value) for value in there):
        return there[0] if len(set(there)) == 1 else math.fsum(there) / len(there)
    if all(isinstance(value, list) for value in there) and len({len(value) for value in there}) == 1:
        return [mean_of(place) for place in zip(*there, strict=True)]
    if all(isinstance(value, dict) for value in there):
        return {key: mean_of([value.get(key) for value in there]) for key in there[0]}
    return there[0]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
