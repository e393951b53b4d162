"""Before training: the check of a data set, an estimate of time and memory, a contact sheet of views."""

import copy
import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.randomness import generator, numpy_generator
from coulomb.kinds.image.canvas import canvas_size
from coulomb.kinds.image.views import contact_sheet, make_views
from coulomb.methods import Method
from coulomb.methods.options import SHARED, accepted_parameters, build_method
from coulomb.models import ViewRows
from coulomb.tables import image_samples, open_source, render_check
from coulomb.tables.check import Inspection, check, inspect_images
from coulomb.tables.workers import cores
from coulomb.training.network import blank_encoder
from coulomb.training.plan.complete import find_settings
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import LARGEST, measure, open_data
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import Plan, require_readable, views_left_out
from coulomb.training.plan.resolve import resolve
from coulomb.training.plan.start import SIDES

LEAST, MOST, SECONDS = 3, 30, 5.0  # number of timed steps, and the time limit


def estimate(plan: Plan) -> dict[str, Any]:
    """Estimates the time and memory of a run on this machine's CPU.

    Times 3 to 30 real steps (views, forward, backward) of at most 64 random images for about five seconds, without the first,
    and scales the shortest one, as well as the memory of the activations, to the batch size. With ``tune`` none or whiten, the
    time is the time for the features, which are computed once.

    Returns:
        ``seconds_per_step``, ``training_seconds``, ``parameters``, ``activation_bytes`` (of a batch), ``model_bytes``
        (weights, gradients and optimizer state), ``note``.
    """
    config, facts, views = plan.config, plan.prepared.facts, plan.views
    batch = min(config.batch_size, 64)
    size, channels = facts.image_size, facts.channels
    encoder = blank_encoder(config, facts, plan.module)
    shared = {name: getattr(config, name) for name in SHARED}
    if config.frozen_kind is not None:
        dim = encoder.feature_dim
        encoder.attach_adapter({"kind": "linear", "in": dim, "out": dim})
        encoder.freeze()
        shared |= {"embedding_dim": dim, "head_layers": 0}
    start = copy.deepcopy(encoder).eval() if config.stay_close else None
    cached = config.micro_batch is not None and config.micro_batch < config.batch_size * config.n_views
    if cached:  # runs twice here, too
        encoder.micro_batch = max(1, batch // 2)
    counts = plan.prepared.class_counts
    classes = max(1, len(counts or []))
    method = build_method(
        config.method,
        plan.method,
        encoder,
        shared=shared,
        num_images=len(plan.learned),
        class_counts=None if counts is None else torch.tensor(counts).clamp(min=1),
        own=config.method_options,
    )
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as in training
    draw = generator(config.seed, "estimate")
    canvas = torch.randint(0, 256, (batch, channels, size, size), dtype=torch.uint8, generator=draw)
    labels = torch.arange(batch) % classes
    saved = _saved_bytes(method)
    times: list[float] = []
    while len(times) < LEAST or (len(times) < MOST and sum(times) < SECONDS):
        begin = time.perf_counter()
        augmented = views(canvas, draw, n=config.n_views)
        with saved, torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            rows = ViewRows.of(augmented, method.tower.column)
            loss = method(rows, labels, torch.arange(batch))
            if start is not None:
                with torch.no_grad():
                    start(rows[method.tower.column])
        loss.backward()
        method.after_batch()  # a queue costs time only once it is filled
        times.append(time.perf_counter() - begin)
    scale = config.batch_size / batch
    activations = saved.bytes / len(times) * scale
    if cached and config.micro_batch is not None:  # of one micro-batch, and of what follows the encoder
        encoder.micro_batch, both, alone = None, _saved_bytes(method), _saved_bytes(method)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            with both:
                method(rows, labels, torch.arange(batch))
            with alone:
                encoder(rows[method.tower.column])
        every = batch * config.n_views
        activations = (both.bytes - alone.bytes) * scale + alone.bytes * config.micro_batch / every
    parameters = sum(p.numel() for p in method.parameters())
    trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
    seconds = min(times[1:]) * scale
    views_once = {"none": config.cached_views, "whiten": 1}.get(config.frozen_kind or "", 0)  # per image
    total = seconds / config.batch_size / config.n_views * len(plan.learned) * views_once
    return {
        "seconds_per_step": seconds,
        "training_seconds": total if views_once else seconds * plan.steps,
        "parameters": parameters,
        "activation_bytes": int(activations),
        "model_bytes": 4 * (parameters + trained * (3 if config.optimizer == "adamw" else 2)),
        "note": f"{len(times) - 1} steps of {batch} images timed on this machine's CPU, "
        f"scaled to batches of {config.batch_size}",
    }


class _saved_bytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that autograd saves for the backward pass, without parameters."""

    def __init__(self, method: torch.nn.Module) -> None:
        self.bytes = 0
        parameters = {parameter.data_ptr() for parameter in method.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.data_ptr() not in parameters:
                self.bytes += tensor.numel() * tensor.element_size()
            return tensor

        super().__init__(keep, lambda tensor: tensor)


def preflight(options: Given | Mapping[str, Any], *, progress: bool = True) -> tuple[dict[str, Any], str]:
    """Checks every image, and plans and times the training that ``coulomb train`` would do with these options.

    Args:
        options: fields of `coulomb.training.plan.config.Config`, as for training; some may be objects, see `Given`.
        progress: show a bar on a terminal.

    Returns:
        The result as a dictionary for JSON, and as text. The dictionary is the result of :func:`coulomb.tables.check` with

        - ``test``: ``count``, ``readable`` and ``corrupt`` of the test set, if there is one;
        - ``config``: the configuration that ``config.yaml`` would hold, except ``out``;
        - ``data``: what ``data.json`` would hold when training begins;
        - ``training``: ``refused`` (None, or the error that training would raise), ``encoder``, ``image_size``,
          ``epochs``, ``batch_size``, ``learned`` (images), ``steps_per_epoch``, ``steps``, ``updates``, ``processes``, and
          the results of `estimate`.

    Raises:
        InputError: the data cannot be opened, none of its images can be read, or an option has a wrong name or type.
    """
    given = Given.of(options)
    config = Config(**given.named)
    sources = open_data(config, given.data, given.test)
    planned, refused = None, None
    try:
        planned = resolve(given, sources)
    except DataUnavailableError:
        raise
    except InputError as error:
        refused = str(error)
    bands = None if planned is None else planned.prepared.facts.bands
    looks = [inspect_images(source, cores(), progress, bands=bands) for source in sources if source is not None]
    if planned is not None:
        try:
            planned = _with_failures(planned, looks)
            figures = estimate(planned)  # makes the method, which may refuse its options
        except DataUnavailableError:
            raise
        except InputError as error:
            planned, refused = None, str(error)
    facts: dict[str, Any] = {"inspection": looks[0], "seed": config.seed, "largest": LARGEST[config.preset]}
    if planned is not None:
        facts |= {"image_size": planned.prepared.facts.image_size, "surveyed": planned.prepared.facts.survey}
        if planned.prepared.facts.start.encoder is not None:
            facts["smallest"] = min(SIDES)
        if matches_labels(planned.method):
            facts |= {"batch_size": planned.batch, "learned": planned.learned, "sampler": planned.config.sampler}
    facts["suggest_groups"] = config.group is None and len(looks) == 1
    result = check(looks[0].source, **facts)
    if len(looks) > 1:
        result["test"] = _test_set(looks[1])
    result["training"] = {"refused": refused}
    if planned is not None:
        if (start := planned.prepared.facts.start).encoder is not None:
            result["suggested"] |= {"image_size": start.image_size, "channels": start.channels}
        _add_plan(result, planned, looks)
        result["training"] |= figures
    else:
        result["findings"].insert(0, f"Training would be refused: {refused}.")
    text = render_check(result)
    return result, text if planned is None else f"{text}\n{_training_text(planned, result)}"


def _with_failures(planned: Plan, looks: list[Inspection]) -> Plan:
    """Returns the plan without unreadable images, which decoding finds if the images fit into the cache."""
    prepared, config = planned.prepared, planned.config
    for store, looked in zip(prepared.stores, looks, strict=True):
        require_readable(store, list(looked.corrupt), config.max_corrupt)
        if store.nbytes is not None and store.nbytes <= store.cache_bytes:
            store.failures.update(looked.corrupt)
            store.rounded.update(looked.deep if store.kind.dtype == "uint8" else ())
    return dataclasses.replace(planned, prepared=prepared.readable())


def _test_set(looked: Inspection) -> dict[str, Any]:
    source = looked.source
    return {
        "source": source.describe(),
        "count": len(source),
        "readable": len(looked.readable),
        "corrupt": looked.list_corrupt(),
    }


def _add_plan(result: dict[str, Any], planned: Plan, looks: list[Inspection]) -> None:
    config, prepared = planned.config, planned.prepared
    listed = [entry for looked in looks for entry in looked.list_corrupt()]
    result["config"] = {name: value for name, value in dataclasses.asdict(config).items() if name != "out"}
    result["data"] = prepared.describe(listed)
    canvases = sum(store.nbytes or 0 for store in prepared.stores)
    result["memory"] |= {"canvases": canvases, "canvas": prepared.stores[0].kind.size}
    result["training"] |= {
        "encoder": config.encoder,
        "start": prepared.facts.start.reason,
        "image_size": prepared.facts.image_size,
        **planned.count_steps(),
    }
    learned = set(looks[0].hashes(set(prepared.train.indices.tolist()) & set(looks[0].readable)))
    tested = Counter(looks[-1].hashes(set(prepared.test.indices.tolist()) & set(looks[-1].readable)))
    copies = result["duplicates"]["held_out"] = sum(count for digest, count in tested.items() if digest in learned)
    if prepared.facts.start.missing:
        result["findings"].append(prepared.facts.start.reason)
    result["findings"] += prepared.facts.band_findings
    if copies:
        are = "is an exact copy of a training image" if copies == 1 else "are exact copies of training images"
        result["findings"].append(
            f"{copies} of {tested.total()} held-out images {are}, which flatters the evaluation: remove them, or keep copies "
            "on one side with --group, if a column, folder or file name shows them."
        )


def _training_text(planned: Plan, result: dict[str, Any]) -> str:
    config, facts, training = planned.config, planned.prepared.facts, result["training"]
    each = f" on each of {planned.processes} processes" if planned.processes > 1 else ""
    memory = (training["activation_bytes"] + training["model_bytes"]) / 2**20
    start = f"start      {facts.start.reason}\n"
    if facts.bands is not None:
        start += f"bands      {facts.bands.describe()}; pictures show {facts.bands.shown}\n"
        start += "".join(f"           {note}\n" for note in facts.band_notes if note not in facts.band_findings)
    if left_out := views_left_out(planned.views):
        start += f"views      {left_out}\n"
    return (
        f"{start}"
        f"split      {len(planned.prepared.train.indices)} training and {len(planned.prepared.test.indices)} test images: "
        f"{planned.prepared.split}\n"
        f"training   {config.method}, preset {config.preset}: {config.encoder} on {facts.image_size}×{facts.image_size} "
        f"pixels, {config.epochs} epochs, {planned.steps} steps of {config.batch_size} images{each}\n"
        f"time       about {_duration(training['training_seconds'])} of training ({training['note']})\n"
        f"memory     about {memory:.0f} MiB for a batch and the network, without the decoded images"
    )


def matches_labels(method: type[Method]) -> bool:
    """Returns True if the method's positives are the images of the same class in the batch (SupCon, triplets).

    Methods with a center or a weight vector per class declare ``class_counts`` or ``num_classes`` instead.
    """
    return method.needs_labels and not {"class_counts", "num_classes"} & set(accepted_parameters(method)[0])


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


MOST_BYTES = 2**31  # of all views of a contact sheet


def preview(
    data: Any,
    out: Path,
    *,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
    image_size: int | None = None,
    n: int = 8,
    rows: int = 8,
    seed: int = 0,
) -> str:
    """Saves a contact sheet of ``rows`` random images of ``data`` with ``n`` views each; returns the preset used."""
    source = open_source(data)
    facts = measure(Config(data=str(data), image_size=image_size, seed=seed), source)
    needed = 4 * rows * (n + 1) * facts.channels * facts.image_size**2
    if needed > MOST_BYTES:
        raise InputError(
            f"image_size={facts.image_size}, n={n}: a sheet of {rows} images would take {needed / 2**30:.3g} GiB of memory "
            f"(at most {MOST_BYTES >> 30}); request smaller or fewer views"
        )
    recipe = find_settings("simclr", "small", facts)
    used = preset or str(recipe.views)
    own = (recipe.view_options if preset is None else {}) | (options or {})
    views = make_views(used, size=facts.image_size, channels=facts.channels, **own)
    size, dtype = canvas_size(facts.survey.square, facts.image_size), facts.survey.dtype
    images = image_samples(source, size=size, channels=facts.channels, cache_bytes=0, dtype=dtype, bands=facts.bands)
    chosen = numpy_generator(seed, "preview").permutation(len(source))[:rows]
    batch = next(images.batches(chosen, len(chosen)))
    if not len(batch):
        raise InputError(f"data={data!r}: none of {len(chosen)} random images could be read")
    sheet = contact_sheet(batch.stack, views, generator(seed, "sheet"), n=n)
    try:
        sheet.save(out)
    except (OSError, ValueError) as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error})") from None
    return used
