"""`coulomb lab longtail` and `imbalance`: losses for long-tailed classes."""

import math
from typing import Any

import torch
from torch import Tensor

from coulomb.losses import PaCoLoss, SupConLoss
from coulomb.metrics.class_accuracy import by_frequency
from coulomb.metrics.gradients import frequency_exponent
from coulomb.metrics.loss_floor import free_logits, pull_optimum
from coulomb.report.pages.numbers import signed
from coulomb.tables.split import LongTail
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import NOT_MEASURED, TRAINING, Claim, Rows, at_least, read_value, summary
from coulomb_lab.experiment import Experiment

OTHERS, CLASSES = 10, 5  # negatives and centers in addition to the anchor's own
PULL = 0.41  # αK of the paper's example
TAIL_METHODS = ("softmax", "balanced_softmax", "supcon", "paco")
GROUPS = ("many", "medium", "few")
MAX_ERROR = 0.01  # relative, of the formulas
ONE_SEED = 0.1  # with one seed, a smaller difference of exponents may be chance
REN = "CIFAR-10-LT, imbalance 200, overall: balanced softmax 79.8, softmax 74.0 (Ren et al., 2020)"
CUI = "CIFAR-100-LT, imbalance 100: PaCo 52.0, balanced softmax 50.8 (Cui et al., 2021)"
GRADIENT_NOTE = (
    "The gradient norm is the norm of ∂loss/∂features of the encoder, averaged over the views of a class. "
    "b < 0: an image of a rare class has a larger gradient than one of a frequent class. The published figure shows another "
    "quantity."
)


def optimum_table(alpha: float = 0.05, positives: tuple[int, ...] = (4, 20, 100)) -> list[dict[str, Any]]:
    """Returns rows {"what", "formula", "expected", "found", "error"}: minima of the losses for K positives, and formulas.

    These are the losses used in training: a query whose similarity to key j is its j-th coordinate makes all logits free.
    """
    rows = []
    for own in positives:
        rows.append(_optimum_row(f"SupCon, each of {own} positives", "1/K", 1 / own, supcon_share(own)))
    for own in positives:
        center, sample = paco_shares(own, alpha)
        name, total = f"PaCo, α = {alpha:g}", 1 + alpha * own
        rows.append(_optimum_row(f"{name}, center, {own} positives", "1/(1+αK)", 1 / total, center))
        rows.append(_optimum_row(f"{name}, each of {own} positives", "α/(1+αK)", alpha / total, sample))
    rows.append(_optimum_row(f"−log p − {PULL:g}·log(1−p), minimum", "1/(1+a)", 1 / (1 + PULL), pull_optimum(PULL)))
    return rows


def supcon_share(own: int) -> float:
    """Returns the mean probability of ``own`` positives at the minimum of SupCon."""
    loss = SupConLoss(temperature=1.0, normalize=False, reduction="none")
    labels = torch.tensor([0] * (own + 1) + [1] * OTHERS)
    logits = free_logits(lambda x: loss(_free_keys(x, own + OTHERS), labels)[0], own + OTHERS)
    return float(logits.softmax(0)[:own].mean())


def paco_shares(own: int, alpha: float) -> tuple[float, float]:
    """Returns the probabilities of the own center and of each of ``own`` positives (mean) at the minimum of PaCo."""
    loss = PaCoLoss(alpha=alpha, temperature=1.0, normalize=False)
    labels = torch.tensor([0] * (own + 1) + [1 + j % (CLASSES - 1) for j in range(OTHERS)])

    def value(x: Tensor) -> Tensor:
        return loss(_free_keys(x[CLASSES:], own + OTHERS), labels, x[None, :CLASSES])

    shares = free_logits(value, CLASSES + own + OTHERS).softmax(0)
    return float(shares[0]), float(shares[CLASSES : CLASSES + own].mean())


