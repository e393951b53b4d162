"""Every loss that gathers, called on the embeddings of a small model in one process and in several."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from coulomb import losses
from coulomb.ground.errors import CoulombWarning
from coulomb.losses import LearnableTemperature
from coulomb.similarity import matrix, policy, prefixes

UNEVEN = {1: [12], 2: [7, 5], 3: [5, 1, 6], 4: [3, 1, 6, 2]}
EVEN = {1: [12], 2: [6, 6], 3: [4, 4, 4], 4: [3, 3, 3, 3]}


def labels_of(n):
    return torch.tensor([0, 1, 2, 0, -1, 1, 0, 2, 2, -1, 1, 0])[:n]


def several(labels):
    """[N, 3] multi-hot: each label's class and the one before it."""
    return ((labels[:, None] >= 0) & ((labels[:, None] - torch.arange(3)) % 3 < 2)).long()


def two_ids(labels):
    """[N, 2]: the label, and an id that others share; some are unknown."""
    return torch.stack([labels, torch.where(labels >= 0, (3 * labels + 1) % 4 - 1, 1)], 1)


def three_ids(labels):
    """[N, 3], the first of which is never known."""
    return torch.cat([torch.full_like(labels, -1)[:, None], two_ids(labels)], 1)


def guide(*parts):
    """Embeddings of one teacher: functions of the rows, with false negatives and without ties."""
    return tuple((3 * part.detach()[:, :3] + place).sin() for place, part in enumerate(parts))


def paco(loss, x, y, labels):
    """Anchors x, keys y, and a queue that is the same in all processes and has fewer rows than some groups have processes."""
    generator = torch.Generator().manual_seed(8)
    queue = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return loss(torch.cat([x, y]), labels.repeat(2), x[:, :3], queue, torch.tensor([1, -1, 0]))


class OfCall(nn.Module):
    """A loss whose scale, and bias, are parameters of the model that are given with each call."""

    def __init__(self, loss, bias=None):
        super().__init__()
        self.loss = loss
        self.log_scale = nn.Parameter(torch.tensor(1.2, dtype=torch.float64))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias, dtype=torch.float64))

    def forward(self, *rows):
        given = {} if self.bias is None else {"bias": self.bias}
        return self.loss(*rows, scale=self.log_scale.exp(), **given)


def in_one_pass(call):
    """The call of a `MatryoshkaLoss`, whose prefixes share passes over the similarities if there are several processes."""

    def run(*given):
        counted, forward = [], prefixes.forward
        prefixes.forward = lambda *a: counted.append(1) or forward(*a)
        try:
            with policy.override(saved=0):
                result = call(*given)
        finally:
            prefixes.forward = forward
        assert bool(counted) == (dist.is_initialized() and dist.get_world_size() > 1)
        return result

    return run


def nested(make, **kept):
    """A constructor of `MatryoshkaLoss` around a loss."""
    return lambda t, **k: losses.MatryoshkaLoss(make(t, **kept, **k), [1, 2, 4], [0.5, 1, 2])


