"""What a run's encoder is worth on other data than it was trained on."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

from coulomb.assessment.contestants import RETRIEVAL, compared_with_baselines, contestants
from coulomb.errors import InputError
from coulomb.runs.config import load_config
from coulomb.runs.environment import environment
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import measure, open_data, prepare
from coulomb.runs.run_folder import RunFolder, safe_name, write_json

log = logging.getLogger("coulomb")


def transfer(
    folder: RunFolder,
    data: Any,
    test: Any = None,
    objects: Objects | None = None,
    *,
    labels: str | None = None,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate the run's frozen encoder on ``data``; write ``transfer/NAME.json`` into the run folder and return it.

    The images are resized to what the encoder saw and converted to its channels. All figures are those of `assess`, beside
    the untrained encoder and the raw pixels of the same images.

    Args:
        folder: the run.
        data: labelled images: a name as for training, an array, a torch ``Dataset``.
        test: held-out images of the same classes; without it a stratified fifth is held out.
        objects: what the run was handed over in Python (encoder, views), if anything.
        labels: column of a table that holds the labels.
        full: fine-tune both encoders on it too.
        options: ``knn_k`` (default 200 from 10,000 images on, else 20), ``knn_sigma``, ``many_above``, ``few_below``.
        progress: show what goes on.

    Raises:
        InputError: ``data`` or ``test`` has no labels, or cannot be read.
    """
    objects = objects or Objects()
    own = load_config(folder.config)
    named: dict[str, Any] = {"data": _name(data), "test": None if test is None else _name(test)}
    other: dict[str, Any] = {
        "labels": labels,
        "root": None,
        "test_fraction": 0.2,
        "long_tail": None,
        "sampler": "uniform",
    }
    config = dataclasses.replace(own, **named, **other)
    sources = open_data(config, *(None if isinstance(each, str | Path) else each for each in (data, test)))
    for name, source in zip(("data", "test"), sources, strict=True):
        if source is not None and source.labels is None:
            raise InputError(
                f"{name}={named[name]!r}: has no labels: nothing to measure by; name their column as labels"
            )
    prepared = prepare(config, sources, measure(config, *sources), progress=progress)
    k = 200 if len(prepared.train.indices) >= 10_000 else 20
    config = dataclasses.replace(config, **{"knn_k": k} | (options or {}))
    views = objects.views_of(own, prepared.facts.image_size, prepared.facts.channels)
    result: dict[str, Any] = {}
    compared = contestants(config, folder, prepared, views, objects.encoder)
    for name, contestant in compared.items():
        log.info("evaluating %s on %s", name, sources[0].name)
        result[name] = contestant.measured(prepared, config, config.seed, f"evaluating {name}", progress)
        if full and contestant.pixels is None:
            tuned = contestant.fine_tuned(prepared, config, config.seed)
            result[name]["fine_tune"] = tuned["fractions"]
            result[name]["protocol"]["fine_tune"] = tuned["protocol"]
    result["comparison"] = compared_with_baselines(compared, config.seed)
    result["protocol"] = {
        "name": sources[0].name,
        "data": named["data"],
        "test": named["test"],
        "split": prepared.split,
        "trained_on": own.data,
        "seed": config.seed,
        "image_size": prepared.facts.image_size,
        "channels": prepared.facts.channels,
        "encoders": "frozen; they normalise by the images they were trained on",
        "raw_pixels": "the evaluation view, normalised per channel by the training images of this data",
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views of the run",
        "versions": environment(),
    }
    folder.transfer.mkdir(exist_ok=True)
    write_json(folder.transfer / f"{safe_name(sources[0].name)}.json", result)
    return result


def _name(data: Any) -> str:
    return str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"