def _free_keys(query: Tensor, keys: int) -> Tensor:
    return torch.cat([query[None], torch.eye(keys, dtype=query.dtype)])


def _optimum_row(what: str, formula: str, expected: float, value: float) -> dict[str, Any]:
    return {"what": what, "formula": formula, "expected": expected, "found": value, "error": abs(value / expected - 1)}


def longtail_arms(settings: Settings) -> list[Arm]:
    """Returns runs of softmax, balanced softmax, SupCon (with a linear classifier afterwards) and PaCo on one split."""
    shared = _tail_options(settings)
    return [Arm(name, {"method": name, **shared}, quick=40) for name in TAIL_METHODS]


def _tail_options(settings: Settings) -> dict[str, Any]:
    LongTail.parse(settings.long_tail)
    # A long tail of the digits has about 350 images: small batches give several updates per epoch.
    return {"long_tail": settings.long_tail} | ({"batch_size": 64} if settings.digits else {})


def derive_frequency_results(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the accuracy of many-, medium- and few-shot classes, and the exponent of the gradients over frequency."""
    derived: dict[str, Any] = {"exponent": gradient_exponent(row)}
    if row.get("classes"):
        groups = by_frequency(row["classes"], *frequency_thresholds(row.get("class_counts") or []))
        derived |= {name: None if (group := groups[name]) is None else group["classifier"] for name in GROUPS}
    return derived


def read_class_counts(rows: Rows) -> list[int] | None:
    """Returns the number of training images per class."""
    return next((row["class_counts"] for row in rows.values() if row.get("class_counts")), None)


def frequency_thresholds(counts: list[int]) -> tuple[int, int]:
    """Returns (many above, few below): 100 and 20 (Liu et al., 2019) if both groups have a class, else about a third each.

    Classes of equal size stay in one group; if all classes have the same size, the thresholds are 100 and 20.
    """
    present = sorted((count for count in counts if count), reverse=True)
    third = max(1, round(0.3 * len(present)))
    if not present or (present[0] > 100 and present[-1] < 20) or present[-third] >= present[third - 1]:
        return 100, 20
    return present[third - 1] - 1, present[-third] + 1


def gradient_exponent(row: dict[str, Any]) -> float | None:
    """Returns b of mean gradient norm ∝ images^b over the classes."""
    norms, counts = row.get("gradients"), row.get("class_counts")
    if not norms or not counts:
        return None
    return frequency_exponent(torch.tensor([norm or 0.0 for norm in norms]), torch.tensor(counts))


def gradient_chart(rows: Rows) -> dict[str, Any]:
    """Returns a chart of the mean gradient norm per class relative to the most frequent class."""
    series = []
    for name, row in rows.items():
        norms, counts = row.get("gradients"), row.get("class_counts")
        if norms and counts:
            order = sorted((c for c, norm in enumerate(norms) if norm), key=lambda c: -counts[c])
            if order:
                series.append({"name": name, "points": [(counts[c], norms[c] / norms[order[0]]) for c in order]})
    return {
        "title": "Gradient norm per class",
        "y_label": "mean norm, relative to the most frequent class",
        "x_label": "training images of the class",
        "log_x": True,
        "series": series,
    }


def accuracy_charts(rows: Rows) -> list[dict[str, Any]]:
    """Returns charts of the accuracy per class of each run's classifier; empty if there is none."""
    series = [
        {
            "name": name,
            "points": [(one["train"], one["classifier"]) for one in row["classes"] if one["classifier"] is not None],
        }
        for name, row in rows.items()
        if row.get("classes")
    ]
    labels = {"title": "Accuracy per class", "y_label": "of the run's classifier"}
    labels["x_label"] = "training images of the class"
    return [labels | {"log_x": True, "percent": True, "series": series}] if series else []


def group_note(counts: list[int] | None) -> str:
    """Returns a note that explains the groups of classes."""
    many_above, few_below = frequency_thresholds(counts or [])
    return (
        f"Many: classes with more than {many_above} training images; few: fewer than {few_below}; accuracies are averaged "
        "over the classes of a group. The test images are not subsampled."
    )


def gradients_claim(rows: Rows, supcon_arm: str, paco_arm: str) -> Claim:
    """Compares how the gradients of two runs depend on the number of images per class."""
    claim = "SupCon's gradients depend on class frequency, PaCo's less (|b| is smaller)."
    published = (
        "ImageNet-LT, gradients of the last layer per class: steep for SupCon, flat for PaCo (Cui et al., 2021, figure)"
    )
    supcon, paco = read_value(rows, supcon_arm, "exponent"), read_value(rows, paco_arm, "exponent")
    if supcon is None or paco is None:
        return Claim(claim, published, NOT_MEASURED, None)
    text = f"per image, norm ∝ images^b with b = {signed(supcon, 2)} for SupCon and {signed(paco, 2)} for PaCo"
    text += f"; summed over the images of a class, b = {signed(1 + supcon, 2)} and {signed(1 + paco, 2)}"
    stds = [read_value(rows, name, "exponent_std") for name in (supcon_arm, paco_arm)]
    uncertainty = ONE_SEED if None in stds else math.hypot(*[std or 0.0 for std in stds])
    return Claim(claim, published, text, abs(paco) < abs(supcon), abs(abs(paco) - abs(supcon)) < uncertainty)


def optimum_claim(optima: list[dict[str, Any]]) -> Claim:
    """Checks that the minima of the losses over free logits agree with theory."""
    largest = max(row["error"] for row in optima)
    return Claim(
        "With free logits, the minimum is at 1/K for SupCon, and at α/(1+αK) and 1/(1+αK) for PaCo.",
        "by theory; the paper's example αK = .41: .709 for the center",
        f"relative error at most {largest:.2%}; minimum for .41 at {optima[-1]['found']:.3f}",
        largest <= MAX_ERROR,
    )


def summarize_longtail(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Shows accuracies and gradients by class frequency, and the minima of the losses."""
    counts, optima = read_class_counts(rows), optimum_table()
    lifts = "Balanced softmax raises few-shot accuracy by 10 points."
    claims = [
        at_least(rows, "balanced_softmax", "softmax", "few", 0.10, lifts, REN),
        at_least(rows, "paco", "softmax", "few", 0.10, "PaCo raises few-shot accuracy by 10 points over softmax.", CUI),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", CUI),
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(optima),
    ]
    notes = [
        group_note(counts),
        "Accuracies are measured with each run's classifier; for SupCon this is a linear one on the frozen encoder.",
        GRADIENT_NOTE,
    ]
    charts = [gradient_chart(rows), *accuracy_charts(rows)]
    return summary(claims, charts=charts, notes=notes, optimum=optima, counts=counts)


LONGTAIL = Experiment(
    name="longtail",
    title="Long-tailed classes",
    question="Which losses work for classes with few images?",
    arms=longtail_arms,
    summarize=summarize_longtail,
    derive=derive_frequency_results,
    columns=(
        ("classifier", "accuracy", "percent"),
        ("many", "many", "percent"),
        ("medium", "medium", "percent"),
        ("few", "few", "percent"),
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("exponent", "gradient b", "figure"),
        *TRAINING,
    ),
)


ALPHA, LARGE_ALPHA = 0.05, 1.0  # PaCo's α; and one that weights samples like centers, as in SupCon
MORE_ALPHAS = (0.01, 0.2)  # unless --quick
PULLS = (0.1, PULL, 1.0, 4.0)
EXTRA_SOURCE = "−log p − .41·log(1 − p) is minimal at p = .709 (Cui et al., 2021)"


def imbalance_arms(settings: Settings) -> list[Arm]:
    """Returns runs of SupCon, and of PaCo with several α, on one long-tailed split."""
    shared = _tail_options(settings)
    alphas = {"paco": ALPHA} | {f"paco-a{a:g}": a for a in (*(() if settings.quick else MORE_ALPHAS), LARGE_ALPHA)}
    paco = [Arm(name, {"method": "paco", "method_options": {"alpha": a}} | shared, 30) for name, a in alphas.items()]
    return [Arm("supcon", {"method": "supcon"} | shared, 30), *paco]


def summarize_imbalance(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Shows accuracies and gradients by class frequency, the minima, and the loss of a center around its minimum."""
    counts, optima = read_class_counts(rows), optimum_table()
    large = f"paco-a{LARGE_ALPHA:g}"
    extra = optima[-1]["found"]
    small = f"A small α is needed: {ALPHA:g} is better than 1 for rare classes."
    claims = [
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(optima),
        Claim("L_extra is minimal at .709.", EXTRA_SOURCE, f"{extra:.4f}, computed numerically", abs(extra - 0.709) < 1e-3),
        at_least(rows, "paco", "supcon", "few", 0.0, "PaCo is better than SupCon for rare classes.", CUI),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", CUI),
        at_least(rows, "paco", large, "few", 0.0, small, CUI),
    ]  # fmt: skip
    notes = [
        group_note(counts),
        "Accuracies are measured with each run's classifier; for SupCon this is a linear one on the frozen encoder.",
        GRADIENT_NOTE,
    ]
    charts = [gradient_chart(rows), *accuracy_charts(rows), extra_chart(), minima_chart(optima)]
    return summary(claims, charts=charts, notes=notes, optimum=optima, counts=counts)


def extra_chart() -> dict[str, Any]:
    """Returns a chart of L_extra(p) = −log p − a·log(1 − p) above its minimum, for several a = αK."""
    grid = [k / 100 for k in range(2, 99)]

    def extra(p: float, a: float) -> float:
        return -math.log(p) - a * math.log1p(-p)

    series = []
    for a in PULLS:
        points = [(p, extra(p, a) - extra(1 / (1 + a), a)) for p in grid]
        name = f"αK = {a:g}, minimum at p = {1 / (1 + a):.3f}"
        series.append({"name": name, "points": [(p, above) for p, above in points if above < 2], "smooth": True})
    return {
        "title": "L_extra: the effect of αK positives on a center",
        "y_label": "−log p − αK·log(1 − p), above its minimum",
        "x_label": "p, probability of the own center",
        "series": series,
    }


def minima_chart(optima: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a chart of the probabilities at the minimum over the number of positives: formulas and numerical minima."""
    grid = [10 ** (k / 10) for k in range(27)]
    formulas = [
        ("SupCon, a sample: 1/K", [(k, 1 / k) for k in grid]),
        ("PaCo, a sample: α/(1+αK)", [(k, ALPHA / (1 + ALPHA * k)) for k in grid]),
        ("PaCo, the center: 1/(1+αK)", [(k, 1 / (1 + ALPHA * k)) for k in grid]),
    ]
    numerical = [(float(row["what"].split()[-2]), row["found"]) for row in optima if row["what"].endswith("positives")]
    return {
        "title": "Probabilities at the minimum",
        "y_label": "probability of a positive or of the center",
        "x_label": "K, positives of the anchor: few for a rare class",
        "log_x": True,
        "percent": True,
        "series": [
            *({"name": name, "points": points, "smooth": True} for name, points in formulas),
            {"name": "numerical, free logits", "points": numerical, "scattered": True},
        ],
    }


IMBALANCE = Experiment(
    name="imbalance",
    title="Imbalance: SupCon and PaCo",
    question="Why do frequent classes dominate rare ones, and what do learnable centers change?",
    arms=imbalance_arms,
    summarize=summarize_imbalance,
    derive=derive_frequency_results,
    columns=tuple(column for column in LONGTAIL.columns if column[0] != "linear"),
)
