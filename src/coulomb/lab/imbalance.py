"""`coulomb lab longtail` and `imbalance`: losses for few images of many classes."""

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from coulomb.data.split import LongTail
from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import Claim, Rows, at_least, value
from coulomb.lab.experiment import Experiment
from coulomb.losses import PaCoLoss, SupConLoss
from coulomb.metrics.class_accuracy import by_frequency
from coulomb.metrics.gradients import frequency_exponent
from coulomb.metrics.loss_floor import free_logits, pull_optimum
from coulomb.pages.numbers import signed

OTHERS, CLASSES = 10, 5  # negatives and centres beside the anchor's own
PULL = 0.41  # αK of the paper's example


def optimum_table(alpha: float = 0.05, positives: tuple[int, ...] = (4, 20, 100)) -> list[dict[str, Any]]:
    """Rows {"what", "formula", "expected", "found", "error"} for classes with K other images in the batch or queue.

    The losses are those that train: a query whose similarity to key j is its j-th coordinate makes all their logits free.
    """
    rows = []
    for own in positives:
        rows.append(_row(f"SupCon, each of {own} positives", "1/K", 1 / own, supcon_share(own)))
    for own in positives:
        centre, sample = paco_shares(own, alpha)
        rows.append(_row(f"PaCo, α = {alpha:g}, centre, {own} positives", "1/(1+αK)", 1 / (1 + alpha * own), centre))
        rows.append(
            _row(f"PaCo, α = {alpha:g}, each of {own} positives", "α/(1+αK)", alpha / (1 + alpha * own), sample)
        )
    rows.append(_row(f"−log p − {PULL:g}·log(1−p), its minimum", "1/(1+a)", 1 / (1 + PULL), pull_optimum(PULL)))
    return rows


def supcon_share(own: int) -> float:
    """The probability that SupCon's minimum gives each of ``own`` positives: the mean over them."""
    loss = SupConLoss(temperature=1.0, normalize=False, reduction="none")
    labels = torch.tensor([0] * (own + 1) + [1] * OTHERS)
    logits = free_logits(lambda x: loss(_free_keys(x, own + OTHERS), labels)[0], own + OTHERS)
    return float(logits.softmax(0)[:own].mean())


def paco_shares(own: int, alpha: float) -> tuple[float, float]:
    """The probabilities that PaCo's minimum gives the own centre, and each of ``own`` positives (mean over them)."""
    loss = PaCoLoss(alpha=alpha, temperature=1.0, normalize=False)
    labels = torch.tensor([0] * (own + 1) + [1 + j % (CLASSES - 1) for j in range(OTHERS)])

    def value(x: Tensor) -> Tensor:
        return loss(_free_keys(x[CLASSES:], own + OTHERS), labels, x[None, :CLASSES])

    shares = free_logits(value, CLASSES + own + OTHERS).softmax(0)
    return float(shares[0]), float(shares[CLASSES : CLASSES + own].mean())


def _free_keys(query: Tensor, keys: int) -> Tensor:
    return torch.cat([query[None], torch.eye(keys, dtype=query.dtype)])


def _row(what: str, formula: str, expected: float, found: float) -> dict[str, Any]:
    return {"what": what, "formula": formula, "expected": expected, "found": found, "error": abs(found / expected - 1)}


TAIL_METHODS = ("softmax", "balanced_softmax", "supcon", "paco")
GROUPS = ("many", "medium", "few")
WITHIN = 0.01  # of the formulas
NEAR = 0.1  # exponents of one seed that may be alike


def longtail_arms(settings: Settings) -> list[Arm]:
    """Softmax, balanced softmax, SupCon (then a linear classifier on the frozen encoder), PaCo, on one split."""
    LongTail.parse(settings.long_tail)
    # A long tail of the digits has some 350 images: smaller batches, so that there are several updates an epoch.
    small = {"batch_size": 64} if settings.digits else {}
    return [Arm(name, {"method": name, "long_tail": settings.long_tail, **small}, quick=40) for name in TAIL_METHODS]


def derive(figures: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of many-, medium- and few-shot classes, and the exponent of the gradients by frequency."""
    found: dict[str, Any] = {"exponent": exponent(figures)}
    if figures.get("classes"):
        groups = by_frequency(figures["classes"], *thresholds(figures.get("class_counts") or []))
        found |= {name: None if (group := groups[name]) is None else group["classifier"] for name in GROUPS}
    return found


def counts_of(rows: Rows) -> list[int] | None:
    """Training images of each class."""
    return next((found["class_counts"] for found in rows.values() if found.get("class_counts")), None)


def judge_longtail(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy by frequency, gradients by frequency, the optimum."""
    counts = counts_of(rows)
    ren = "CIFAR-10-LT, imbalance 200, overall: balanced softmax 79.8, softmax 74.0 (Ren et al., 2020)"
    cui = "CIFAR-100-LT, imbalance 100: PaCo 52.0, balanced softmax 50.8 (Cui et al., 2021)"
    table = optimum_table()
    claims = [
        at_least(
            rows,
            "balanced_softmax",
            "softmax",
            "few",
            0.10,
            "Balanced softmax lifts few-shot classes by 10 points.",
            ren,
        ),
        at_least(rows, "paco", "softmax", "few", 0.10, "PaCo lifts rare classes by 10 points over softmax.", cui),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", cui),
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(table),
    ]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [gradient_chart(rows), *accuracy_chart(rows)],
        "notes": [
            groups_note(counts),
            "Accuracies are of each run's own classifier: for SupCon a linear one on the frozen encoder, its second stage.",
            "The gradient norm is that of the loss by the encoder's features, mean over the views of a class. b < 0: an image "
            "of a rare class is moved more than one of a frequent class. The published figure is of another quantity.",
        ],
        "optimum": table,
        "counts": counts,
    }


