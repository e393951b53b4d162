"""Losses broken on purpose, each in one place, with the law that must find it and words of the right cause."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, normalize


def logits_of(z0, z1, temperature):
    return normalize(z0, dim=1) @ normalize(z1, dim=1).T / temperature


def targets(logits, offset=0):
    return torch.arange(len(logits), device=logits.device) + offset


def gathered(rows):
    if not dist.is_initialized():
        return [rows]
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.detach().contiguous())
    return parts


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


class Right(nn.Module):
    """InfoNCE over the samples of one process, without a mistake that this process could show."""

    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        return cross_entropy(logits, targets(logits))


class Detached(Right):
    def forward(self, z0, z1):
        return super().forward(z0, z1.detach())


class Partly(Right):
    """The negatives are detached and the positives are not."""

    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        own = torch.eye(len(logits), dtype=torch.bool)
        logits = torch.where(own, logits, logits.detach())
        return cross_entropy(logits, targets(logits))


class Unscaled(nn.Module):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x - y).square().mean()

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            slope = 2 * (x - y) / x.numel()
            return slope, -slope

    def forward(self, z0, z1):
        return self.Half.apply(z0, z1)


class WrongAxis(Right):
    def __init__(self, temperature=0.2, reduction="mean"):
        super().__init__(temperature)
        self.reduction = reduction

    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        losses = cross_entropy(logits, targets(logits), reduction="none")
        return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / z0.shape[1]}[self.reduction]


class OddSum(WrongAxis):
    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        losses = cross_entropy(logits, targets(logits), reduction="none")
        return {"none": losses, "sum": losses.sum() / 2, "mean": losses.mean()}[self.reduction]


class ByPlace(Right):
    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        losses = cross_entropy(logits, targets(logits), reduction="none")
        return (losses * torch.linspace(0.5, 1.5, len(losses))).mean()


class GatheredWithoutGradient(Right):
    """The keys of all processes, of which only the own ones carry a gradient, and only for the own queries."""

    def forward(self, z0, z1):
        keys = gathered(z1)
        keys[rank()] = z1
        logits = logits_of(z0, torch.cat(keys), self.temperature)
        return cross_entropy(logits, targets(logits, rank() * len(z0)))


class WholeInEachProcess(Right):
    """Every process computes the whole loss, in which only its own rows carry a gradient."""

    def forward(self, z0, z1):
        both = []
        for rows in (z0, z1):
            parts = gathered(rows)
            parts[rank()] = rows
            both.append(torch.cat(parts))
        return super().forward(*both)


class TimesProcesses(WholeInEachProcess):
    def forward(self, z0, z1):
        world = dist.get_world_size() if dist.is_initialized() else 1
        return super().forward(z0, z1) * world


class NoOffset(Right):
    def forward(self, z0, z1):
        logits = logits_of(z0, torch.cat(gathered(z1)), self.temperature) + 0 * z1.sum()
        return cross_entropy(logits, targets(logits))


class NaNForEqualRows(nn.Module):
    def forward(self, z0, z1):
        distance = (z0[:, None] - z1[None]).square().sum(2).sqrt()
        return cross_entropy(-distance, targets(distance))


class SilentZero(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings, labels):
        logits = logits_of(embeddings, embeddings, self.temperature)
        logits = logits - 1e9 * torch.eye(len(logits))
        positive = (labels[:, None] == labels).float() - torch.eye(len(logits))
        terms = -(torch.log_softmax(logits, 1) * positive).sum(1) / positive.sum(1).clamp_min(1)
        return terms.mean()


class Overflow(Right):
    def forward(self, z0, z1):
        exponentials = logits_of(z0, z1, self.temperature / 10).exp()
        return -(exponentials.diagonal() / exponentials.sum(1)).log().mean()


class KeepsThePairs(Right):
    """Right but for its memory."""


class Drawn(Right):
    def forward(self, z0, z1):
        logits = logits_of(z0, z1, self.temperature)
        kept = (torch.rand(logits.shape) < 0.5) | torch.eye(len(logits), dtype=torch.bool)
        return cross_entropy(logits.masked_fill(~kept, -torch.inf), targets(logits))


class InPlace(Right):
    def forward(self, z0, z1):
        z0 -= z0.mean(0)
        return super().forward(z0, z1)


class DeafToTemperature(Right):
    def forward(self, z0, z1):
        logits = logits_of(z0, z1, 0.2)
        return cross_entropy(logits, targets(logits))


class HidesNaN(Right):
    def forward(self, z0, z1):
        return super().forward(z0.nan_to_num(), z1.nan_to_num())


class OwnNegative(Right):
    """NT-Xent that forgets to leave a sample out of its own negatives."""

    def forward(self, z0, z1):
        z = torch.cat([z0, z1])
        logits = logits_of(z, z, self.temperature)
        return cross_entropy(logits, targets(logits).roll(len(z0)))


class Remembers(Right):
    def forward(self, z0, z1):
        bank = getattr(self, "bank", z1.detach()[:0])
        self.bank = torch.cat([bank, z1.detach()])
        logits = logits_of(z0, torch.cat([z1, bank]), self.temperature)
        return cross_entropy(logits, targets(logits))


class LoopOverSamples(Right):
    def forward(self, z0, z1):
        z0, z1 = normalize(z0, dim=1), normalize(z1, dim=1)
        return torch.stack([torch.logsumexp(z1 @ q / self.temperature, 0) - q @ p / self.temperature
                            for q, p in zip(z0, z1, strict=True)]).mean()  # fmt: skip


class AllTriplets(nn.Module):
    def forward(self, embeddings, labels):
        distance = (embeddings[:, None] - embeddings[None]).square().sum(2)
        same = labels[:, None] == labels
        losses = (distance[:, :, None] - distance[:, None] + 0.2).relu()
        counted = same[:, :, None] & ~same[:, None] & ~torch.eye(len(labels), dtype=torch.bool)[:, :, None]
        return losses[counted].mean()


def nt_xent_loop(z0, z1, tau=0.2):
    z = normalize(torch.cat([z0, z1]), dim=1)
    losses = []
    for i in range(len(z)):
        scores = torch.stack([z[i] @ z[j] / tau for j in range(len(z)) if j != i])
        losses.append(torch.logsumexp(scores, 0) - z[i] @ z[(i + len(z0)) % len(z)] / tau)
    return torch.stack(losses)


# loss → (law that must find it, words of the finding's cause)
BROKEN = {
    Detached: ("gradient", "no gradient reaches z1"),
    Partly: ("gradient", "detached"),
    Unscaled: ("upstream factor", "ignores the gradient that arrives from above"),
    WrongAxis: ("reductions", "divides by 5, the width of the embeddings"),
    OddSum: ("reductions", "sum is 0.5 times"),
    ByPlace: ("order of samples", "position of samples"),
    GatheredWithoutGradient: ("3 processes", "gathered rows carry no gradient"),
    WholeInEachProcess: ("2 processes", "1/2 of the whole batch's"),
    TimesProcesses: ("2 processes", "the loss is 2 times"),
    NoOffset: ("2 processes", "offset"),
    NaNForEqualRows: ("equal rows", "derivative of a norm or square root at 0"),
    SilentZero: ("no positives", "returns 0 without a warning: no sample has a positive"),
    Overflow: ("float16", "exp overflows"),
    KeepsThePairs: ("memory for backward", "matrix of all pairs is kept"),
    Drawn: ("deterministic", "global random generator"),
    InPlace: ("inputs unchanged", "z0 is changed in place"),
    DeafToTemperature: ("temperature", "temperature is ignored"),
    HidesNaN: ("NaN", "filtered out"),
    OwnNegative: ("formula", "a sample as its own negative"),
    Remembers: ("deterministic", "keeps a state"),
    LoopOverSamples: ("work", "a Python loop over samples"),
    AllTriplets: ("work", "list of all triplets"),
}
FORMULAS = {OwnNegative: nt_xent_loop}
