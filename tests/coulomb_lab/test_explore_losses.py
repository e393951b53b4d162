"""The explorer's formulas beside coulomb.losses, in a real browser: every loss, random scenes, values and gradients."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from chromium import MARKS, opened
from coulomb.losses import (
    AlignmentLoss,
    DebiasedLoss,
    HardContrastiveLoss,
    HardNegativeLoss,
    InfoNCELoss,
    NTXentLoss,
    PaCoLoss,
    SimpleContrastiveLoss,
    SupConLoss,
    UniformityLoss,
)
from coulomb_lab.explore import build_explorer

pytestmark = MARKS
DEFAULTS = {
    "weight": 0.1, "topK": 3, "tauPlus": 0.1, "beta": 1.0, "alpha": 0.05, "centerWeight": 1.0, "gamma": 1.0,
    "centerTemperature": 1.0, "counts": None,
}  # fmt: skip
LOSSES = ("infonce", "simple", "hard", "debiased", "hcl", "supcon", "paco")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = build_explorer(tmp_path_factory.mktemp("explore") / "index.html")
    with opened() as browser:
        page = browser.new_page()
        page.goto(path.as_uri())
        yield page


def scene_and_options(loss, seed):
    """Random rows, labels, centers and settings; on the circle for every third seed, and crowded for every fourth."""
    draw = torch.Generator().manual_seed(seed)
    images, classes = 3 + seed % 5, 2 + seed % 2

    def rows(count):
        made = torch.randn(count, 3, generator=draw, dtype=torch.float64)
        if seed % 4 == 0:
            made[:, 1] += 6
        if seed % 3 == 0:
            made[:, 2] = 0
        return normalize(made)

    labels = torch.randint(classes, (images,), generator=draw).repeat(2)
    number = lambda low, high: low + (high - low) * float(torch.rand((), generator=draw))  # noqa: E731
    options = DEFAULTS | {
        "loss": loss, "temperature": math.exp(number(math.log(0.03), math.log(8))), "weight": number(0, 1.5),
        "topK": 1 + seed % 6, "tauPlus": (0.0, 0.03, 0.1, 0.4)[seed % 4], "beta": (0.0, 0.5, 1.0, 3.0)[(seed // 4) % 4],
        "alpha": number(0, 1), "gamma": (1.0, 0.5)[seed % 2], "centerTemperature": number(0.1, 1.5),
        "counts": [100, 10, 1] if seed % 2 else None,
    }  # fmt: skip
    return rows(2 * images), labels, rows(classes), options


def anchor_value(loss, points, labels, centers, anchor, options):
    """The same by the library: the loss of one anchor."""
    n = len(points) // 2
    partner = (anchor + n) % (2 * n)
    query, positive = points[anchor, None], points[partner, None]
    others = [j for j in range(2 * n) if j not in (anchor, partner)]
    tau = options["temperature"]
    if loss == "infonce":
        return InfoNCELoss(tau)(query, positive, points[others])
    if loss == "simple":
        return SimpleContrastiveLoss(options["weight"])(query, positive, points[others])
    if loss == "hard":
        return HardContrastiveLoss(tau, options["topK"])(query, positive, points[others])
    if loss == "debiased":
        return DebiasedLoss(tau, options["tauPlus"], reduction="none")(points[:n], points[n:])[anchor]
    if loss == "hcl":
        made = HardNegativeLoss(tau, options["beta"], options["tauPlus"], reduction="none")
        return made(points[:n], points[n:])[anchor]
    if loss == "supcon":
        views = torch.stack([points[:n], points[n:]], dim=1)
        return SupConLoss(tau, reduction="none")(views, labels[:n])[anchor]
    counts = options["counts"] and options["counts"][: len(centers)]
    made = PaCoLoss(
        counts, options["alpha"], options["centerWeight"], options["gamma"], options["centerTemperature"], tau,
        reduction="none",
    )  # fmt: skip
    return made(points, labels, normalize(points) @ normalize(centers).T)[anchor]


def as_scene(points, labels, centers):
    return {"points": points.tolist(), "labels": labels.tolist(), "centers": centers.tolist()}


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_and_its_gradient_equal_the_library(page, loss):
    bounded = 0
    for seed in range(40):
        points, labels, centers, options = scene_and_options(loss, seed)
        anchor = seed % len(points)
        leaves = [points.clone().requires_grad_(), centers.clone().requires_grad_()]
        value = anchor_value(loss, leaves[0], labels, leaves[1], anchor, options).sum()
        gradients = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        value = value.item()
        scene = as_scene(points, labels, centers)
        found = page.evaluate("([s, o, a]) => batchLoss(s, o, a)", [scene, options, anchor])
        size = max(1.0, 1 / options["temperature"])
        assert abs(found["value"] - value) <= 1e-9 * max(1, abs(value)), (seed, options)
        for name, expected in zip(("points", "centers"), gradients, strict=True):
            got = torch.tensor(found[name], dtype=torch.float64)
            assert float((got - expected).abs().max()) <= 1e-9 * size, (seed, name, options)
        bounded += page.evaluate("([s, o, a]) => anchorLoss(s, a, o).bounded", [scene, options, anchor])
    if loss in ("debiased", "hcl"):
        assert 0 < bounded < 40  # both sides of the bound were met


def test_the_batch_is_nt_xent(page):
    for seed in range(6):
        points, labels, centers, options = scene_and_options("infonce", seed)
        leaf, n = points.clone().requires_grad_(), len(points) // 2
        value = NTXentLoss(options["temperature"])(leaf[:n], leaf[n:])
        (gradient,) = torch.autograd.grad(value, leaf)
        found = page.evaluate("([s, o]) => batchLoss(s, o)", [as_scene(points, labels, centers), options])
        assert found["value"] == pytest.approx(value.item(), rel=1e-9, abs=1e-12)
        got = torch.tensor(found["points"], dtype=torch.float64)
        assert float((got - gradient).abs().max()) <= 1e-9 / min(1, options["temperature"])


def test_measures_equal_the_library(page):
    for seed in range(12):
        points, labels, centers, options = scene_and_options("infonce", seed)
        n, scene = len(points) // 2, as_scene(points, labels, centers)
        assert page.evaluate("p => alignmentOf(p)", scene["points"]) == pytest.approx(
            float(AlignmentLoss()(points[:n], points[n:])), rel=1e-9, abs=1e-12
        )
        spread = (UniformityLoss()(points[:n]) + UniformityLoss()(points[n:])) / 2
        assert page.evaluate("p => uniformityOf(p)", scene["points"]) == pytest.approx(float(spread), rel=1e-9)
        others = torch.cat([points[1:n], points[n + 1 :]])
        _, seen = InfoNCELoss(options["temperature"], diagnose=True)(points[0, None], points[n, None], others)
        found = page.evaluate("([s, o]) => effectiveNumber(anchorLoss(s, 0, o))", [scene, options])
        assert found == pytest.approx(float(seen.effective_negatives), rel=1e-8)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "simple"])
def test_the_limits_are_those_of_the_loss(page, loss):
    for seed in range(12):
        points, labels, centers, options = scene_and_options(loss, seed)
        scene = as_scene(points, labels, centers)
        limits = page.evaluate("([s, o]) => limitsOf(s, 0, o)", [scene, options])
        cold, hot = 1e-6, 1e4
        at = lambda tau: float(  # noqa: E731
            anchor_value(loss, points, labels, centers, 0, options | {"temperature": tau}).sum()
        )
        assert cold * at(cold) == pytest.approx(limits["cold"], abs=1e-4)
        assert at(hot) == pytest.approx(limits["hot"]["level"] - limits["hot"]["slope"] / hot, abs=2e-7)
        assert hot * (limits["hot"]["level"] - at(hot)) == pytest.approx(limits["hot"]["slope"], abs=2e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_push_equals_pull(page, loss):
    """In logits, unless the bound or λ say otherwise; the simple loss balances at λ = 1/number of negatives."""
    for seed in range(12):
        points, labels, centers, options = scene_and_options(loss, seed)
        options["weight"] = 1 / (len(points) - 2)
        scene = as_scene(points, labels, centers)
        found = page.evaluate("([s, o]) => ({...anchorLoss(s, 1, o)})", [scene, options])
        if not found["bounded"]:
            assert math.fsum(found["weights"] + found["centerWeights"]) == pytest.approx(0, abs=1e-12)
