"""open_clip's losses and ours in several processes, and what both should give, from one process with the whole batch."""

import importlib.util
import warnings
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist

from coulomb.integrations.open_clip import ClipLoss, DistillClipLoss, SigLipLoss

N, D = 12, 5
FLAGS = [(local, grad) for local in (True, False) for grad in (True, False)]
IMPLEMENTATIONS = ("bidir", "shift", "reduce", "gather")


@cache
def theirs():
    """open_clip's loss.py, loaded by itself since the package needs torchvision; None if it is not installed."""
    package = importlib.util.find_spec("open_clip")
    if package is None:
        return None
    spec = importlib.util.spec_from_file_location("their_loss", Path(package.origin).with_name("loss.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch(dtype=torch.float64):
    """Images, texts, scale and bias of the whole batch."""
    draw = torch.Generator().manual_seed(4)
    rows = [torch.randn(N, D, generator=draw, dtype=torch.float64) for _ in range(2)]
    rows = [torch.nn.functional.normalize(part, dim=1) for part in rows]
    return [part.to(dtype) for part in (*rows, torch.tensor(7.0), torch.tensor(-2.5))]


def leaves(parts):
    return [part.clone().requires_grad_() for part in parts]


def mine(rank, sizes):
    """The rows of a process, and scale and bias."""
    images, texts, scale, bias = batch()
    start = sum(sizes[:rank])
    return leaves([images[start : start + sizes[rank]], texts[start : start + sizes[rank]], scale, bias])


def teacher(rows):
    """Images, texts and scale of a teacher of another width."""
    return torch.cat([rows, rows[:, :2]], 1).sin().detach(), torch.cat([rows[:, 3:], rows], 1).cos().detach(), 3.0


def distilled(loss):
    """A call of `DistillClipLoss` that returns one number."""

    def call(images, texts, scale, bias):
        contrastive, distillation = loss(images, texts, scale, *teacher(images.detach()))
        return contrastive + 2 * distillation + 0 * bias

    return call


def with_gradients(loss, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # open_clip's all_gather, of torch.distributed.nn
        value = loss(*given)
    return [value.detach(), *torch.autograd.grad(value, given, allow_unused=True, materialize_grads=True)]


def together(sizes, gather_elements):
    """In each process: (whose, loss, options) → [value, gradients of images, texts, scale, bias]."""
    from coulomb.similarity import collectives

    collectives.GATHER_ELEMENTS = gather_elements
    rank, world = dist.get_rank(), dist.get_world_size()
    place = {"rank": rank, "world_size": world}
    out, peers = {}, {"ours": (ClipLoss, SigLipLoss, DistillClipLoss)}
    if theirs() is not None and len(set(sizes)) == 1:
        peers["theirs"] = (theirs().ClipLoss, theirs().SigLipLoss, theirs().DistillClipLoss)
    for whose, (clip, siglip, distill) in peers.items():
        for local, grad in FLAGS:
            loss = clip(local_loss=local, gather_with_grad=grad, cache_labels=True, **place)
            out[whose, "clip", local, grad] = with_gradients(loss, mine(rank, sizes))
            both = distilled(distill(local_loss=local, gather_with_grad=grad, **place))
            out[whose, "distill", local, grad] = with_gradients(both, mine(rank, sizes))
            if len(set(sizes)) == 1:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)
                    logits = loss.get_logits(*mine(rank, sizes)[:3])  # open_clip adds a bias twice without local_loss
                out[whose, "logits", local, grad] = [part.detach() for part in logits]
                out[whose, "labels", local, grad] = [loss.get_ground_truth(torch.device("cpu"), len(logits[0]))]
        for name in IMPLEMENTATIONS:
            out[whose, "siglip", name] = with_gradients(siglip(dist_impl=name, **place), mine(rank, sizes))
    return out


def refused():
    """The errors of a rank and a number of processes that torch.distributed does not have."""
    images, texts, scale, bias = batch()
    messages = []
    for place in ({"rank": 0, "world_size": 3}, {"rank": 1 - dist.get_rank(), "world_size": 2}):
        for loss in (ClipLoss(**place), SigLipLoss(**place)):
            try:
                loss(images, texts, scale, bias)
            except ValueError as error:
                messages.append(str(error))
    return messages


# What they should give, by formulas on the stored logits, for the whole batch in one process.


def clip_of_rows(images, texts, keys, scale, bias, rows):
    """½ (images → keys + texts → keys), the mean over ``rows`` of the whole batch."""
    target = torch.arange(N)[rows]
    forth = torch.nn.functional.cross_entropy(scale * images[rows] @ keys[1].T + bias, target)
    back = torch.nn.functional.cross_entropy(scale * texts[rows] @ keys[0].T + bias, target)
    return (forth + back) / 2


def expected_clip(local, grad, sizes):
    """[value and gradients of each process, the gradients of the scale as their mean over processes]."""
    world, whole = len(sizes), leaves(batch())
    images, texts, scale, bias = whole
    slices = [slice(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(world)]
    everything = clip_of_rows(images, texts, (images, texts), scale, bias, slice(0, N))
    exact = torch.autograd.grad(everything, [images, texts, scale])
    out = []
    for rows in slices:
        share = world * (rows.stop - rows.start) / N  # 1 for batches of equal size
        if local and not grad and world > 1:
            keys = images.detach(), texts.detach()
            value = share * clip_of_rows(images, texts, keys, scale, bias, rows)
            gradients = [part[rows] for part in torch.autograd.grad(value, [images, texts])]
        else:
            value = share * clip_of_rows(images, texts, (images, texts), scale, bias, rows) if local else everything
            factor = world if grad else 1
            gradients = [factor * part[rows] for part in exact[:2]]
        out.append([value.detach(), *gradients])
    return out, exact[2]


def expected_distill(sizes):
    """[value and gradients of each process] if both flags are set, and the mean gradient of the scale."""
    world, (images, texts, scale, _) = len(sizes), leaves(batch())
    their_images, their_texts, their_scale = teacher(images)
    losses = 0
    pairs = (images @ texts.T, their_images @ their_texts.T)
    for s, t in (pairs, [each.T for each in pairs]):
        log_q, p = (scale * s).log_softmax(1), (their_scale * t).softmax(1)
        losses = losses - log_q.diagonal() / 2 - (p * log_q).sum(1)
    exact = torch.autograd.grad(losses.mean(), [images, texts, scale])
    out = []
    for rank in range(world):
        rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        out.append([world * losses[rows].detach().sum() / N, *(world * part[rows] for part in exact[:2])])
    return out, exact[2]


def expected_siglip(sizes):
    """[value and gradients of each process, and of scale and bias as their mean over processes]."""
    world, (images, texts, scale, bias) = len(sizes), leaves(batch())
    signs = 2 * torch.eye(N, dtype=torch.float64) - 1
    losses = torch.nn.functional.softplus(-signs * (scale * images @ texts.T + bias)).sum(1)
    exact = torch.autograd.grad(losses.mean(), [images, texts, scale, bias])
    out = []
    for rank in range(world):
        rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        out.append([world * losses[rows].detach().sum() / N, *(world * part[rows] for part in exact[:2])])
    return out, exact[2], exact[3]
