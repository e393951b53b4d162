"""Looking before training: the views of a data set, and a check of it with estimates."""

import dataclasses
from pathlib import Path
from typing import Any

from coulomb.data import Images, check, open_source, render_check
from coulomb.data.views import contact_sheet, make_views
from coulomb.data.workers import cores
from coulomb.errors import InputError
from coulomb.randomness import generator, numpy_generator
from coulomb.runs.config import Config
from coulomb.runs.estimate import estimate
from coulomb.runs.prepare import canvas_size, measure
from coulomb.runs.recipes import recipe_of

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
    """Save a contact sheet of ``rows`` images drawn from ``data``, each with ``n`` views; returns the preset used."""
    source = open_source(data)
    facts = measure(Config(data=str(data), image_size=image_size, seed=seed), source)
    needed = 4 * rows * (n + 1) * facts.channels * facts.image_size**2
    if needed > MOST_BYTES:
        raise InputError(
            f"image_size={facts.image_size}, n={n}: a sheet of {rows} images would take {needed / 2**30:.3g} GiB of memory "
            f"(at most {MOST_BYTES >> 30}); ask for smaller or fewer views"
        )
    used = preset or str(recipe_of("simclr", "small")(facts).views)
    views = make_views(used, size=facts.image_size, channels=facts.channels, **(options or {}))
    images = Images(source, size=canvas_size(source, facts.image_size, seed), channels=facts.channels, cache_bytes=0)
    chosen = numpy_generator(seed, "preview").permutation(len(source))[:rows]
    batch = next(images.batches(chosen, len(chosen)))
    if not len(batch["index"]):
        raise InputError(f"data={data!r}: none of {len(chosen)} images drawn could be read")
    try:
        contact_sheet(batch["image"], views, generator(seed, "sheet"), n=n, aspect=batch["aspect"]).save(out)
    except (OSError, ValueError) as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error})") from None
    return used


def preflight(
    data: Any, *, batch_size: int = 256, method: str = "simclr", preset: str = "small", progress: bool = True
) -> tuple[dict[str, Any], str]:
    """Check a data set and estimate what training on it would need; returns the figures and a text to print."""
    asked = Config(data=str(data), method=method, preset=preset, batch_size=batch_size)
    source = open_source(data)
    result = check(source, batch_size=batch_size, workers=cores(), progress=progress)
    facts = measure(asked, source)
    config = dataclasses.replace(recipe_of(method, preset)(facts), batch_size=batch_size)
    training = estimate(config, facts.images)
    result["training"] = {
        "encoder": config.encoder,
        "image_size": config.image_size,
        "epochs": config.epochs,
    } | training
    return result, render_check(result) + "\n" + _training_text(config, training)


def _training_text(config: Config, found: dict[str, Any]) -> str:
    seconds = found["training_seconds"]
    duration = (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
    memory = (found["activation_bytes"] + found["model_bytes"]) / 2**20
    return (
        f"training   {config.method}, preset {config.preset}: {config.encoder}, {config.epochs} epochs, "
        f"{found['steps']} steps of {config.batch_size} images\n"
        f"time       about {duration} ({found['note']})\n"
        f"memory     about {memory:.0f} MiB for a batch and the network, decoded images not counted"
    )
