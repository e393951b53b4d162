"""Computes the figures of the guide with the library and draws them: ``make docs`` writes docs/images/*.svg."""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from svg import COLORS, draw, svg, text

from coulomb.losses import HardContrastiveLoss, InfoNCELoss, NTXentLoss, SimpleContrastiveLoss
from coulomb.metrics.loss_floor import free_logits
from coulomb.report.pages.chart import Series, line_chart

FOLDER = Path(__file__).parent / "images"
QUERY = torch.tensor([[1.0, 0.0]], dtype=torch.float64)


def at(cosines: torch.Tensor) -> torch.Tensor:
    """Points of the circle with these cosines to `QUERY`."""
    return torch.stack([cosines, (1 - cosines**2).clamp_min(0).sqrt()], dim=1)


def pushes(loss: Callable[..., torch.Tensor], cosines: torch.Tensor, positive: float) -> torch.Tensor:
    """Returns |∂loss/∂cos| of each negative, from the library's gradient: the force that pushes it away."""
    negatives = at(cosines).requires_grad_()
    loss(QUERY, at(torch.tensor([positive], dtype=torch.float64)), negatives).sum().backward()
    assert negatives.grad is not None
    # ∂L/∂key = ∂L/∂cos · (query − cos · key); its length is |∂L/∂cos| · sin.
    return negatives.grad.norm(dim=1) / (1 - cosines**2).sqrt()


def _chart(series: Sequence[Series], **options: Any) -> str:
    return draw(line_chart(series, title="", **options))


def gradient_shares() -> str:
    """The gradient of a negative relative to the mean, over its cosine, for several temperatures."""
    cosines = torch.linspace(-0.995, 0.995, 200, dtype=torch.float64)
    curves = []
    for color, temperature in enumerate((0.05, 0.1, 0.2, 0.5, 2.0)):
        push = pushes(InfoNCELoss(temperature), cosines, 0.9)
        relative = (push / push.mean()).tolist()
        curves.append(Series(f"τ = {temperature:g}", list(zip(cosines.tolist(), relative, strict=True)), f"k{color}"))
    return _chart(
        curves,
        x_label="cosine of the negative with the anchor",
        y_label="gradient, relative to the mean",
        log_y=True,
        y_range=(0.01, 50.0),
    )


def three_losses() -> str:
    """Gradient shares over the cosine for InfoNCE, for the hardest negatives alone, and for the simple loss."""
    cosines = torch.linspace(-0.995, 0.995, 200, dtype=torch.float64)
    losses = {
        "InfoNCE, τ = 0.2": InfoNCELoss(0.2),
        "hardest 50, τ = 0.5": HardContrastiveLoss(0.5, 50),
        "simple, λ = 1/200": SimpleContrastiveLoss(1 / 200),
    }
    curves = []
    for color, (name, loss) in enumerate(losses.items()):
        push = pushes(loss, cosines, 0.9)
        shares = (push / push.sum() * 100).tolist()
        curves.append(Series(name, list(zip(cosines.tolist(), shares, strict=True)), f"k{color}"))
    return _chart(
        curves, x_label="cosine of the negative with the anchor", y_label="share of the gradient in %, 200 negatives"
    )


def embeddings() -> tuple[torch.Tensor, torch.Tensor]:
    """Two views of 512 samples in 10 loose clusters on the sphere in 32 dimensions."""
    draw = torch.Generator().manual_seed(0)
    centers = torch.nn.functional.normalize(torch.randn(10, 32, generator=draw), dim=1)
    samples = centers.repeat(52, 1)[:512] + 0.2 * torch.randn(512, 32, generator=draw)
    first, second = (samples + 0.05 * torch.randn(512, 32, generator=draw) for _ in range(2))
    return first, second


def counted_negatives() -> str:
    """The effective number of negatives over the temperature."""
    first, second = embeddings()
    points = []
    for step in range(41):
        temperature = 0.01 * 10 ** (step / 40 * 2.5)
        _, seen = NTXentLoss(temperature, diagnose=True)(first, second)
        points.append((temperature, float(seen.effective_negatives.mean())))
    everyone = [(x, 1022.0) for x, _ in points]
    return _chart(
        [Series("effective negatives", points, "k0"), Series("all 1,022", everyone, "k5", dashed=True)],
        x_label="temperature τ",
        y_label="effective negatives",
        log_x=True,
        log_y=True,
        y_range=(1.0, 1500.0),
    )