def thresholds(counts: list[int]) -> tuple[int, int]:
    """(many above, few below): 100 and 20 (Liu et al., 2019) where both groups have a class, else about a third each.

    Classes with equally many images stay together; where all have, the usual thresholds stand.
    """
    present = sorted((count for count in counts if count), reverse=True)
    third = max(1, round(0.3 * len(present)))
    if not present or (present[0] > 100 and present[-1] < 20) or present[-third] >= present[third - 1]:
        return 100, 20
    return present[third - 1] - 1, present[-third] + 1


def exponent(figures: dict[str, Any]) -> float | None:
    """b of mean gradient norm ∝ images^b over classes."""
    norms, counts = figures.get("gradients"), figures.get("class_counts")
    if not norms or not counts:
        return None
    return frequency_exponent(torch.tensor([norm or 0.0 for norm in norms]), torch.tensor(counts))


def gradient_chart(rows: Rows) -> dict[str, Any]:
    """Mean gradient norm by class, frequent to rare, divided by that of the most frequent class."""
    series = []
    for name, found in rows.items():
        norms, counts = found.get("gradients"), found.get("class_counts")
        if norms and counts:
            order = sorted((c for c, norm in enumerate(norms) if norm), key=lambda c: -counts[c])
            if order:
                first = norms[order[0]]
                series.append({"name": name, "points": [(counts[c], norms[c] / first) for c in order]})
    return {
        "title": "Gradient norm by class",
        "y_label": "mean norm, relative to the most frequent class",
        "x_label": "training images of the class",
        "log_x": True,
        "series": series,
    }


def groups_note(counts: list[int] | None) -> str:
    """What many and few mean here."""
    many_above, few_below = thresholds(counts or [])
    return (
        f"Many: classes with more than {many_above} training images; few: with fewer than {few_below}; the mean over the "
        "classes of a group. The test images are not thinned out."
    )


def accuracy_chart(rows: Rows) -> list[dict[str, Any]]:
    """Accuracy of each run's classifier by class."""
    series = [
        {
            "name": name,
            "points": [(row["train"], row["classifier"]) for row in found["classes"] if row["classifier"] is not None],
        }
        for name, found in rows.items()
        if found.get("classes")
    ]
    chart = {
        "title": "Accuracy by class",
        "y_label": "of the run's classifier",
        "x_label": "training images of the class",
    }
    return [chart | {"log_x": True, "percent": True, "series": series}] if series else []


def gradients_claim(rows: Rows, supcon_arm: str, paco_arm: str) -> Claim:
    """Which of the two depends more on how many images a class has."""
    claim = "SupCon's gradients change with class frequency, PaCo's less (|b| is smaller)."
    published = (
        "ImageNet-LT, gradients of the last layer by class: steep for SupCon, flat for PaCo (Cui et al., 2021, figure)"
    )
    supcon, paco = value(rows, supcon_arm, "exponent"), value(rows, paco_arm, "exponent")
    if supcon is None or paco is None:
        return Claim(claim, published, "not measured", None)
    told = f"by an image, norm ∝ images^b with b = {signed(supcon, 2)} for SupCon, {signed(paco, 2)} for PaCo"
    told += f"; summed over a class's images, b = {signed(1 + supcon, 2)} and {signed(1 + paco, 2)}"
    stds = [value(rows, name, "exponent_std") for name in (supcon_arm, paco_arm)]
    unsure = NEAR if None in stds else math.hypot(*[std or 0.0 for std in stds])
    return Claim(claim, published, told, abs(paco) < abs(supcon), abs(abs(paco) - abs(supcon)) < unsure)


def optimum_claim(table: list[dict[str, Any]]) -> Claim:
    """The losses' minima over free logits are those of theory."""
    worst = max(row["error"] for row in table)
    last = table[-1]
    return Claim(
        "With free logits SupCon rests at 1/K, PaCo at α/(1+αK) and 1/(1+αK).",
        "by theory; the paper's example αK = .41: .709 for the centre",
        f"at most {worst:.2%} off; the minimum for .41 at {last['found']:.3f}",
        worst <= WITHIN,
    )


