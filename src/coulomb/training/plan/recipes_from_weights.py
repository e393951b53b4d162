"""Recipes for a training that begins from weights that exist: short, with small learning rates and mild crops."""

from dataclasses import replace
from typing import Any

from coulomb.training.plan.config import Config
from coulomb.training.plan.prepare import Facts
from coulomb.training.plan.recipes import find_recipe
from coulomb.training.plan.start import shown_in_time

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
        precision="32" if facts.start.encoder == "lite0" else small.precision,  # bf16 slows its depthwise convolutions
        method_options=own,
        **values,
    )
