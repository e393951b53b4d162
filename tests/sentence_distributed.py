"""A step of the losses for sentence-transformers in a group of processes, each with its part of the batch."""

import copy
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sentence_models import COLUMNS, features, gradients, tiny_model
from torch_versions import BUFFERS_TWICE

JOINT = {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")}
HARD = {"hardness_mode": "in_batch_negatives", "hardness_strength": 3.0}
# name → (class, options, number of columns)
CASES = {
    "plain": ("MultipleNegativesRankingLoss", {}, 2),
    "joint": ("MultipleNegativesRankingLoss", JOINT, 3),
    "cached": ("CachedMultipleNegativesRankingLoss", {"mini_batch_size": 2}, 2),
    "cached joint": ("CachedMultipleNegativesRankingLoss", {"mini_batch_size": 2, **JOINT, **HARD}, 4),
    "cached guided": ("CachedGISTEmbedLoss", {"mini_batch_size": 2, "margin": 0.02, "temperature": 0.1}, 3),
    "labels": ("SupConLoss", {"temperature": 0.1}, 1),
    "matryoshka": ("CachedMultipleNegativesRankingLoss", {"mini_batch_size": 2, **JOINT}, 3),
    "cached labels": ("SupConLoss", {"temperature": 0.1, "mini_batch_size": 2}, 2),
}
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2])


def step(folder, name, library, gather):
    """Returns (loss, gradients, number of exchanges); the loss is averaged over processes, gradients by DDP."""
    together = dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    model = tiny_model(Path(folder)).double()
    for parameter in (
        p for name, p in model.named_parameters() if "pooler" in name
    ):  # the mean of tokens does not use it
        parameter.requires_grad_(False)
    kind, options, columns = CASES[name]
    if kind == "CachedGISTEmbedLoss":
        options = {"guide": copy.deepcopy(model).eval(), **options}
    loss = inner = getattr(library, kind)(model, gather_across_devices=gather, **options)
    if name == "matryoshka":
        loss = library.MatryoshkaLoss(model, inner, [32, 8, 3], [1, 2, 0.5])
    exchanges = []
    if together:
        wrapped = DistributedDataParallel(model, **BUFFERS_TWICE)

        def count(state, bucket):
            exchanges.append(bucket.index())
            return dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future().then(lambda f: f.value()[0])

        wrapped.register_comm_hook(None, count)
        loss.model = inner.model = wrapped
    share = slice(rank * len(LABELS) // world, (rank + 1) * len(LABELS) // world)
    value = loss(features(model, [column[share] for column in COLUMNS[:columns]]), LABELS[share])
    value.backward()
    value = value.detach().clone()
    if together:
        dist.all_reduce(value)
    return float(value) / world, gradients(model), exchanges


def steps(folder):
    """Every case with the losses here, which compare with the batches of all processes."""
    from coulomb.integrations import sentence_transformers as ours

    return {name: step(folder, name, ours, dist.is_initialized()) for name in CASES}


def steps_alone(folder):
    """(theirs, ours) for every case that both have, each process with its own batch."""
    from sentence_transformers.sentence_transformer import losses as theirs

    from coulomb.integrations import sentence_transformers as ours

    both = [name for name, (kind, *_) in CASES.items() if hasattr(theirs, kind)]
    return {name: tuple(step(folder, name, library, False) for library in (theirs, ours)) for name in both}
