"""Small batches: no loss may be slower than the few lines of PyTorch that it replaces."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coulomb.bench.cases import Case
from coulomb.bench.contenders import UnavailableError, run_of
from coulomb.bench.inputs import LABELS
from coulomb.bench.measure import Bench
from coulomb.bench.parity import compare
from coulomb.bench.timing import interleaved, medians

SIZES = (64, 128, 256, 512, 1024)
SHARE, SECONDS = 0.05, 50e-6  # slower than dense by at most one of these


def _case(name: str, loss: str, inputs: str, dense: str, **options: Any) -> Case:
    return Case(name, name, loss, options, inputs, 0, 0, 128, dense, 6)


TOP = 8  # of these inputs, the 8th and 9th negative of no anchor are alike to rounding
COUNTS = tuple(range(100, 0, -10))  # images of each class, a long tail
SMALL = (
    _case("NTXentLoss", "NTXentLoss", "views", "ntxent", temperature=0.5),
    _case("SupConLoss", "SupConLoss", "labelled_views", "supcon", temperature=0.5),
    _case("InfoNCELoss", "InfoNCELoss", "pairs", "infonce", temperature=0.07),
    _case("InfoNCELoss, symmetric", "InfoNCELoss", "pairs", "infonce", temperature=0.07, symmetric=True),
    _case("InfoNCELoss, queue", "InfoNCELoss", "queue", "infonce", temperature=0.07),
    _case("DebiasedLoss", "DebiasedLoss", "views", "debiased", temperature=0.5, tau_plus=0.1),
    _case("HardNegativeLoss", "HardNegativeLoss", "views", "hard_negative", temperature=0.5, beta=1.0, tau_plus=0.1),
    _case("SimpleContrastiveLoss", "SimpleContrastiveLoss", "pairs", "simple", weight=0.1),
    _case("HardContrastiveLoss", "HardContrastiveLoss", "pairs", "hard_contrastive", temperature=0.07, top_k=TOP),
    _case("HardSimpleLoss", "HardSimpleLoss", "pairs", "hard_simple", weight=0.1, top_k=TOP),
    _case("PaCoLoss", "PaCoLoss", "logits", "paco", class_counts=COUNTS, alpha=0.05, temperature=0.2),
    _case("NCELoss", "NCELoss", "noise", "nce", num_instances=1000, temperature=0.07, normalizer=1000.0),
    _case("SoftmaxLoss", "SoftmaxLoss", "classes", "softmax"),
    _case("BalancedSoftmaxLoss", "BalancedSoftmaxLoss", "classes", "balanced_softmax", class_counts=COUNTS),
    _case("ArcFaceLoss", "ArcFaceLoss", "classes", "arcface", num_classes=LABELS, dim=128, scale=64.0, margin=0.5),
    _case("TripletLoss, hard", "TripletLoss", "labelled", "triplet_hard", margin=0.2, mining="hard"),
    _case("AlignmentLoss", "AlignmentLoss", "pairs", "alignment", alpha=2.0),
    _case("UniformityLoss", "UniformityLoss", "rows", "uniformity", t=2.0),
    _case("NegativeCosineLoss", "NegativeCosineLoss", "pairs, one side learning", "negative_cosine"),
)


def measure_small(
    bench: Bench, cases: Sequence[Case] = SMALL, sizes: Sequence[int] = SIZES, budget: float = 0.5
) -> dict[str, Any]:
    """``{"dim", "sizes", "rows": [{"name", "status", "reason", "cells"}]}``; ``budget`` seconds for each cell.

    A cell: ``{"n", "parity", "coulomb", "dense", "slower_us", "ratio", "met"}``, seconds, None where parity failed.
    """
    rows = []
    for case in cases:
        bench.say(f"small batches: {case.title}")
        row: dict[str, Any] = {"name": case.title, "status": "measured", "reason": "", "cells": []}
        try:
            row["cells"] = [_cell(bench, replace(case, n=n, m=n), budget) for n in sizes]
        except UnavailableError as reason:
            row |= {"status": "skipped", "reason": str(reason)}
        wrong = sum(not cell["parity"]["ok"] for cell in row["cells"])
        if wrong:
            row |= {"status": "wrong", "reason": f"{wrong} of {len(sizes)} sizes: not the reference's loss or gradient"}
        rows.append(row)
    return {"dim": 128, "sizes": list(sizes), "rows": rows}


def _cell(bench: Bench, case: Case, budget: float) -> dict[str, Any]:
    step, inputs, right = replace(bench, say=lambda text: None).prepared(case)
    cell: dict[str, Any] = {"n": case.n, "parity": compare(step, inputs, right)}
    cell |= dict.fromkeys(("coulomb", "dense", "slower_us", "ratio", "met"))
    if not cell["parity"]["ok"]:
        return cell
    steps, reasons = replace(bench, contenders=("dense",), say=lambda text: None).rivals(case, inputs, right)
    if reasons:
        raise UnavailableError(reasons["dense"])
    runs = {"coulomb": run_of(step, inputs), "dense": run_of(steps["dense"], inputs)}
    once = sum(medians(interleaved(runs, 3)).values())
    seconds = medians(interleaved(runs, max(3, min(400, int(budget / once)))))
    own, theirs = seconds["coulomb"], seconds["dense"]
    met = own <= theirs + max(SHARE * theirs, SECONDS)
    return cell | seconds | {"slower_us": 1e6 * (own - theirs), "ratio": own / theirs, "met": met}
