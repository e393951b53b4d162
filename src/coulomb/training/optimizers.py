"""Which parameters decay, and how they are updated."""

import torch
from torch import nn

from coulomb.errors import InputError
from coulomb.runs.config import Config
from coulomb.training.lars import LARS


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Groups: weights that decay; norms, biases and other vectors or scalars that never do (nor adapt under LARS).

    Submodules that the model names in ``constant_lr`` (SimSiam's predictor) are in groups of their own, ``constant_lr=True``:
    the schedule leaves their learning rate alone.
    """
    kept = [getattr(model, name) for name in getattr(model, "constant_lr", ())]
    constant = {id(p) for part in kept for p in part.parameters()}
    groups = []
    for is_constant in (False, True):
        trained = [p for p in model.parameters() if p.requires_grad and (id(p) in constant) is is_constant]
        for decays in (True, False):
            chosen = [p for p in trained if (p.ndim > 1) is decays]
            decay = weight_decay if decays else 0.0
            groups.append({"params": chosen, "weight_decay": decay, "constant_lr": is_constant})
    return [group for group in groups if group["params"]]


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """SGD with momentum, AdamW or LARS, by ``config.optimizer``.

    Raises:
        InputError: there is nothing to train.
    """
    groups = parameter_groups(model, config.weight_decay)
    if not groups:
        raise InputError(f"method={config.method!r}: has no parameters to train; keep the encoder as an attribute")
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr)
    if config.optimizer == "lars":
        for group in groups:
            group["adapt"] = group["params"][0].ndim > 1
        return LARS(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
