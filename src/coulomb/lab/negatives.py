"""`coulomb lab hard-negatives`, `queue` and `batch-size`: which negatives, and how many."""

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from coulomb.bench.cases import ntxent
from coulomb.bench.contenders import dense_bytes, peak_of_fresh_process
from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import HEADLINES, NAMES, Claim, Rows, at_least, best_inside, chart, curve, sweep, value
from coulomb.lab.experiment import Experiment
from coulomb.lab.measure import trained
from coulomb.reading import list_of, read_json, table
from coulomb.runs.folder import RunFolder, write_json
from coulomb.runs.prepare import Prepared

BETAS, QUICK_BETAS = (0.0, 0.5, 1.0, 2.0, 6.0), (0.0, 1.0, 6.0)
SHARES, QUICK_SHARES = (0.0, 0.05, 0.1, 0.2), (0.0, 0.1)
TAU_PLUS, BETA, TEMPERATURE = 0.1, 1.0, 0.5  # where the other one varies; the authors'
LOOKED = (0.0, 0.5, 1.0, 2.0, 6.0, 20.0)  # β at which embeddings are looked at
ROBINSON = (
    "STL-10, ResNet-50, 400 epochs: biased 80.15, debiased 84.26, β = .5 / 1 / 2 / 6: 86.38 / 87.44 / 87.09 / 83.09"
)
ROBINSON_SOURCE = f"{ROBINSON} (Robinson et al., 2021)"


def hard_name(beta: float, tau_plus: float) -> str:
    """``biased``, ``debiased``, or what sets the run apart."""
    if beta == 0 and tau_plus in (0.0, TAU_PLUS):
        return "debiased" if tau_plus else "biased"
    return f"beta{beta:g}" + ("" if tau_plus == TAU_PLUS else f"-plus{tau_plus:g}")


def hard_arms(settings: Settings) -> list[Arm]:
    """β at one τ⁺, τ⁺ at one β, and neither."""
    betas, shares = (QUICK_BETAS, QUICK_SHARES) if settings.quick else (BETAS, SHARES)
    wanted = [(0.0, 0.0), *((beta, TAU_PLUS) for beta in betas), *((BETA, s) for s in shares if s != TAU_PLUS)]
    shared = {"method": "hard", "temperature": TEMPERATURE}
    return [
        Arm(hard_name(beta, plus), shared | {"method_options": {"beta": beta, "tau_plus": plus}}, 12)
        for beta, plus in wanted
    ]


