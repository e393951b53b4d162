"""Which parameters decay, and how they are updated."""

import torch
from torch import nn

from coulomb.training.config import Config
from coulomb.training.lars import LARS


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups: weights that decay; norms, biases and other vectors or scalars that never do (nor adapt under LARS)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """SGD with momentum, AdamW or LARS, by ``config.optimizer``."""
    groups = parameter_groups(model, config.weight_decay)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr)
    if config.optimizer == "lars":
        for group in groups:
            group["adapt"] = group["params"][0].ndim > 1
        return LARS(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
