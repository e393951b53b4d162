"""`coulomb lab hard-negatives`, `queue` and `batch-size`: which negatives, and how many."""

import math
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.files import write_json
from coulomb.ground.reading import list_of, read_json, table
from coulomb.training.plan.plan import Plan
from coulomb.training.record.folder import RunFolder
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import (
    ACCURACIES,
    NAMES,
    NOT_MEASURED,
    TRAINING,
    Claim,
    Rows,
    at_least,
    best_inside,
    chart_spec,
    read_values,
    result_series,
    summary,
    sweep_arms,
)
from coulomb_lab.experiment import Experiment
from coulomb_lab.loss_memory import DIM, peak_of_fresh_process, stored_bytes
from coulomb_lab.measure import load_trained

BETAS, QUICK_BETAS = (0.0, 0.5, 1.0, 2.0, 6.0), (0.0, 1.0, 6.0)
SHARES, QUICK_SHARES = (0.0, 0.05, 0.1, 0.2), (0.0, 0.1)
TAU_PLUS, BETA, TEMPERATURE = 0.1, 1.0, 0.5  # of the runs in which the other one varies; the authors'
REWEIGHTED = (0.0, 0.5, 1.0, 2.0, 6.0, 20.0)  # β at which the embeddings of a run are examined
ROBINSON = (
    "STL-10, ResNet-50, 400 epochs: biased 80.15, debiased 84.26, β = .5 / 1 / 2 / 6: 86.38 / 87.44 / 87.09 / 83.09 "
    "(Robinson et al., 2021)"
)


def hard_name(beta: float, tau_plus: float) -> str:
    """Returns ``biased``, ``debiased``, or the options in which the run differs."""
    if beta == 0 and tau_plus in (0.0, TAU_PLUS):
        return "debiased" if tau_plus else "biased"
    return f"beta{beta:g}" + ("" if tau_plus == TAU_PLUS else f"-plus{tau_plus:g}")


def hard_arms(settings: Settings) -> list[Arm]:
    """Returns runs with several β and one τ⁺, with several τ⁺ and one β, and with neither."""
    betas, shares = (QUICK_BETAS, QUICK_SHARES) if settings.quick else (BETAS, SHARES)
    pairs = [(0.0, 0.0), *((beta, TAU_PLUS) for beta in betas), *((BETA, s) for s in shares if s != TAU_PLUS)]
    shared = {"method": "hard", "temperature": TEMPERATURE}
    return [
        Arm(hard_name(beta, plus), shared | {"method_options": {"beta": beta, "tau_plus": plus}}, 12)
        for beta, plus in pairs
    ]


def measure_gradient_shares(run: RunFolder, plan: Plan) -> dict[str, Any]:
    """Returns `gradient_shares` of the run's embeddings over β."""
    trained = load_trained(run, plan)
    if trained.labels is None:
        return {}
    x, labels, tau = trained.first, trained.labels, trained.temperature
    return {"push": [{"beta": beta, **gradient_shares(x, labels, tau, beta)} for beta in REWEIGHTED]}


def gradient_shares(x: Tensor, labels: Tensor, temperature: float, beta: float) -> dict[str, float]:
    """Returns shares of the negatives' gradient: of negatives with the anchor's class, and of the nearest hundredth.

    x [n, D] of unit length. The weight of negative j is (1+β)·softmax((1+β)s)_j − β·softmax(βs)_j, s = cos/τ; the weights
    sum to 1. Negative weights, which attract, are left out.
    """
    s = (x @ x.T / temperature).fill_diagonal_(-torch.inf)
    weights = (1 + beta) * ((1 + beta) * s).softmax(1)
    weights = (weights - beta * (beta * s).softmax(1) if beta else weights).clamp_min(0)
    weights = weights / weights.sum(1, keepdim=True)
    same = (labels[:, None] == labels) & (labels >= 0)
    nearest = weights.topk(max(1, round(len(x) / 100)), dim=1).values
    return {"same_class": float((weights * same).sum(1).mean()), "top1pct": float(nearest.sum(1).mean())}


