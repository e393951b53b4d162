"""``coulomb check``: what is in a data set, and what ``coulomb train`` with the same options would do with it."""

import dataclasses
from collections import Counter
from typing import Any

from coulomb.data import render_check
from coulomb.data.check import Look, check, look
from coulomb.data.workers import cores
from coulomb.errors import InputError
from coulomb.runs.config import Config, check_names
from coulomb.runs.corrupt import require_readable
from coulomb.runs.estimate import estimate
from coulomb.runs.objects import Objects
from coulomb.runs.plan import Plan, matches_labels, plan, plan_of
from coulomb.runs.prepare import LARGEST, open_data


def preflight(
    options: dict[str, Any], objects: Objects | None = None, *, progress: bool = True
) -> tuple[dict[str, Any], str]:
    """Look at every image, and plan and time the training that ``coulomb train`` would do with these options.

    Args:
        options: fields of `coulomb.runs.config.Config`, as for training.
        objects: data, encoder or views given as Python objects.
        progress: show a bar on a terminal.

    Returns:
        The result as a dictionary for JSON, and as text. The dictionary is that of :func:`coulomb.data.check` and

        - ``test``: ``count``, ``readable`` and ``corrupt`` of the test set, if there is one;
        - ``config``: the configuration that ``config.yaml`` would hold, except ``out``;
        - ``data``: what ``data.json`` would hold when training begins;
        - ``training``: ``refused`` (None, or the error with which training would end), ``encoder``, ``image_size``,
          ``epochs``, ``batch_size``, ``learned`` (images), ``steps_per_epoch``, ``steps``, ``updates``, ``processes``, and
          the estimates of `coulomb.runs.estimate.estimate`.

    Raises:
        InputError: the data cannot be opened, none of its images can be read, or an option has a wrong name or type.
    """
    check_names(options)
    asked = Config(**options)
    objects = (objects or Objects()).with_options(options)
    sources = open_data(asked, objects.data, objects.test)
    planned, refused = None, None
    try:
        planned = plan(options, objects, sources)
    except InputError as error:
        refused = str(error)
    looks = [look(source, cores(), progress) for source in sources if source is not None]
    if planned is not None:
        try:
            planned = _with_failures(planned, looks, objects)
            figures = estimate(planned, objects)  # makes the method, which may refuse its options
        except InputError as error:
            planned, refused = None, str(error)
    given: dict[str, Any] = {"looked": looks[0], "seed": asked.seed, "largest": LARGEST[asked.preset]}
    if planned is not None:
        given["image_size"] = planned.prepared.facts.image_size
        if matches_labels(objects.method_of(planned.config)):
            batch = planned.config.batch_size * planned.processes
            given |= {"batch_size": batch, "learned": planned.learned, "sampler": planned.config.sampler}
    result = check(looks[0].source, **given)
    if len(looks) > 1:
        result["test"] = _test_set(looks[1])
    result["training"] = {"refused": refused}
    if planned is not None:
        _add_plan(result, planned, looks)
        result["training"] |= figures
    else:
        result["findings"].insert(0, f"Training would be refused: {refused}.")
    text = render_check(result)
    return result, text if planned is None else f"{text}\n{_training_text(planned, result)}"


def _with_failures(planned: Plan, looks: list[Look], objects: Objects) -> Plan:
    """The plan once unreadable images are known: decoding finds them if the images fit into the cache."""
    prepared, config = planned.prepared, planned.config
    for store, looked in zip(prepared.stores, looks, strict=True):
        require_readable(store, list(looked.corrupt), config.max_corrupt)
        store.rounded = looked.rounded() if store.dtype == "uint8" else 0
        if store.nbytes <= store.cache_bytes:
            store.failures.update(looked.corrupt)
    prepared.leave_out_unreadable()
    return plan_of(config, prepared, objects.method_of(config))


def _test_set(looked: Look) -> dict[str, Any]:
    source = looked.source
    return {
        "source": source.describe(),
        "count": len(source),
        "readable": len(looked.readable),
        "corrupt": looked.listed(),
    }


def _add_plan(result: dict[str, Any], planned: Plan, looks: list[Look]) -> None:
    config, prepared = planned.config, planned.prepared
    listed = [entry for looked in looks for entry in looked.listed()]
    result["config"] = {name: value for name, value in dataclasses.asdict(config).items() if name != "out"}
    result["data"] = prepared.describe(listed)
    result["memory"] |= {"canvases": sum(s.nbytes for s in prepared.stores), "canvas": prepared.stores[0].size}
    result["training"] |= {
        "encoder": config.encoder,
        "image_size": prepared.facts.image_size,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "learned": len(planned.learned),
        "steps_per_epoch": planned.steps_per_epoch,
        "steps": planned.steps,
        "updates": planned.updates,
        "processes": planned.processes,
    }
    learned = set(looks[0].hashes(set(prepared.train.indices.tolist()) & set(looks[0].readable)))
    tested = Counter(looks[-1].hashes(set(prepared.test.indices.tolist()) & set(looks[-1].readable)))
    copies = result["duplicates"]["held_out"] = sum(count for digest, count in tested.items() if digest in learned)
    if copies:
        result["findings"].append(
            f"{copies} of {tested.total()} held-out images are exact copies of training images, which flatters the evaluation."
        )


def _training_text(planned: Plan, result: dict[str, Any]) -> str:
    config, facts, found = planned.config, planned.prepared.facts, result["training"]
    each = f" on each of {planned.processes} processes" if planned.processes > 1 else ""
    memory = (found["activation_bytes"] + found["model_bytes"]) / 2**20
    return (
        f"split      {len(planned.prepared.train.indices)} training and {len(planned.prepared.test.indices)} test images: "
        f"{planned.prepared.split}\n"
        f"training   {config.method}, preset {config.preset}: {config.encoder} on {facts.image_size}×{facts.image_size} "
        f"pixels, {config.epochs} epochs, {planned.steps} steps of {config.batch_size} images{each}\n"
        f"time       about {_duration(found['training_seconds'])} of training ({found['note']})\n"
        f"memory     about {memory:.0f} MiB for a batch and the network, decoded images not counted"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
