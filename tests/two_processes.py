"""Trains several methods one after the other, on one process or two: ``python two_processes.py DATA OUT DEVICES``.

Runs that are in OUT already are continued.

Nothing in it depends on which process an image is in: views without randomness, and no batch norm.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import coulomb
from coulomb.kinds.image.views import OwnViews
from coulomb.negatives import MemoryBank, Queue
from coulomb.training.module import ContrastiveTraining

# Queues hold whole batches: the images of one are in another order on two processes, and the oldest go first.
RUNS = {
    "simclr": {},
    "moco": {"queue_size": 64, "momentum": 0.9, "symmetric": True},
    "paco": {"queue_size": 48, "momentum": 0.9},
    "paco generalized": {"queue_size": 64, "generalized": True},
    "supcon": {},
    "moco micro-batches": {"queue_size": 64, "momentum": 0.9},
    "siglip micro-batches": {},
    "triplet": {"mining": "all", "margin": 0.5},
    "softmax": {},
    "instdisc": {"full": True},
}


class Shifted(OwnViews):
    """View k is the picture moved by k pixels."""

    def __init__(self):
        super().__init__(lambda images, generator: images, size=16, channels=1)

    def __call__(self, canvas, generator, n=2, aspect=None):
        return [self.plain(canvas, aspect).roll(k, 3) for k in range(n)]


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.Tanh())


def train(data, out, devices):
    """``OUT/METHOD/metrics.jsonl``, and ``OUT/METHOD/stored.RANK`` with what queue and bank hold at the end."""

    def store(module):
        stored = {
            name: value
            for name, part in module.method.named_modules()
            if isinstance(part, Queue | MemoryBank)
            for name, value in part.state_dict().items()
        }
        torch.save(stored, Path(out) / name / f"stored.{module.global_rank}")

    ContrastiveTraining.on_train_end = store
    for name in RUNS:
        if (folder := Path(out) / name).exists():
            own = {"encoder": encoder(), "views": Shifted(), "evaluate": False, "progress": False}
            coulomb.train(resume_from=folder, devices=devices, **own)
        else:
            coulomb.train(data, out=folder, evaluate=False, progress=False, **options(name, devices))


def options(name, devices):
    """The options of a run."""
    return {
        "method": name.split()[0],
        "method_options": RUNS[name],
        "encoder": encoder(),
        "views": Shifted(),
        "epochs": 4,
        "batch_size": 16 // devices,
        "micro_batch": 5 if "micro-batches" in name else None,
        "devices": devices,
        "embedding_dim": 8,
        "head_layers": 1,
        "optimizer": "sgd",
        "lr": 0.1,
        "weight_decay": 0.0,
        "knn_every": 2,
        "workers": 0,
        "precision": "32",
        "accelerator": "cpu",
    }


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