def limits() -> str:
    """τ·L over τ, with its two closed forms."""
    cosines = torch.linspace(-0.6, 0.8, 50, dtype=torch.float64)
    positive = torch.tensor([0.6], dtype=torch.float64)
    rest = torch.cat([positive, cosines])
    names = ("τ·loss", "limit of τ → 0", "limit of τ → ∞")
    points: list[list[tuple[float, float]]] = [[], [], []]
    for step in range(61):
        temperature = 0.01 * 10 ** (step / 60 * 2)
        loss = float(InfoNCELoss(temperature)(QUERY, at(positive), at(cosines)))
        far = temperature * math.log(len(rest)) - float(positive - rest.mean())
        for row, value in zip(points, (temperature * loss, float(cosines.max() - positive), far), strict=True):
            row.append((temperature, value))
    curves = [
        Series(name, row, f"k{color}", dashed=color > 0)
        for color, (name, row) in enumerate(zip(names, points, strict=True))
    ]
    return _chart(curves, x_label="temperature τ", y_label="τ·loss", log_x=True, y_range=(-0.6, 4.0))


def optimum() -> str:
    """The probability of each positive at the minimum of a loss, over the number of positives; computed numerically."""
    counts, alpha = [1, 2, 4, 8, 16, 32, 64, 128, 256], 0.05

    def minimum(weights: list[float]) -> torch.Tensor:
        w = torch.tensor(weights, dtype=torch.float64)
        return free_logits(lambda x: -(w * x.log_softmax(0)).sum(), len(w)).softmax(0)

    supcon = [(float(k), float(minimum([1.0] * k)[0])) for k in counts]
    paco = [minimum([1.0] + [alpha] * k) for k in counts]
    curves = [
        Series("SupCon: 1/K", supcon, "k1"),
        Series("PaCo, center", [(float(k), float(p[0])) for k, p in zip(counts, paco, strict=True)], "k0"),
        Series("PaCo, sample", [(float(k), float(p[1])) for k, p in zip(counts, paco, strict=True)], "k2"),
    ]
    return _chart(
        curves,
        x_label="positives of the anchor, K",
        y_label="probability at the optimum (PaCo: α = 0.05)",
        log_x=True,
        log_y=True,
        y_range=(0.003, 1.0),
    )


def charges() -> str:
    """Negatives around an anchor on the circle, each with its gradient as an arrow, at two temperatures."""
    cosines = torch.tensor([0.97, 0.86, 0.6, 0.25, -0.2, -0.6, -0.9], dtype=torch.float64)
    sides = [1, -1, 1, -1, 1, -1, 1]
    parts = []
    for number, temperature in enumerate((0.1, 1.0)):
        push = pushes(InfoNCELoss(temperature), cosines, 0.9)
        share = (push / push.sum()).tolist()
        middle, height, radius = 180 + 350 * number, 170, 112
        parts.append(f'<circle class="grid" cx="{middle}" cy="{height}" r="{radius}"/>')
        parts.append(text(middle, 22, f"τ = {temperature:g}", "middle", size=16))
        parts.append(f'<circle cx="{middle}" cy="{height - radius}" r="8" style="fill:{COLORS[2]}"/>')
        parts.append(text(middle, height - radius + 26, "anchor", "middle"))
        for cosine, side, part in zip(cosines.tolist(), sides, share, strict=True):
            angle = side * math.acos(cosine)
            x, y = middle + radius * math.sin(angle), height - radius * math.cos(angle)
            length = 90 * part
            over, under = side * math.cos(angle) * length, side * math.sin(angle) * length
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" style="fill:{COLORS[1]}"/>')
            if length > 2:
                tip = f"{x + over:.1f} {y + under:.1f}"
                parts.append(f'<path class="line" style="stroke:{COLORS[1]}" d="M{x:.1f} {y:.1f}L{tip}"/>')
                parts.append(_head(x + over, y + under, math.atan2(under, over)))
            out = radius + 26
            parts.append(
                text(middle + out * math.sin(angle), height - out * math.cos(angle) + 4, f"{part:.0%}", "middle")
            )
    return svg(710, 330, "\n".join(parts))


def _head(x: float, y: float, angle: float) -> str:
    corners = [(x + 9 * math.cos(angle), y + 9 * math.sin(angle))]
    corners += [(x + 5 * math.cos(angle + turn), y + 5 * math.sin(angle + turn)) for turn in (2.0, -2.0)]
    return f'<path style="fill:{COLORS[1]}" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in corners)}Z"/>'


FIGURES = {
    "charges": charges,
    "gradient-shares": gradient_shares,
    "three-losses": three_losses,
    "counted-negatives": counted_negatives,
    "temperature-limits": limits,
    "optimum": optimum,
}

if __name__ == "__main__":
    for name, figure in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(figure(), encoding="utf-8")