# name → (constructor of a loss given a temperature and options, call with views x, y [N, D] and labels [N])
CASES = {
    "NTXent": (lambda t, **k: losses.NTXentLoss(t, **k), lambda f, x, y, l: f(x, y)),
    "NTXent, 3 views": (
        lambda t, **k: losses.NTXentLoss(t, **k),
        lambda f, x, y, l: f(torch.stack([x, y, x * y], 1)),
    ),
    "InfoNCE": (lambda t, **k: losses.InfoNCELoss(t, **k), lambda f, x, y, l: f(x, y)),
    "InfoNCE symmetric": (lambda t, **k: losses.InfoNCELoss(t, symmetric=True, **k), lambda f, x, y, l: f(x, y)),
    "InfoNCE, ids": (lambda t, **k: losses.InfoNCELoss(t, **k), lambda f, x, y, l: f(x, y, ids=l)),
    "InfoNCE, two ids": (lambda t, **k: losses.InfoNCELoss(t, **k), lambda f, x, y, l: f(x, y, ids=two_ids(l))),
    "InfoNCE symmetric, three ids": (
        lambda t, **k: losses.InfoNCELoss(t, symmetric=True, **k),
        lambda f, x, y, l: f(x, y, ids=three_ids(l)),
    ),
    "InfoNCE symmetric, equal ids are positives": (
        lambda t, **k: losses.InfoNCELoss(t, symmetric=True, same_id="positive", **k),
        lambda f, x, y, l: f(x, y, ids=l),
    ),
    "InfoNCE, hard negatives": (
        lambda t, **k: losses.InfoNCELoss(t, in_batch=True, **k),
        lambda f, x, y, l: f(x, y, x - y),
    ),
    "InfoNCE symmetric, hard negatives with ids": (
        lambda t, **k: losses.InfoNCELoss(t, symmetric=True, in_batch=True, **k),
        lambda f, x, y, l: f(
            x, y, torch.cat([x - y, x + y]), ids=two_ids(l), negative_ids=two_ids(l).flip(1).repeat(2, 1)
        ),
    ),
    "InfoNCE, hard negatives, equal ids are positives": (
        lambda t, **k: losses.InfoNCELoss(t, in_batch=True, same_id="positive", **k),
        lambda f, x, y, l: f(x, y, x - y, ids=l, negative_ids=(l + 2) % 4 - 1),
    ),
    "InfoNCE, guide": (lambda t, **k: losses.InfoNCELoss(t, **k), lambda f, x, y, l: f(x, y, guide=guide(x, y))),
    "InfoNCE symmetric, ids and guide": (
        lambda t, **k: losses.InfoNCELoss(t, symmetric=True, guide_margin=0.1, **k),
        lambda f, x, y, l: f(x, y, ids=two_ids(l), guide=guide(x, y)),
    ),
    "InfoNCE symmetric, hard negatives with a guide": (
        lambda t, **k: losses.InfoNCELoss(
            t, symmetric=True, in_batch=True, guide_margin=0.1, guide_margin_kind="relative", **k
        ),
        lambda f, x, y, l: f(x, y, x - y, guide=guide(x, y, x - y)),
    ),
    "InfoNCE symmetric, scale of the call": (
        lambda t, **k: OfCall(losses.InfoNCELoss(symmetric=True, **k)),
        lambda f, x, y, l: f(x, y),
    ),
    "NTXent, scale of the call": (lambda t, **k: OfCall(losses.NTXentLoss(**k)), lambda f, x, y, l: f(x, y)),
    "sigmoid, scale and bias of the call": (
        lambda t, **k: OfCall(losses.SigmoidLoss(learnable=False, **k), -1.0),
        lambda f, x, y, l: f(x, y),
    ),
    "joint InfoNCE": (lambda t, **k: losses.JointInfoNCELoss(t, **k), lambda f, x, y, l: f(x, y)),
    "joint InfoNCE, hard negatives with hardness": (
        lambda t, **k: losses.JointInfoNCELoss(t, hardness_mode="in_batch_negatives", hardness_strength=2.0, **k),
        lambda f, x, y, l: f(x, y, torch.stack([x - y, x + y], 1)),
    ),
    "joint InfoNCE, hard negatives per direction": (
        lambda t, **k: losses.JointInfoNCELoss(
            t,
            directions=("query_to_doc", "doc_to_query"),
            partition_mode="per_direction",
            hardness_mode="hard_negatives",
            hardness_strength=2.0,
            **k,
        ),
        lambda f, x, y, l: f(x, y, torch.stack([x - y, x + y], 1)),
    ),
    "Matryoshka, both directions": (
        lambda t, **k: losses.MatryoshkaLoss(losses.InfoNCELoss(t, symmetric=True, **k), [2, 4], [0.5, 1]),
        lambda f, x, y, l: f(x, y, ids=two_ids(l)),
    ),
    "Matryoshka, two views": (
        lambda t, **k: losses.MatryoshkaLoss(losses.NTXentLoss(t, **k), [1, 3]),
        lambda f, x, y, l: f(x, y),
    ),
    "Matryoshka, SupCon": (
        lambda t, **k: losses.MatryoshkaLoss(losses.SupConLoss(t, **k), [2, 4]),
        lambda f, x, y, l: f(torch.stack([x, y], 1), l),
    ),
    "Matryoshka in one pass": (nested(losses.InfoNCELoss), in_one_pass(lambda f, x, y, l: f(x, y, ids=l))),
    "Matryoshka in one pass, both directions, hard negatives": (
        nested(losses.InfoNCELoss, symmetric=True, in_batch=True),
        in_one_pass(lambda f, x, y, l: f(x, y, x - y)),
    ),
    "Matryoshka in one pass, ids as positives": (
        nested(losses.InfoNCELoss, symmetric=True, same_id="positive"),
        in_one_pass(lambda f, x, y, l: f(x, y, ids=l)),
    ),
    "Matryoshka in one pass, guide": (
        nested(losses.InfoNCELoss, guide_margin=0.1),
        in_one_pass(lambda f, x, y, l: f(x, y, guide=guide(x, y))),
    ),
    "Matryoshka in one pass, three views": (
        nested(losses.NTXentLoss),
        in_one_pass(lambda f, x, y, l: f(torch.stack([x, y, x * y], 1))),
    ),
    "Matryoshka in one pass, labels": (
        nested(losses.SupConLoss, no_positive="exclude"),
        in_one_pass(lambda f, x, y, l: f(x, l)),
    ),
    "Matryoshka in one pass, labels of view 0": (
        nested(losses.SupConLoss, contrast_mode="one", positives="in"),
        in_one_pass(lambda f, x, y, l: f(torch.stack([x, y], 1), l)),
    ),
    "Matryoshka in one pass, joint": (
        nested(losses.JointInfoNCELoss),
        in_one_pass(lambda f, x, y, l: f(x, y, torch.stack([x - y, x + y], 1))),
    ),
    "Matryoshka in one pass, debiased": (nested(losses.DebiasedLoss), in_one_pass(lambda f, x, y, l: f(x, y))),
    "debiased": (lambda t, **k: losses.DebiasedLoss(t, **k), lambda f, x, y, l: f(x, y)),
    "hard negatives": (lambda t, **k: losses.HardNegativeLoss(t, beta=0.7, **k), lambda f, x, y, l: f(x, y)),
    "simple": (lambda t, **k: losses.SimpleContrastiveLoss(0.4, **k), lambda f, x, y, l: f(x, y)),
    "hard": (lambda t, **k: losses.HardContrastiveLoss(t, top_k=3, **k), lambda f, x, y, l: f(x, y)),
    "hard, all": (lambda t, **k: losses.HardContrastiveLoss(t, **k), lambda f, x, y, l: f(x, y)),
    "hard simple": (lambda t, **k: losses.HardSimpleLoss(0.4, top_k=3, **k), lambda f, x, y, l: f(x, y)),
    "uniformity": (lambda t, **k: losses.UniformityLoss(**k), lambda f, x, y, l: f(x)),
    "uniformity, not normalized": (
        lambda t, **k: losses.UniformityLoss(0.1, normalize=False, **k),
        lambda f, x, y, l: f(x),
    ),
    "sigmoid": (lambda t, **k: losses.SigmoidLoss(3.0, -1.0, **k).double(), lambda f, x, y, l: f(x, y)),
    "sigmoid, several positives": (
        lambda t, **k: losses.SigmoidLoss(3.0, -1.0, **k).double(),
        lambda f, x, y, l: f(x, y, l),
    ),
    "sigmoid, two ids": (
        lambda t, **k: losses.SigmoidLoss(3.0, -1.0, **k).double(),
        lambda f, x, y, l: f(x, y, two_ids(l)),
    ),
    "sigmoid, equal ids left out": (
        lambda t, **k: losses.SigmoidLoss(3.0, -1.0, same_id="left_out", **k).double(),
        lambda f, x, y, l: f(x, y, two_ids(l)),
    ),
    "decoupled": (lambda t, **k: losses.DecoupledLoss(t, **k), lambda f, x, y, l: f(x, y)),
    "decoupled, weighted": (lambda t, **k: losses.DecoupledLoss(t, weighted=True, **k), lambda f, x, y, l: f(x, y)),
    "VICReg": (lambda t, **k: losses.VICRegLoss(**k), lambda f, x, y, l: f(x, y)),
    "Barlow Twins": (lambda t, **k: losses.BarlowTwinsLoss(0.3, **k), lambda f, x, y, l: f(x, y)),
    "SupCon": (
        lambda t, **k: losses.SupConLoss(t, **k),
        lambda f, x, y, l: f(torch.stack([x, y], 1), l),
    ),
    "SupCon without labels": (
        lambda t, **k: losses.SupConLoss(t, **k),
        lambda f, x, y, l: f(torch.stack([x, y], 1)),
    ),
    "SupCon, positives in": (
        lambda t, **k: losses.SupConLoss(t, positives="in", contrast_mode="one", **k),
        lambda f, x, y, l: f(torch.stack([x, y], 1), l),
    ),
    "SupCon, one view, some without positives": (
        lambda t, **k: losses.SupConLoss(t, no_positive="exclude", **k),
        lambda f, x, y, l: f(x, l),
    ),
    "SupCon, several labels": (
        lambda t, **k: losses.SupConLoss(t, overlap="jaccard", **k),
        lambda f, x, y, l: f(torch.stack([x, y], 1), several(l)),
    ),
    "PaCo": (lambda t, **k: losses.PaCoLoss([3, 2, 1], 0.3, temperature=t, **k), lambda f, x, y, l: paco(f, x, y, l)),
    "PaCo, every row an anchor": (
        lambda t, **k: losses.PaCoLoss(label_smoothing=0.1, temperature=t, **k),
        lambda f, x, y, l: f(x, l, x[:, :3]),
    ),
    "distillation": (
        lambda t, **k: losses.DistillationLoss(t, 0.4, **k),
        lambda f, x, y, l: f(x, guide(x)[0]),
    ),
    "distillation, pairs": (
        lambda t, **k: losses.DistillationLoss(t, 0.2, kl=True, **k),
        lambda f, x, y, l: f(x, guide(x)[0], y, guide(y)[0]),
    ),
    "distillation, queue": (
        lambda t, **k: losses.DistillationLoss(t, 0.2, **k),
        lambda f, x, y, l: f(x, x.detach().sin(), queue=torch.eye(4, dtype=x.dtype)[:3]),
    ),
    "triplet": (lambda t, **k: losses.TripletLoss(**k), lambda f, x, y, l: f(x, l)),
    "triplet, hard": (
        lambda t, **k: losses.TripletLoss(mining="hard", distance="euclidean", **k),
        lambda f, x, y, l: f(x, l),
    ),
}


