"""Speed of the augmentations, compared with kornia: ``python -m benchmarks.views``."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.command import Json, command, show
from benchmarks.timing import interleaved, medians
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds.image.views import Views, make_views

TARGETS = {"without blur": 50_000, "with blur": 25_000}  # views per second, 32×32×3, two cores


def bench_views(batch: int = 512, size: int = 32, repeats: int = 15) -> dict[str, Any]:
    """Measures views per second of the SimCLR chain (crop, flip, jitter p=.8, gray p=.2; with and without blur p=.5).

    coulomb and kornia are timed alternately, so that other load affects both; each round makes one view of ``batch`` random
    uint8 images. Rates are medians.

    Returns:
        ``{"batch", "size", "threads", "repeats", "cases": {case: {"coulomb", "coulomb, linear hue", "kornia"}},
        "kornia_version"}``; kornia's rates are None if it is not installed.

    Raises:
        InputError: a number is too small.
    """
    for name, value in (("batch", batch), ("size", size - 1), ("repeats", repeats)):
        if value < 1:
            raise InputError(f"{name} is too small: give at least {2 if name == 'size' else 1}")
    canvas = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, generator=generator(0, "bench", "views"))
    cases: dict[str, dict[str, float | None]] = {}
    version = None
    for case, blur in (("without blur", 0.0), ("with blur", 0.5)):
        runs: dict[str, Callable[[], object]] = {
            "coulomb": _ours(make_views("small-natural", size=size, blur=blur), canvas),
            "coulomb, linear hue": _ours(make_views("small-natural", size=size, blur=blur, hue_model="linear"), canvas),
        }
        theirs = _kornia_chain(size, blur)
        if theirs is not None:
            chain, version = theirs
            runs["kornia"] = lambda chain=chain: chain(canvas.float() / 255)  # type: ignore[misc]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = medians(interleaved(runs, repeats, warmup=2))
        cases[case] = {name: batch / seconds[name] if name in seconds else None for name in (*runs, "kornia")}
    return {
        "batch": batch,
        "size": size,
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "cases": cases,
        "kornia_version": version,
    }


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_views` as a table."""
    lines = [
        f"views per second: {result['size']}×{result['size']}×3, batch {result['batch']}, {result['threads']} threads, "
        f"median of {result['repeats']}",
        f"{'':22}" + "".join(f"{case:>16}" for case in result["cases"]),
    ]
    for name in next(iter(result["cases"].values())):
        figures = [rates[name] for rates in result["cases"].values()]
        cells = "".join(f"{'—':>16}" if figure is None else f"{figure:>16,.0f}" for figure in figures)
        lines.append(f"{name:22}{cells}")
    if result["size"] == 32:
        lines.append(f"{'target':22}" + "".join(f"{TARGETS[case]:>16,}" for case in result["cases"]))
    if result["kornia_version"] is None:
        lines.append("kornia is not installed; for the comparison: pip install kornia")
    else:
        lines.append(f"kornia {result['kornia_version']}")
    return "\n".join(lines)


def _ours(views: Views, canvas: Tensor) -> Callable[[], object]:
    draws = generator(0, "bench", "draws")
    return lambda: views(canvas, draws, n=1)


def _kornia_chain(size: int, blur: float) -> tuple[Callable[[Tensor], Tensor], str] | None:
    """Returns kornia's equivalent chain, with parameters per sample, and its version; None if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own dependencies' deprecations
        try:
            import kornia
            from kornia import augmentation
        except ImportError:
            return None
        steps = [
            augmentation.RandomResizedCrop((size, size), scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)),
            augmentation.RandomHorizontalFlip(p=0.5),
            augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
            augmentation.RandomGrayscale(p=0.2),
        ]
        if blur:
            taps = max(3, size // 10 // 2 * 2 + 1)
            steps.append(augmentation.RandomGaussianBlur((taps, taps), (0.1, 2.0), p=blur))
        return augmentation.AugmentationSequential(*steps, data_keys=["input"]), kornia.__version__


def main(as_json: Json = False) -> None:
    """Measure images per second of the augmentations, compared with kornia."""
    show(bench_views(), as_json, render)


if __name__ == "__main__":
    command(main, "", "--json")