LONGTAIL = Experiment(
    name="longtail",
    title="A long tail",
    question="Which losses serve classes with few images?",
    arms=longtail_arms,
    judge=judge_longtail,
    derive=derive,
    columns=(
        ("classifier", "accuracy", "percent"),
        ("many", "many", "percent"),
        ("medium", "medium", "percent"),
        ("few", "few", "percent"),
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("exponent", "gradient b", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)


ALPHA, HEAVY = 0.05, 1.0  # PaCo's α; and one at which samples count as much as centres, as in SupCon
ALPHAS = (0.01, 0.2)  # besides, in the full setting
PULLS = (0.1, PULL, 1.0, 4.0)
CUI = "CIFAR-100-LT, imbalance 100: PaCo 52.0, balanced softmax 50.8 (Cui et al., 2021)"
LEAST = "−log p − .41·log(1 − p) is least at p = .709 (Cui et al., 2021)"


def imbalance_arms(settings: Settings) -> list[Arm]:
    """SupCon, and PaCo with several α, on one long tail."""
    LongTail.parse(settings.long_tail)
    shared = {"long_tail": settings.long_tail} | ({"batch_size": 64} if settings.digits else {})
    alphas = () if settings.quick else ALPHAS
    return [
        Arm("supcon", {"method": "supcon"} | shared, 30),
        Arm("paco", {"method": "paco", "method_options": {"alpha": ALPHA}} | shared, 30),
        *(
            Arm(f"paco-a{a:g}", {"method": "paco", "method_options": {"alpha": a}} | shared, 30)
            for a in (*alphas, HEAVY)
        ),
    ]


def judge_imbalance(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy and gradients by frequency, the minima, and the curve whose minimum the centres sit in."""
    counts, table = counts_of(rows), optimum_table()
    heavy = f"paco-a{HEAVY:g}"
    claims = [
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(table),
        _pull(table),
        at_least(rows, "paco", "supcon", "few", 0.0, "PaCo serves rare classes better than SupCon.", CUI),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", CUI),
        at_least(
            rows, "paco", heavy, "few", 0.0, f"A small α does it: {ALPHA:g} serves rare classes better than 1.", CUI
        ),
    ]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [gradient_chart(rows), *accuracy_chart(rows), extra_chart(), rest_chart(table)],
        "notes": [
            groups_note(counts),
            "Accuracies are of each run's own classifier: for SupCon a linear one on the frozen encoder.",
            "The gradient norm is that of the loss by the encoder's features, mean over the views of a class. b < 0: an image "
            "of a rare class is moved more than one of a frequent class. The published figure is of another quantity.",
        ],
        "optimum": table,
        "counts": counts,
    }


def extra_chart() -> dict[str, Any]:
    """L_extra(p) = −log p − a·log(1 − p) above its minimum, for several a = αK."""
    grid = [k / 100 for k in range(2, 99)]

    def above(p: float, a: float) -> float:
        return -math.log(p) - a * math.log1p(-p)

    def least(a: float) -> float:
        return above(1 / (1 + a), a)

    return {
        "title": "L_extra: what αK positives do to a centre",
        "y_label": "−log p − αK·log(1 − p), above its minimum",
        "x_label": "p, the own centre's probability",
        "series": [
            {
                "name": f"αK = {a:g}, least at p = {1 / (1 + a):.3f}",
                "points": [(p, above(p, a) - least(a)) for p in grid if above(p, a) - least(a) < 2],
                "smooth": True,
            }
            for a in PULLS
        ],
    }


def rest_chart(table: list[dict[str, Any]]) -> dict[str, Any]:
    """By how many positives there are: formulas, and the minima found."""
    grid = [10 ** (k / 10) for k in range(27)]
    formulas = [
        ("SupCon, a sample: 1/K", [(k, 1 / k) for k in grid]),
        ("PaCo, a sample: α/(1+αK)", [(k, ALPHA / (1 + ALPHA * k)) for k in grid]),
        ("PaCo, the centre: 1/(1+αK)", [(k, 1 / (1 + ALPHA * k)) for k in grid]),
    ]
    own = [(float(row["what"].split()[-2]), row["found"]) for row in table if row["what"].endswith("positives")]
    series = [{"name": name, "points": points, "smooth": True} for name, points in formulas]
    found = {"title": "Where each pair comes to rest", "y_label": "probability at the minimum", "log_x": True}
    found |= {"x_label": "K, positives of the anchor: few for a rare class", "percent": True}
    return found | {"series": [*series, {"name": "found by free-logit optimisation", "points": own, "scattered": True}]}


def _pull(table: list[dict[str, Any]]) -> Claim:
    found = table[-1]["found"]
    return Claim("L_extra's minimum is at .709.", LEAST, f"{found:.4f}, found numerically", abs(found - 0.709) < 1e-3)


IMBALANCE = Experiment(
    name="imbalance",
    title="Imbalance: SupCon and PaCo",
    question="Why do frequent classes crowd out rare ones, and what do learnable centres change?",
    arms=imbalance_arms,
    judge=judge_imbalance,
    derive=derive,
    columns=tuple(column for column in LONGTAIL.columns if column[0] != "linear"),
)
