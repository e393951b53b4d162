"""One configuration with several seeds: mean and standard deviation of every number."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.reading import RESTORE, Shape, list_of, read_object, table, whole
from coulomb.training.plan.config import check_names, load_config
from coulomb.training.record.folder import RunFolder, read_evaluation

SEEDS, SUMMARY = "seeds.json", "summary.json"
LEFT_OUT = ("protocol", "per_class")  # of an evaluation
MOST = 1000  # seeds
CONTENT = {
    "seeds": Shape(
        f"a list of 1 to {MOST} different whole numbers",
        lambda seeds: list_of(whole).fits(seeds) and 0 < len(seeds) == len(set(seeds)) <= MOST,
    ),
    "options": table,
}


def save_seeds(out: Path, seeds: Sequence[int], options: Mapping[str, Any]) -> None:
    """Creates ``out`` and saves the seeds and their options.

    Raises:
        InputError: ``out`` exists, or the options request more than one process.
    """
    if (options.get("devices") or 1) > 1 or options.get("num_nodes", 1) > 1:
        raise InputError(
            "seeds: not available with several processes; start the runs one by one with --seed 0, --seed 1, …"
        )
    RunFolder(out).refuse_existing()
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / SEEDS, {"seeds": list(seeds), "options": dict(options)})
    except OSError as error:
        raise InputError(f"out={str(out)!r}: cannot be created ({error.strerror})") from None


def has_seeds(path: str | Path) -> bool:
    """Returns True if ``path`` is a folder of several seeds."""
    return (Path(path) / SEEDS).is_file()


def saved_seeds(out: Path) -> tuple[list[int], dict[str, Any]]:
    """Reads seeds and options of a folder that `save_seeds` created; raises `InputError` if the file is malformed."""
    content = read_object(out / SEEDS, CONTENT)
    try:
        check_names(content["options"])
    except InputError as error:
        raise InputError(f"{out / SEEDS}: {error}; {RESTORE}") from None
    if own := sorted({"out", "seed"} & set(content["options"])):
        raise InputError(f"{out / SEEDS}: contains the option {own[0]!r}, which differs between the seeds; {RESTORE}")
    return content["seeds"], content["options"]


def seed_folder(out: Path, seed: int) -> RunFolder:
    """Returns the run folder of one seed."""
    return RunFolder(out / f"seed{seed}")


def summarize(out: Path) -> dict[str, Any]:
    """Computes mean and standard deviation (n − 1) over the seeds of all evaluation results; writes ``summary.json``.

    Returns:
        ``{"seeds": [...], "figures": {"trained": {"knn": {"mean", "std", "values"}, "few_shot.5": ..., ...}, ...},
        "protocol": {...}}``, with the figures of every contestant and of ``drift``. Values that a run lacks are left out.
    """
    seeds, _ = saved_seeds(out)
    evaluations = [read_evaluation(seed_folder(out, seed)) for seed in seeds]
    own_split = load_config(seed_folder(out, seeds[0]).config).test is None
    result = {
        "seeds": seeds,
        "runs": [seed_folder(out, seed).path.name for seed in seeds],
        "figures": {
            name: _spread([dict(figures(evaluation[name])) for evaluation in evaluations])
            for name in evaluations[0]
            if name not in ("protocol", "comparison", "verdict", "samples")
            and all(isinstance(evaluation.get(name), Mapping) and evaluation[name] for evaluation in evaluations)
        },
        "protocol": {
            "deviation": "over seeds, n − 1",
            "varies": "weights, order, views, draws of the evaluation" + (" and the split" if own_split else ""),
            "of_each_run": {key: evaluations[0]["protocol"].get(key) for key in ("data", "epochs", "image_size")},
        },
    }
    write_json(out / SUMMARY, result)
    return result


def figures(evaluation: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields every number of an evaluation with a dotted name; of several draws, the mean."""
    for key, value in evaluation.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if isinstance(value.get("mean"), int | float):
                yield name, float(value["mean"])
            elif key not in LEFT_OUT:
                yield from figures(value, name + ".")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _spread(runs: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    spread = {}
    for name in shared:
        values = [run[name] for run in runs]
        std = deviation(values) if len(values) > 1 else 0.0
        spread[name] = {"mean": math.fsum(values) / len(values), "std": std, "values": values}
    return spread


def deviation(numbers: Sequence[float]) -> float:
    """Returns the standard deviation (n − 1) of at least two numbers."""
    mean = math.fsum(numbers) / len(numbers)
    return math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))
