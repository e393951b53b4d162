"""Low-rank adaptation (Hu et al., 2022) of linear layers and convolutions, by peft; merged into plain weights for saving."""

import copy
import inspect
import re
from typing import Any

import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator, seeded_initialization
from coulomb.models.encoder import Encoder

LARGEST_DIFFERENCE = 1e-3  # between features of the adapted and the merged network, relative to their largest


def add_lora(encoder: Encoder, rank: int, seed: int = 0) -> str:
    """Adds B·A of rank R to the weight of every linear layer and convolution of the backbone, in place; only A and B train.

    B is zero at first, so that the features do not change. A is drawn from ``seed``. The additions are not scaled (α = R). For
    a convolution, A has its kernel and R output channels, and B is 1×1. Grouped and depthwise convolutions are left as they
    are: a low-rank addition to them is larger than their weight or cannot be merged; so are layers whose class cannot be
    built like `torch.nn.Conv2d`, and layers that the forward pass does not call, such as the projections of
    `torch.nn.MultiheadAttention`.

    Returns:
        How many layers of which kind are adapted and left as they are, for the log.

    Raises:
        InputError: peft is missing, no layer can be adapted, or additions to the weights do not have the effect of the
            adapted layers (for example in layers that standardize their weight).
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise InputError(f"tune='lora:{rank}': needs peft: pip install 'coulomb[lora]'") from None
    layers = {name: part for name, part in encoder.backbone.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)}
    called = _called(encoder)
    adapted = {name: part for name, part in layers.items() if name in called and _is_adaptable(part)}
    if not adapted or "" in adapted:
        raise InputError(
            f"tune='lora:{rank}': {encoder.name} has no linear layer or convolution in it that can be adapted; "
            "use tune=last:1 or tune=all"
        )
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules="|".join(map(re.escape, adapted)))
    with seeded_initialization(seed, "lora"):
        inject_adapter_in_model(config, encoder.backbone)
    for name, parameter in encoder.backbone.named_parameters():
        parameter.requires_grad_(".lora_A." in name or ".lora_B." in name)
    _require_mergeable(encoder, rank)
    convolutions = sum(isinstance(part, nn.Conv2d) for part in adapted.values())
    left = len(layers) - len(adapted)
    return f"{len(adapted) - convolutions} linear layers and {convolutions} convolutions adapted with rank {rank}" + (
        f", {left} (grouped convolutions, or not called) left as they are" if left else ""
    )


def _is_adaptable(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear):
        return True
    if getattr(layer, "groups", 1) > 1:
        return False
    try:
        inspect.signature(type(layer)).bind(1, 1, (1, 1), (1, 1), 0, bias=False)
        inspect.signature(type(layer)).bind(1, 1, (1, 1), (1, 1), groups=1, bias=False)
    except TypeError:
        return False
    return True


@torch.no_grad()
def _called(encoder: Encoder) -> set[str]:
    """Returns the names of the backbone's modules that are called for a cell."""
    called: set[str] = set()
    trial = copy.deepcopy(encoder).cpu().eval()
    for name, part in trial.backbone.named_modules():
        part.register_forward_pre_hook(lambda module, inputs, name=name: called.add(name))
    trial(trial.trial_cells(1))
    return called


def adapted_layers(module: nn.Module) -> dict[str, Any]:
    """Returns the layers of peft in a module by name."""
    return {name: part for name, part in module.named_modules() if hasattr(part, "lora_A")}


def merge_lora(encoder: Encoder) -> Encoder:
    """Makes the additions part of plain weights, in place, with the keys of an unadapted encoder; returns the encoder."""
    for name, layer in adapted_layers(encoder).items():
        layer.merge(safe_merge=True)
        parent, _, attribute = name.rpartition(".")
        setattr(encoder.get_submodule(parent), attribute, layer.get_base_layer())
    return encoder


def merged(encoder: Encoder) -> Encoder:
    """Returns a copy by `merge_lora`; an encoder without additions is returned itself."""
    return merge_lora(copy.deepcopy(encoder)) if adapted_layers(encoder) else encoder


@torch.no_grad()
def _require_mergeable(encoder: Encoder, rank: int) -> None:
    """Raises `InputError` unless random additions have the same effect before and after merging."""
    trial = copy.deepcopy(encoder).cpu().eval()
    draw = generator(0, "lora trial")
    for name, parameter in trial.named_parameters():
        if ".lora_B." in name:
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw) / rank)
    cells = trial.trial_cells(2, draw)
    features = trial(cells)
    after = merge_lora(trial)(cells)
    difference = float((features - after).abs().max() / features.abs().max().clamp_min(1e-12))
    if not difference <= LARGEST_DIFFERENCE:
        raise InputError(
            f"tune='lora:{rank}': {encoder.name} uses its weights in another way than torch's linear layers and convolutions "
            f"(after merging, features differ by {difference:.1g}); use tune=last:1 or tune=all"
        )