def measure_push(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
    """How much of the push same-class negatives would get, by β, on the run's embeddings."""
    found = trained(run, prepared)
    if found.labels is None:
        return {}
    return {"push": [{"beta": beta, **push(found.first, found.labels, found.temperature, beta)} for beta in LOOKED]}


def push(x: Tensor, labels: Tensor, temperature: float, beta: float) -> dict[str, float]:
    """Shares of the push: of negatives of the anchor's class, and of the nearest hundredth.

    x [n, D] of unit length. The push on negative j is (1+β)·softmax((1+β)s)_j − β·softmax(βs)_j, s = cos/τ: it sums to 1, and
    where it is below 0 the negative is pulled, which is left out here.
    """
    s = (x @ x.T / temperature).fill_diagonal_(-torch.inf)
    weights = (1 + beta) * ((1 + beta) * s).softmax(1)
    weights = (weights - beta * (beta * s).softmax(1) if beta else weights).clamp_min(0)
    weights = weights / weights.sum(1, keepdim=True)
    same = (labels[:, None] == labels) & (labels >= 0)
    nearest = weights.topk(max(1, round(len(x) / 100)), dim=1).values
    return {"same_class": float((weights * same).sum(1).mean()), "top1pct": float(nearest.sum(1).mean())}


def judge_hard(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The published ablation; and whom β makes the loss push."""
    key = settings.headline
    places = [(beta, hard_name(beta, TAU_PLUS)) for beta in (QUICK_BETAS if settings.quick else BETAS)]
    shares = [(share, hard_name(BETA, share)) for share in (QUICK_SHARES if settings.quick else SHARES)]
    claims = [
        at_least(
            rows, "debiased", "biased", key, 0.0, "To allow for false negatives (τ⁺ = .1) helps.", ROBINSON_SOURCE
        ),
        at_least(
            rows, "beta1", "debiased", key, 0.0, "To prefer near negatives (β = 1) helps besides.", ROBINSON_SOURCE
        ),
        at_least(
            rows, "beta1", "beta1-plus0", key, 0.0, "β needs τ⁺: without, near negatives do harm.", ROBINSON_SOURCE
        ),
        best_inside(
            rows, places, key, "Too large a β rests on false negatives: the best is in between.", ROBINSON_SOURCE
        ),
    ]
    looked = rows.get("biased", {}).get("push") or []
    series = [
        {"name": name, "points": [(one["beta"], one[which]) for one in looked]}
        for which, name in (("same_class", "negatives of the anchor's class"), ("top1pct", "the nearest hundredth"))
    ]
    charts = [
        chart("β", key, "β, at τ⁺ = .1", [curve(rows, places, key, "here")], log_x=False),
        chart("τ⁺", key, "τ⁺, at β = 1", [curve(rows, shares, key, "here")], log_x=False),
        chart(
            "Who is pushed", "push", "β", series, log_x=False, percent=True, y_label="share of the push",
            note="The embeddings of the biased run, looked at with other β; about a tenth of random pairs is of one class.",
        ),
    ]  # fmt: skip
    notes = ["Biased: SimCLR's NT-Xent (β = τ⁺ = 0) at the same temperature, .5."]
    return {"claims": [asdict(claim) for claim in claims], "charts": charts, "notes": notes}


HARD_NEGATIVES = Experiment(
    name="hard-negatives",
    title="Hard negatives",
    question="Should near negatives count more, and how many of them are false?",
    arms=hard_arms,
    judge=judge_hard,
    more=measure_push,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)


MOMENTA = (0.0, 0.9, 0.99, 0.999)
QUEUE_SIZES = (256, 1024, 4096, 16384)
MOMENTUM, QUEUE_SIZE = 0.99, 1024  # of the runs in which the other one varies
HE = "ImageNet, ResNet-50, K = 4096: m = 0 does not converge, .9 55.2, .99 57.8, .999 59.0 (He et al., 2020, table 4)"
PUBLISHED_SIZE = "ImageNet, ResNet-50: accuracy grows with the queue from 256 to 65536 keys (He et al., 2020, figure 3)"


def arm_of(momentum: float, size: int) -> Arm:
    """One run of MoCo."""
    options = {"momentum": momentum, "queue_size": size}
    return Arm(f"m{momentum:g}-k{size}", {"method": "moco", "method_options": options})


def queue_arms(settings: Settings) -> list[Arm]:
    """Momenta at one queue, queues at one momentum."""
    wanted = [(m, QUEUE_SIZE) for m in MOMENTA] + [(MOMENTUM, k) for k in QUEUE_SIZES if k != QUEUE_SIZE]
    return [arm_of(*pair) for pair in wanted]


def judge_queue(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The signs of the published ablations."""
    key = settings.headline
    best = arm_of(0.999, QUEUE_SIZE).name, arm_of(MOMENTUM, QUEUE_SIZE).name
    still, quick = arm_of(0.0, QUEUE_SIZE).name, arm_of(0.9, QUEUE_SIZE).name
    claims = [
        _no_momentum_claim(rows, still, key),
        at_least(rows, best[1], quick, key, 0.0, "A slow key encoder is better: m = .99 is above .9.", HE),
        at_least(rows, best[0], best[1], key, 0.0, "Slower still is better: m = .999 is above .99.", HE),
        at_least(
            rows,
            arm_of(MOMENTUM, QUEUE_SIZES[-1]).name,
            arm_of(MOMENTUM, QUEUE_SIZES[0]).name,
            key,
            0.0,
            f"A longer queue is better: {QUEUE_SIZES[-1]:,} keys are above {QUEUE_SIZES[0]}.",
            PUBLISHED_SIZE,
        ),
    ]
    sizes = [(float(k), arm_of(MOMENTUM, k).name) for k in QUEUE_SIZES]
    momenta = [(1 - m, arm_of(m, QUEUE_SIZE).name) for m in MOMENTA]
    charts = [
        _queue_chart(rows, key, "Queue", "keys in the queue", sizes),
        _queue_chart(rows, key, "Momentum", "1 − m of the key encoder", momenta),
    ]
    notes = [
        "Where the data are few, a long queue holds several keys of each image, its own among the negatives (exclude_own=True "
        "leaves these out), and .999 hardly moves in a short training: both differ from ImageNet.",
    ]
    return {"claims": [asdict(claim) for claim in claims], "charts": charts, "notes": notes}


def _no_momentum_claim(rows: Rows, name: str, key: str) -> Claim:
    claim = "Without momentum (m = 0) it is worst of all: the keys in the queue come from networks too different."
    momenta = {m: value(rows, arm_of(m, QUEUE_SIZE).name, key) for m in MOMENTA}
    if any(figure is None for figure in momenta.values()):
        return Claim(claim, HE, "not measured", None)
    told = f"{NAMES[key]}: " + ", ".join(f"m = {m:g} {figure:.1%}" for m, figure in momenta.items())
    found = {m: float(figure) for m, figure in momenta.items() if figure is not None}
    return Claim(claim, HE, told, min(found, key=lambda m: found[m]) == 0.0)


def _queue_chart(rows: Rows, key: str, title: str, x_label: str, points: list[tuple[float, str]]) -> dict[str, Any]:
    found = [(x, figure) for x, name in sorted(points) if (figure := value(rows, name, key)) is not None]
    return {
        "title": title,
        "y_label": NAMES[key],
        "x_label": x_label,
        "log_x": True,
        "percent": True,
        "series": [{"name": NAMES[key], "points": found}],
    }


QUEUE = Experiment(
    name="queue",
    title="MoCo: how slow a key encoder, how long a queue?",
    question="How do momentum and the number of negatives act on the encoder?",
    arms=queue_arms,
    judge=judge_queue,
    columns=(
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("few_1", "1 label", "percent"),
        ("few_5", "5 labels", "percent"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)


BATCH_SIZES, QUICK_SIZES = (32, 64, 128, 256, 512), (32, 128, 512)
BASE = 256  # the recipe's batch, for which its learning rate is
ROWS, QUICK_ROWS, LARGEST = (2048, 4096, 8192, 16384), (2048, 8192), 65536  # views: twice the images
STORED = 8192  # views up to which the stored matrix is measured: 0.8 GB
CARD = 80e9  # bytes of a large accelerator
CHEN = "SimCLR, ImageNet: larger batches are better, the more so the shorter the training (Chen et al., 2020, fig. 9)"
SQUARE = "by arithmetic: N² similarities, their exponentials and their gradient"


def batch_name(batch: float) -> str:
    """The run with a batch."""
    return f"batch{batch:g}"


def batch_arms(settings: Settings) -> list[Arm]:
    """SimCLR at several batches; the learning rate goes with the root of the batch (digits, AdamW) or with it (SGD)."""
    if settings.digits:
        base, power = 6e-3, 0.5
    else:
        base, power = 0.12, 1.0

    def options(batch: float) -> dict[str, Any]:
        return {"method": "simclr", "batch_size": int(batch), "lr": base * (batch / BASE) ** power}

    return sweep(QUICK_SIZES if settings.quick else BATCH_SIZES, batch_name, options, 10)


def judge_batch_size(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy by batch; memory of the loss by batch, measured in fresh processes."""
    key, sizes = settings.headline, QUICK_SIZES if settings.quick else BATCH_SIZES
    places = [(float(size), batch_name(size)) for size in sizes]
    table = loss_memory(settings) if rows else []
    claims = [
        at_least(
            rows, batch_name(sizes[-1]), batch_name(sizes[0]), key, 0.0,
            f"A larger batch is better: {sizes[-1]} images are above {sizes[0]}.", CHEN,
        ),
        *memory_claims(table),
    ]  # fmt: skip
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [chart("Accuracy", key, "images in a batch", [curve(rows, places, key, "SimCLR")])],
        "tables": [_memory_table(table)] if table else [],
        "notes": [
            "All have the same number of epochs: a batch sixteen times as large makes a sixteenth of the updates, which in a "
            "short training on few images weighs more than its negatives.",
        ],
    }


def loss_memory(settings: Settings) -> list[dict[str, Any]]:
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


def _memory_table(table: list[dict[str, Any]]) -> dict[str, Any]:
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
    arms=batch_arms,
    judge=judge_batch_size,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