class Model(nn.Module):
    """A linear encoder and a loss."""

    def __init__(self, name, **options):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weight = nn.Parameter(torch.randn(6, 4, generator=generator, dtype=torch.float64))
        make, self.call = CASES[name]
        self.loss = make(LearnableTemperature(0.3).double(), **options)

    def forward(self, x, y, labels):
        return self.call(self.loss, x @ self.weight, y @ self.weight, labels)


def batch(n=12):
    generator = torch.Generator().manual_seed(2)
    draw = [torch.randn(n, 6, generator=generator, dtype=torch.float64) for _ in range(2)]
    return *draw, labels_of(n)


def learned(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def alone(name):
    """Returns (loss, parameter gradients) of one process with the whole batch."""
    model = Model(name, gather=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoulombWarning)
        loss = model(*batch())
    loss.backward()
    return loss.detach(), learned(model)


def together(sizes, gather_elements):
    """Returns, in each process: name → (loss, gradients), averaged over processes."""
    from coulomb.similarity import collectives

    collectives.GATHER_ELEMENTS = gather_elements
    matrix.TILE = 5
    rank, world = dist.get_rank(), dist.get_world_size()
    start = sum(sizes[:rank])
    mine = [part[start : start + sizes[rank]] for part in batch()]
    out = {}
    for name in CASES:
        model = Model(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoulombWarning)
            loss = model(*mine)
        loss.backward()
        values = {"loss": loss.detach(), **learned(model)}
        for value in values.values():
            dist.all_reduce(value)
            value /= world
        out[name] = values.pop("loss"), values
    return out


def wrapped(sizes):
    """Returns the gradients by DistributedDataParallel."""
    rank = dist.get_rank()
    start = sum(sizes[:rank])
    model = DistributedDataParallel(Model("NTXent", gather=True))
    loss = model(*(part[start : start + sizes[rank]] for part in batch()))
    loss.backward()
    return {name.removeprefix("module."): grad for name, grad in learned(model).items()}