def summarize_hard(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Checks the published ablation, and shows which negatives β weights."""
    key = settings.headline
    places = [(beta, hard_name(beta, TAU_PLUS)) for beta in (QUICK_BETAS if settings.quick else BETAS)]
    shares = [(share, hard_name(BETA, share)) for share in (QUICK_SHARES if settings.quick else SHARES)]
    claims = [
        at_least(rows, "debiased", "biased", key, 0.0, "Correcting for false negatives (τ⁺ = .1) helps.", ROBINSON),
        at_least(rows, "beta1", "debiased", key, 0.0, "Weighting hard negatives (β = 1) helps further.", ROBINSON),
        at_least(rows, "beta1", "beta1-plus0", key, 0.0, "β needs τ⁺: without it, hard negatives do harm.", ROBINSON),
        best_inside(rows, places, key, "Too large a β weights false negatives: an intermediate β is best.", ROBINSON),
    ]
    weighted = rows.get("biased", {}).get("push") or []
    series = [
        {"name": name, "points": [(one["beta"], one[which]) for one in weighted]}
        for which, name in (("same_class", "negatives with the anchor's class"), ("top1pct", "the nearest hundredth"))
    ]
    charts = [
        chart_spec("β", key, "β, with τ⁺ = .1", [result_series(rows, places, key, "here")], log_x=False),
        chart_spec("τ⁺", key, "τ⁺, with β = 1", [result_series(rows, shares, key, "here")], log_x=False),
        chart_spec(
            "Gradient shares", "push", "β", series, log_x=False, percent=True, y_label="share of the negatives' gradient",
            note="Embeddings of the biased run, weighted with other β; about a tenth of random pairs have the same class.",
        ),
    ]  # fmt: skip
    return summary(claims, charts=charts, notes=["Biased: NT-Xent (β = τ⁺ = 0) at the same temperature, .5."])


HARD_NEGATIVES = Experiment(
    name="hard-negatives",
    title="Hard negatives",
    question="Should hard negatives have more weight, and how many of them are false?",
    arms=hard_arms,
    summarize=summarize_hard,
    measure=measure_gradient_shares,
    columns=(
        *ACCURACIES,
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        *TRAINING,
    ),
)


MOMENTA = (0.0, 0.9, 0.99, 0.999)
QUEUE_SIZES = (256, 1024, 4096, 16384)
MOMENTUM, QUEUE_SIZE = 0.99, 1024  # of the runs in which the other one varies
HE_MOMENTUM = (
    "ImageNet, ResNet-50, K = 4096: m = 0 does not converge, .9 55.2, .99 57.8, .999 59.0 (He et al., 2020, table 4)"
)
HE_SIZE = "ImageNet, ResNet-50: accuracy grows with the queue from 256 to 65536 keys (He et al., 2020, figure 3)"


def moco_arm(momentum: float, size: int) -> Arm:
    """Returns a run of MoCo."""
    options = {"momentum": momentum, "queue_size": size}
    return Arm(f"m{momentum:g}-k{size}", {"method": "moco", "method_options": options})


def queue_arms(settings: Settings) -> list[Arm]:
    """Returns runs with several momenta and one queue, and with several queues and one momentum."""
    pairs = [(m, QUEUE_SIZE) for m in MOMENTA] + [(MOMENTUM, k) for k in QUEUE_SIZES if k != QUEUE_SIZE]
    return [moco_arm(*pair) for pair in pairs]


def summarize_queue(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Checks the published ablations."""
    key = settings.headline
    momenta = {m: moco_arm(m, QUEUE_SIZE).name for m in MOMENTA}
    sizes = {k: moco_arm(MOMENTUM, k).name for k in QUEUE_SIZES}
    longest, shortest = QUEUE_SIZES[-1], QUEUE_SIZES[0]
    longer = f"A longer queue is better: {longest:,} keys are better than {shortest}."
    claims = [
        _no_momentum_claim(rows, momenta, key),
        at_least(rows, momenta[0.99], momenta[0.9], key, 0.0, "Slow keys are better: m = .99 is above .9.", HE_MOMENTUM),
        at_least(rows, momenta[0.999], momenta[0.99], key, 0.0, "Even slower is better: m = .999 is above .99.", HE_MOMENTUM),
        at_least(rows, sizes[longest], sizes[shortest], key, 0.0, longer, HE_SIZE),
    ]  # fmt: skip
    by_size, by_momentum = list(sizes.items()), [(1 - m, name) for m, name in momenta.items()]
    charts = [
        chart_spec("Queue", key, "keys in the queue", [result_series(rows, by_size, key, NAMES[key])]),
        chart_spec("Momentum", key, "1 − m of the key encoder", [result_series(rows, by_momentum, key, NAMES[key])]),
    ]
    note = (
        "With few images, a long queue has several keys of each image, so an image is among its own negatives "
        "(exclude_own=True removes these), and m = .999 hardly changes the encoder in a short training: both differ from "
        "ImageNet."
    )
    return summary(claims, charts=charts, notes=[note])


def _no_momentum_claim(rows: Rows, names: dict[float, str], key: str) -> Claim:
    claim = "Without momentum (m = 0) accuracy is lowest: the keys in the queue come from different networks."
    values = read_values(rows, names.values(), key)
    if len(values) < len(names):
        return Claim(claim, HE_MOMENTUM, NOT_MEASURED, None)
    text = f"{NAMES[key]}: " + ", ".join(f"m = {m:g} {values[name]:.1%}" for m, name in names.items())
    return Claim(claim, HE_MOMENTUM, text, min(values, key=lambda name: values[name]) == names[0.0])


QUEUE = Experiment(
    name="queue",
    title="MoCo: momentum and queue length",
    question="How do the momentum of the key encoder and the number of negatives affect accuracy?",
    arms=queue_arms,
    summarize=summarize_queue,
    columns=(
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("few_1", "1 label", "percent"),
        ("few_5", "5 labels", "percent"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        *TRAINING,
    ),
)


BATCH_SIZES, QUICK_BATCH_SIZES = (32, 64, 128, 256, 512), (32, 128, 512)
BASE_BATCH = 256  # the batch size that the recipe's learning rate is for
VIEWS, QUICK_VIEWS, MOST_VIEWS = (2048, 4096, 8192, 16384), (2048, 8192), 65536  # two views per image
MOST_DENSE = 8192  # views up to which the stored matrix is measured: 0.8 GB
CARD_BYTES = 80e9  # memory of a large GPU
CHEN = "SimCLR, ImageNet: larger batches are better, most of all in short training (Chen et al., 2020, fig. 9)"
SQUARE = "by arithmetic: N² similarities, their exponentials and their gradient"
MEASURED_HERE = "this project's experiments: 193 MB for 65,536 × 128; dense 12.3 GB for 32,768"


def batch_name(batch: float) -> str:
    """Returns the name of the run with this batch size."""
    return f"batch{batch:g}"


def batch_arms(settings: Settings) -> list[Arm]:
    """Returns runs of SimCLR with several batch sizes.

    The learning rate scales with √batch (AdamW, digits) or with the batch (SGD).
    """
    base, power = (6e-3, 0.5) if settings.digits else (0.12, 1.0)

    def options(batch: float) -> dict[str, Any]:
        return {"method": "simclr", "batch_size": int(batch), "lr": base * (batch / BASE_BATCH) ** power}

    return sweep_arms(QUICK_BATCH_SIZES if settings.quick else BATCH_SIZES, batch_name, options, 10)


def summarize_batch_size(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Shows accuracy and the memory of the loss over the batch size."""
    key, sizes = settings.headline, QUICK_BATCH_SIZES if settings.quick else BATCH_SIZES
    places = [(float(size), batch_name(size)) for size in sizes]
    memory = measure_loss_memory(settings) if rows else []
    larger = f"A larger batch is better: {sizes[-1]} images are better than {sizes[0]}."
    claims = [
        at_least(rows, batch_name(sizes[-1]), batch_name(sizes[0]), key, 0.0, larger, CHEN),
        *memory_claims(memory),
    ]
    charts = [chart_spec("Accuracy", key, "images per batch", [result_series(rows, places, key, "SimCLR")])]
    note = (
        "All runs have the same number of epochs: a batch 16 times as large makes a 16th of the updates, which in short "
        "training on few images matters more than the number of negatives."
    )
    return summary(claims, charts=charts, notes=[note], tables=[_memory_table(memory)] if memory else [])


def measure_loss_memory(settings: Settings) -> list[dict[str, Any]]:
    """Returns rows {"views", "dense", "dense_measured", "ours"} in MB above the inputs; stored in the experiment's folder."""
    path = settings.out / BATCH_SIZE.name / "memory-of-the-loss.json"
    sizes = QUICK_VIEWS if settings.quick else VIEWS
    rows: list[dict[str, Any]] = read_json(path) if path.is_file() else []
    if not list_of(table).fits(rows) or [row.get("views") for row in rows] != [*sizes, MOST_VIEWS]:
        rows = []
        for views in (*sizes, MOST_VIEWS):
            row: dict[str, Any] = {"views": views, "dense": stored_bytes(views) / 1e6}
            row["dense_measured"] = peak_of_fresh_process("stored", views) if views <= MOST_DENSE else None
            row["ours"] = peak_of_fresh_process("streamed", views) if views <= sizes[-1] else None
            rows.append(row)
        write_json(path, rows)
    return rows


def memory_claims(memory: list[dict[str, Any]]) -> list[Claim]:
    """Checks that memory is quadratic for a stored matrix and at most linear for the streamed loss."""
    square = "The memory of a stored similarity matrix grows with the square of the batch size and limits it."
    linear = "The memory of the streamed loss grows at most linearly with the batch size."
    if not memory:
        return [Claim(square, SQUARE, NOT_MEASURED, None), Claim(linear, MEASURED_HERE, NOT_MEASURED, None)]
    largest = memory[-1]
    dense = [row for row in memory if row["dense_measured"]]
    base, key = (dense[-1], "dense_measured") if dense else (largest, "dense")
    needed = base[key] * (largest["views"] / base["views"]) ** 2
    most = math.floor(base["views"] * (CARD_BYTES / 1e6 / base[key]) ** 0.5 / 1000) * 1000
    text = (
        f"{base['views']:,} views: {base[key]:,.0f} MB{' measured' if dense else ''}; so {largest['views']:,} need "
        f"{needed / 1e3:.0f} GB for the loss alone, and 80 GB suffice for about {most:,} views without any network"
    )
    claims = [Claim(square, SQUARE, text, _grows(dense, "dense_measured", 1.5) if len(dense) > 1 else None)]
    ours = [row for row in memory if row["ours"] is not None]
    if len(ours) < 2:
        return [*claims, Claim(linear, MEASURED_HERE, NOT_MEASURED, None)]
    text = ", ".join(f"{row['ours']:.0f} MB for {row['views']:,}" for row in ours)
    return [*claims, Claim(linear, MEASURED_HERE, text, not _grows(ours, "ours", 1.1))]


def _grows(rows: list[dict[str, Any]], key: str, power: float) -> bool:
    """Returns True if memory grew faster than views to the given power, from the first row to the last."""
    first, last = rows[0], rows[-1]
    return bool(last[key] / max(first[key], 1.0) > (last["views"] / first["views"]) ** power)


def _memory_table(memory: list[dict[str, Any]]) -> dict[str, Any]:
    def mb(number: float | None) -> str:
        return "–" if number is None else f"{number:,.0f} MB"

    return {
        "title": "Memory of the loss",
        "lead": f"NT-Xent, {DIM} dimensions, forward and backward, above its inputs, each measured in a fresh process.",
        "head": ["views", "stored, four copies of N²", "stored, measured", "streamed, measured"],
        "rows": [[f"{r['views']:,}", mb(r["dense"]), mb(r["dense_measured"]), mb(r["ours"])] for r in memory],
    }


BATCH_SIZE = Experiment(
    name="batch-size",
    title="Batch size",
    question="What do more negatives per batch gain, and what do they cost?",
    arms=batch_arms,
    summarize=summarize_batch_size,
    columns=(
        *ACCURACIES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        *TRAINING,
    ),
)
