"""`coulomb lab batch-size`: what more negatives in a batch are worth, and why memory stops others."""

import math
from dataclasses import asdict
from typing import Any

from coulomb.bench.cases import ntxent
from coulomb.bench.memory import dense_bytes
from coulomb.bench.peak import peak_of_fresh_process
from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, at_least
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings
from coulomb.lab.sweep import HEADLINES, chart, curve, sweep
from coulomb.reading import list_of, read_json, table
from coulomb.runs.folder import write_json

SIZES, QUICK = (32, 64, 128, 256, 512), (32, 128, 512)
BASE = 256  # the recipe's batch, for which its learning rate is
ROWS, QUICK_ROWS, LARGEST = (2048, 4096, 8192, 16384), (2048, 8192), 65536  # views: twice the images
STORED = 8192  # views up to which the stored matrix is measured: 0.8 GB
CARD = 80e9  # bytes of a large accelerator
CHEN = "SimCLR, ImageNet: larger batches are better, the more so the shorter the training (Chen et al., 2020, fig. 9)"
SQUARE = "by arithmetic: N² similarities, their exponentials and their gradient"


def name_of(batch: float) -> str:
    """The run with a batch."""
    return f"batch{batch:g}"


def arms(settings: Settings) -> list[Arm]:
    """SimCLR at several batches; the learning rate goes with the root of the batch (digits, AdamW) or with it (SGD)."""
    if settings.digits:
        base, power = 6e-3, 0.5
    else:
        base, power = 0.12, 1.0

    def options(batch: float) -> dict[str, Any]:
        return {"method": "simclr", "batch_size": int(batch), "lr": base * (batch / BASE) ** power}

    return sweep(QUICK if settings.quick else SIZES, name_of, options, 10)


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy by batch; memory of the loss by batch, measured in fresh processes."""
    key, sizes = settings.headline, QUICK if settings.quick else SIZES
    places = [(float(size), name_of(size)) for size in sizes]
    table = memory(settings) if rows else []
    claims = [
        at_least(
            rows, name_of(sizes[-1]), name_of(sizes[0]), key, 0.0,
            f"A larger batch is better: {sizes[-1]} images are above {sizes[0]}.", CHEN,
        ),
        *memory_claims(table),
    ]  # fmt: skip
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [chart("Accuracy", key, "images in a batch", [curve(rows, places, key, "SimCLR")])],
        "tables": [_shown(table)] if table else [],
        "notes": [
            "All have the same number of epochs: a batch sixteen times as large makes a sixteenth of the updates, which in a "
            "short training on few images weighs more than its negatives.",
        ],
    }


def memory(settings: Settings) -> list[dict[str, Any]]:
    """Rows {"views", "dense", "dense_measured", "ours"}, MB above the inputs; kept in the experiment's folder."""
    path = settings.out / BATCH_SIZE.name / "memory-of-the-loss.json"
    sizes = QUICK_ROWS if settings.quick else ROWS
    found: list[dict[str, Any]] = read_json(path) if path.is_file() else []
    if not list_of(table).fits(found) or [row.get("views") for row in found] != [*sizes, LARGEST]:
        found = []
        for views in (*sizes, LARGEST):
            case, small = ntxent(views, 128), views <= (sizes[-1])
            row: dict[str, Any] = {"views": views, "dense": dense_bytes(case) / 1e6}
            row["dense_measured"] = peak_of_fresh_process("dense", case) if views <= STORED else None
            row["ours"] = peak_of_fresh_process("coulomb", case) if small else None
            found.append(row)
        write_json(path, found)
    return found


def memory_claims(table: list[dict[str, Any]]) -> list[Claim]:
    """The stored matrix grows with the square; ours does not."""
    square = "A stored similarity matrix grows with the square of the batch, and stops it."
    linear = "Streamed, the loss's memory grows no faster than the batch."
    own = "this project's log: 193 MB for 65,536 × 128; dense 12.3 GB for 32,768"
    if not table:
        return [Claim(square, SQUARE, "not measured", None), Claim(linear, own, "not measured", None)]
    largest = table[-1]
    dense = [row for row in table if row["dense_measured"]]
    base, known = (dense[-1], "dense_measured") if dense else (largest, "dense")
    needed = base[known] * (largest["views"] / base["views"]) ** 2
    told = (
        f"{base['views']:,} views: {base[known]:,.0f} MB{' measured' if dense else ''}; so {largest['views']:,} need "
    )
    most = math.floor(base["views"] * (CARD / 1e6 / base[known]) ** 0.5 / 1000) * 1000
    told += f"{needed / 1e3:.0f} GB for the loss alone, and 80 GB are full at some {most:,} views, without any network"
    ours = [row for row in table if row["ours"] is not None]
    claims = [Claim(square, SQUARE, told, _grows(dense, "dense_measured", 1.5) if len(dense) > 1 else None)]
    if len(ours) < 2:
        return [*claims, Claim(linear, own, "not measured", None)]
    text = ", ".join(f"{row['ours']:.0f} MB for {row['views']:,}" for row in ours)
    return [*claims, Claim(linear, own, text, not _grows(ours, "ours", 1.1))]


def _grows(rows: list[dict[str, Any]], key: str, power: float) -> bool:
    """Whether memory grew faster than views to a power, from the first row to the last."""
    first, last = rows[0], rows[-1]
    return bool(last[key] / max(first[key], 1.0) > (last["views"] / first["views"]) ** power)


def _shown(table: list[dict[str, Any]]) -> dict[str, Any]:
    def mb(number: float | None) -> str:
        return "–" if number is None else f"{number:,.0f} MB"

    return {
        "title": "Memory of the loss",
        "lead": "NT-Xent, 128 dimensions, forward and backward, above its inputs; measured in a fresh process each.",
        "head": ["views", "stored, four copies of N²", "stored, measured", "streamed, measured"],
        "rows": [[f"{r['views']:,}", mb(r["dense"]), mb(r["dense_measured"]), mb(r["ours"])] for r in table],
    }


BATCH_SIZE = Experiment(
    name="batch-size",
    title="Batch size",
    question="What are more negatives in a batch worth, and what do they cost?",
    arms=arms,
    judge=judge,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
