"""A contact sheet of the views of a data set."""

from pathlib import Path
from typing import Any

from coulomb.data import Images, open_source
from coulomb.data.views import contact_sheet, make_views
from coulomb.errors import InputError
from coulomb.randomness import generator, numpy_generator
from coulomb.runs.config import Config
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
    size, dtype = canvas_size(facts.survey, facts.image_size), facts.survey.dtype
    images = Images(source, size=size, channels=facts.channels, cache_bytes=0, dtype=dtype)
    chosen = numpy_generator(seed, "preview").permutation(len(source))[:rows]
    batch = next(images.batches(chosen, len(chosen)))
    if not len(batch["index"]):
        raise InputError(f"data={data!r}: none of {len(chosen)} images drawn could be read")
    try:
        contact_sheet(batch["image"], views, generator(seed, "sheet"), n=n, aspect=batch["aspect"]).save(out)
    except (OSError, ValueError) as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error})") from None
    return used
