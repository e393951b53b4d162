"""Settings of runs whose backbone stays frozen (``tune``: head, none or whiten), from the recipe of their method."""

import dataclasses
import logging
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.training.plan.config import Config

log = logging.getLogger("coulomb")

HEAD = ("embedding_dim", "head_layers", "head_hidden_dim")  # options of a projection head, which there is none of
EPOCHS = 20  # of an adapter; 60 were no better on 1,712 photos of rooms
NEIGHBORS, OF_IMAGES = 10, 0.01  # at most this share of the training images, since small classes have few members


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
    recipe = dataclasses.replace(recipe, tune=kind, warmup_epochs=0.0, head_epochs=0.0, stay_close=0.0, whitening=0.0)
    if needs_labels and options.get("neighbors"):
        raise InputError(
            f"neighbors={options['neighbors']!r}: the positives of method={options.get('method')!r} are chosen by labels; "
            "leave it out, or use a method without labels, such as simclr"
        )
    if kind == "whiten":
        fixed = {option.name for option in dataclasses.fields(Config) if option.metadata["panel"] == "Optimization"}
        fixed |= {"method", "temperature", *HEAD[1:], "n_views", "knn_every", "pulse"}
        recipe = dataclasses.replace(recipe, epochs=0, knn_every=0, embedding_dim=256, whitening=1.0)
    else:
        fixed = set(HEAD)
        values: dict[str, Any] = {
            "epochs": EPOCHS,
            "knn_every": EPOCHS // 5,
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
        recipe = dataclasses.replace(recipe, **values)
    if unused := [name for name, value in options.items() if name in fixed and (name, value) != ("method", "simclr")]:
        why = "trains nothing" if kind == "whiten" else "has a linear adapter instead of a head"
        log.warning("%s: not used, because tune=%s %s", ", ".join(unused), kind, why)
    kept = {name: value for name, value in options.items() if name not in fixed or name == "method"}
    return recipe, kept
