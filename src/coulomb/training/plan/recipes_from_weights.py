"""Recipes for a training that begins from weights that exist: of the whole network, or of an adapter behind the frozen one."""

import logging
from dataclasses import fields, replace
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.models.build import RANDOM
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.recipes import find_recipe
from coulomb.training.plan.start import shown_in_time

log = logging.getLogger("coulomb")

MILD: dict[str, Any] = {"crop_area": [0.4, 1.0]}
MILD_COLOR = MILD | {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
MOST_EPOCHS, LEAST_EPOCHS = 30, 2
LEAST_BATCH = 16
FORWARD = 3  # views that pass through the network in the time in which one of them is trained on

# First for all methods, then what differs. Without labels, an adapter behind the frozen network improves kNN and few-shot
# accuracy in a minute (docs/experiments/starts.md); labels can teach the network itself.
SHARED: dict[str, Any] = {
    "tune": "none",
    "layer_decay": 0.75,
    "norm_statistics": "moving",
    "head_epochs": 0.0,
    "stay_close": 0.0,
    "whitening": 0.0,  # of these features it costs more few-shot accuracy than it gains
    "optimizer": "adamw",
    "lr": 3e-4,
    "weight_decay": 1e-4,
    "schedule": "cosine",
    "batch_size": 128,  # up to 96 pixels; fewer above, so that the memory of a batch stays at about 5 GiB
    "temperature": 0.2,
}
BY_METHOD: dict[str, dict[str, Any]] = {
    "simclr": {"lr": 3e-4, "temperature": 0.2},
    "dcl": {"lr": 3e-4, "temperature": 0.2},
    "debiased": {"lr": 3e-4, "temperature": 0.5},
    "hard": {"lr": 3e-4, "temperature": 0.5},
    "moco": {"lr": 3e-4, "temperature": 0.2},
    "instdisc": {"lr": 3e-4, "temperature": 0.2},
    "siglip": {"lr": 3e-4},
    "byol": {"lr": 3e-4},
    "simsiam": {"lr": 3e-4},
    "vicreg": {"lr": 3e-4},
    "barlow": {"lr": 3e-4},
    "supcon": {"tune": "all", "lr": 1e-3, "temperature": 0.1},
    "triplet": {"tune": "all", "lr": 3e-4},
    "softmax": {"tune": "all", "lr": 1e-3},
    "balanced_softmax": {"tune": "all", "lr": 1e-3},
    "arcface": {"tune": "all", "lr": 1e-3},
    "paco": {"tune": "all", "lr": 1e-3, "temperature": 0.2},
}

HEAD = ("embedding_dim", "head_layers", "head_hidden_dim")  # options of a projection head, which there is none of
ADAPTER_EPOCHS = 20  # 60 were no better on 1,712 photos of rooms
NEIGHBORS, OF_IMAGES = 10, 0.01  # at most this share of the training images, since small classes have few members


def from_weights(method: str, facts: Facts) -> Config:
    """Returns the settings of a method for an encoder with weights: about ten minutes on two CPU cores with lite0.

    Options of the method and its head are the same as in its small recipe; a queue holds at most half of the training images,
    so that it never has a key of the same image from the epoch before.
    """
    small = find_recipe(method, "small")(facts)
    shown = shown_in_time(facts.image_size)
    epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, round(shown / facts.images)))
    values = SHARED | BY_METHOD.get(method, {})
    most = values["batch_size"]
    fitting = max(LEAST_BATCH, int(most * (96 / facts.image_size) ** 2) // 8 * 8)
    values["batch_size"] = min(most, fitting, max(2, facts.images // 4))
    own = dict(small.method_options)
    if "queue_size" in own:
        own["queue_size"] = min(own["queue_size"], max(values["batch_size"], facts.images // 2))
    views, mild = str(small.views), MILD
    if facts.digits:
        mild = {}
    elif facts.channels == 3:
        views, mild = "natural", MILD_COLOR
    return replace(
        small,
        encoder=facts.start.encoder,
        encoder_width=None,
        views=views,
        view_options=dict(mild),
        epochs=epochs,
        warmup_epochs=epochs / 10,
        knn_every=max(1, epochs // 5),
        cached_views=min(small.cached_views, max(small.n_views, round(2 * FORWARD * shown / facts.images))),
        precision="32"
        if facts.start.encoder in RANDOM
        else small.precision,  # bf16 slows lite0's depthwise convolutions
        method_options=own,
        **values,
    )


def for_frozen(
    kind: str, recipe: Config, options: dict[str, Any], images: int, needs_labels: bool
) -> tuple[Config, dict[str, Any]]:
    """Returns recipe and options of a run that keeps the backbone frozen.

    ``head`` and ``none`` train a linear adapter by AdamW. Without labels, ``none`` takes as positives views of an image's
    ten nearest neighbors by the untouched features, as NNCLR does with learned ones (Dwibedi et al., 2021): other views
    of the same image push class mates apart. ``whiten`` trains nothing. Options without effect are left out, with a warning.

    Raises:
        InputError: the option ``neighbors`` with a method that needs labels.
    """
    recipe = replace(recipe, tune=kind, warmup_epochs=0.0, head_epochs=0.0, stay_close=0.0, whitening=0.0)
    if needs_labels and options.get("neighbors"):
        raise InputError(
            f"neighbors={options['neighbors']!r}: the positives of method={options.get('method')!r} are chosen by labels; "
            "leave it out, or use a method without labels, such as simclr"
        )
    if kind == "whiten":
        fixed = {option.name for option in fields(Config) if option.metadata["panel"] == "Optimization"}
        fixed |= {"method", "temperature", *HEAD[1:], "n_views", "knn_every", "pulse"}
        recipe = replace(recipe, epochs=0, knn_every=0, embedding_dim=256, whitening=1.0)
    else:
        fixed = set(HEAD)
        values: dict[str, Any] = {
            "epochs": ADAPTER_EPOCHS,
            "knn_every": ADAPTER_EPOCHS // 5,
            "batch_size": min(256, max(2, images // 4)),
            "optimizer": "adamw",
            "lr": 1e-3,
            "weight_decay": 0.0,
            "precision": "32",
        }
        if not needs_labels:
            values["temperature"] = 0.07
            if kind == "none" and options.get("n_views", recipe.n_views) > 1:
                values["neighbors"] = min(NEIGHBORS, max(1, int(OF_IMAGES * images)))
        recipe = replace(recipe, **values)
    if unused := [name for name, value in options.items() if name in fixed and (name, value) != ("method", "simclr")]:
        why = "trains nothing" if kind == "whiten" else "has a linear adapter instead of a head"
        log.warning("%s: not used, because tune=%s %s", ", ".join(unused), kind, why)
    kept = {name: value for name, value in options.items() if name not in fixed or name == "method"}
    return recipe, kept
