"""Time of encoders without batch norms: ``python -m benchmarks.folding``."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.timing import describe_machine, interleaved
from coulomb.models import ImageNetwork, build_encoder, frozen
from coulomb.models.folding import folded

CASES = (("lite0", 96, 128), ("lite0", 128, 128), ("lite0", 224, 32), ("resnet18", 96, 64), ("convnet-pool", 32, 512))


def bench_folding(
    cases: tuple[tuple[str, int, int], ...] = CASES,
    threads: int = 1,
    repeats: int = 5,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Measures forward passes of encoders with random weights as they are and after `coulomb.models.folding.folded`.

    Args:
        cases: encoder, side of the images in pixels, and images per forward pass.
        threads: of torch.
        repeats: rounds, of which medians are reported; both forms alternate.
        say: receives a line before each measurement.

    Returns:
        The machine, and for each case ``encoder``, ``side``, ``batch``, milliseconds per image ``plain`` and ``folded``,
        their ``ratio``, and the relative ``difference`` of the features, ‖folded − plain‖ / ‖plain‖.
    """
    torch.set_num_threads(threads)
    rows = []
    for name, side, batch in cases:
        say(f"{name}, {side} pixels")
        plain = build_encoder(name, channels=3, image_size=side, weights=False).eval()
        plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        networks: dict[str, ImageNetwork] = {"plain": plain, "folded": folded(plain)}
        images = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
        with frozen(*networks.values()):
            taken = interleaved({form: partial(network, images) for form, network in networks.items()}, repeats)
            expected, found = (network(images) for network in networks.values())
        per_image = {form: 1000 * median(seconds) / batch for form, seconds in taken.items()}
        rows.append(
            {"encoder": name, "side": side, "batch": batch}
            | per_image
            | {
                "ratio": per_image["plain"] / per_image["folded"],
                "difference": float((found - expected).norm() / expected.norm()),
            }
        )
    return {"machine": describe_machine(), "cases": rows}


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_folding` as a table."""
    machine = result["machine"]
    return "\n".join(
        [
            f"{machine['processor']}, {machine['threads']} threads, {machine['date']}; milliseconds per image",
            f"{'encoder':14}{'pixels':>8}{'images':>8}{'plain':>10}{'folded':>10}{'times':>8}{'difference':>12}",
            *(
                f"{row['encoder']:14}{row['side']:>8}{row['batch']:>8}{row['plain']:>10.2f}{row['folded']:>10.2f}"
                f"{row['ratio']:>8.2f}{row['difference']:>12.0e}"
                for row in result["cases"]
            ),
        ]
    )


def main(
    threads: Annotated[int, typer.Option(help="threads of torch", min=1)] = 1,
    repeats: Repeats = 5,
    as_json: Json = False,
) -> None:
    """Measure forward passes of encoders as they are and with batch norms folded into the convolutions."""
    with progress(quiet=as_json) as doing:
        result = bench_folding(threads=threads, repeats=repeats, say=doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--repeats 9 --json")
