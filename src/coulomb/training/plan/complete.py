"""The complete configuration of a run on images: the recipe of method and preset, overridden by the options of the user."""

import logging
from dataclasses import replace
from typing import Any

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.methods import Method
from coulomb.methods.options import SHARED, complete_options, short_name, used_options
from coulomb.models import has_weights
from coulomb.models.build import require_encoder, takes_norm, takes_width
from coulomb.models.tuning import Tune
from coulomb.models.user_code import is_user_code, with_absolute_path
from coulomb.training.network import blank_encoder
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.recipes import find_recipe
from coulomb.training.plan.recipes_from_weights import for_frozen, from_weights

log = logging.getLogger("coulomb")


def complete(named: dict[str, Any], asked: Config, method: type[Method], facts: Facts, *, own_encoder: bool) -> Config:
    """Completes the configuration: the recipe of method and preset, overridden by the options ``named``, here ``asked``."""
    recipe = find_settings(asked.method, asked.preset, facts)
    kind = Tune.parse(asked.tune or recipe.tune).frozen_kind
    if kind is not None:
        recipe, named = for_frozen(kind, recipe, named, facts.images, method.needs_labels)
    taken = used_options(method) | ({"embedding_dim"} if kind == "whiten" else set())
    if unused := [name for name in SHARED if name in named and name not in taken]:
        log.warning("%s: not used, because %s has no such option", ", ".join(unused), short_name(asked.method))
    less: dict[str, Any] = {}  # what the recipe has for other epochs and another encoder
    if "epochs" in named:  # a shorter run: at most a tenth of it is warm-up of any kind, with five live evaluations
        less = {
            "warmup_epochs": min(recipe.warmup_epochs, named["epochs"] / 10),
            "head_epochs": min(recipe.head_epochs, named["epochs"] / 10),
            "knn_every": max(1, min(recipe.knn_every or 1, named["epochs"] // 5)),
        }
    if named.get("encoder") and not own_encoder and not takes_norm(named["encoder"]):
        less["encoder_width"] = None  # the recipe's width is for convnets and resnets
    own_options = recipe.method_options | named.get("method_options", {})
    views = dict(recipe.view_options) if asked.views is None else {}
    if own_encoder or named.get("encoder", recipe.encoder) != recipe.encoder:
        views.pop("side", None)  # another encoder may take images of one size only
    nested = {
        "method": with_absolute_path(asked.method) if is_user_code(asked.method) else asked.method,
        "method_options": complete_options(asked.method, method, own_options),
        "view_options": views | asked.view_options,
    }
    return replace(recipe, **less | named | nested)


def find_settings(method: str, preset: str, facts: Facts) -> Config:
    """Returns the recipe of a method and preset; with ``small``, an encoder with weights has a recipe of its own."""
    if preset == "small" and facts.start.encoder is not None:
        return from_weights(method, facts)
    return find_recipe(method, preset)(facts)


def check_encoder(config: Config, facts: Facts, module: nn.Module | None) -> None:
    """Raises `InputError` if the encoder does not exist, or an option does not fit it; before a folder is created."""
    if module is None:
        require_encoder(str(config.encoder))
        if config.encoder_width is not None and not takes_width(config.encoder):
            raise InputError(
                f"encoder_width={config.encoder_width}: encoder={config.encoder!r} has no such option; leave it out"
            )
        if config.norm != "batch" and not takes_norm(config.encoder):
            raise InputError(
                f"norm={config.norm!r}: encoder={config.encoder!r} has no such option; leave it out, or use resnet18"
            )
        require_weights(config)
    elif config.norm != "batch":
        raise InputError(f"norm={config.norm!r}: your own encoder has its own norm layers; leave it out")
    if config.tune not in (None, "all"):
        blank_encoder(config, facts, module)


def require_weights(config: Config) -> None:
    """Raises `InputError` if an option keeps parts of the encoder as they are at the start, and they are random."""
    if has_weights(config.encoder):
        return
    whole = {"tune": (None, "all"), "norm_statistics": ("moving",), "stay_close": (0,), "head_epochs": (0,)}
    for name, values in whole.items():
        if (value := getattr(config, name)) not in values:
            raise InputError(
                f"{name}={value!r}: encoder={config.encoder!r} has random weights, which are not worth keeping; "
                f"leave {name} out, or start from weights, such as lite0"
            )
