"""`coulomb lab queue`: MoCo's momentum and the length of its queue."""

from dataclasses import asdict
from typing import Any

from coulomb.lab.arms import Arm
from coulomb.lab.claims import NAMES, Claim, Rows, at_least, value
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings

MOMENTA = (0.0, 0.9, 0.99, 0.999)
SIZES = (256, 1024, 4096, 16384)
MOMENTUM, SIZE = 0.99, 1024  # of the runs in which the other one varies
PUBLISHED = (
    "ImageNet, ResNet-50, K = 4096: m = 0 does not converge, .9 55.2, .99 57.8, .999 59.0 (He et al., 2020, table 4)"
)
PUBLISHED_SIZE = "ImageNet, ResNet-50: accuracy grows with the queue from 256 to 65536 keys (He et al., 2020, figure 3)"


def arm_of(momentum: float, size: int) -> Arm:
    """One run of MoCo."""
    options = {"momentum": momentum, "queue_size": size}
    return Arm(f"m{momentum:g}-k{size}", {"method": "moco", "method_options": options})


def arms(settings: Settings) -> list[Arm]:
    """Momenta at one queue, queues at one momentum."""
    wanted = [(m, SIZE) for m in MOMENTA] + [(MOMENTUM, k) for k in SIZES if k != SIZE]
    return [arm_of(*pair) for pair in wanted]


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The signs of the published ablations."""
    key = settings.headline
    best = arm_of(0.999, SIZE).name, arm_of(MOMENTUM, SIZE).name
    still, quick = arm_of(0.0, SIZE).name, arm_of(0.9, SIZE).name
    claims = [
        _worst(rows, still, key),
        at_least(rows, best[1], quick, key, 0.0, "A slow key encoder is better: m = .99 is above .9.", PUBLISHED),
        at_least(rows, best[0], best[1], key, 0.0, "Slower still is better: m = .999 is above .99.", PUBLISHED),
        at_least(
            rows,
            arm_of(MOMENTUM, SIZES[-1]).name,
            arm_of(MOMENTUM, SIZES[0]).name,
            key,
            0.0,
            f"A longer queue is better: {SIZES[-1]:,} keys are above {SIZES[0]}.",
            PUBLISHED_SIZE,
        ),
    ]
    sizes = [(float(k), arm_of(MOMENTUM, k).name) for k in SIZES]
    momenta = [(1 - m, arm_of(m, SIZE).name) for m in MOMENTA]
    charts = [
        _chart(rows, key, "Queue", "keys in the queue", sizes),
        _chart(rows, key, "Momentum", "1 − m of the key encoder", momenta),
    ]
    notes = [
        "Where the data are few, a long queue holds several keys of each image, its own among the negatives (exclude_own=True "
        "leaves these out), and .999 hardly moves in a short training: both differ from ImageNet.",
    ]
    return {"claims": [asdict(claim) for claim in claims], "charts": charts, "notes": notes}


def _worst(rows: Rows, name: str, key: str) -> Claim:
    claim = "Without momentum (m = 0) it is worst of all: the keys in the queue come from networks too different."
    momenta = {m: value(rows, arm_of(m, SIZE).name, key) for m in MOMENTA}
    if any(figure is None for figure in momenta.values()):
        return Claim(claim, PUBLISHED, "not measured", None)
    told = f"{NAMES[key]}: " + ", ".join(f"m = {m:g} {figure:.1%}" for m, figure in momenta.items())
    found = {m: float(figure) for m, figure in momenta.items() if figure is not None}
    return Claim(claim, PUBLISHED, told, min(found, key=lambda m: found[m]) == 0.0)


def _chart(rows: Rows, key: str, title: str, x_label: str, points: list[tuple[float, str]]) -> dict[str, Any]:
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
    arms=arms,
    judge=judge,
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
