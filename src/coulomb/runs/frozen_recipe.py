"""Settings of runs whose backbone stays frozen (``tune``: head, none or whiten), from the recipe of their method."""

import dataclasses
import logging
from typing import Any

from coulomb.runs.config import Config

log = logging.getLogger("coulomb")

ADAPTER = ("embedding_dim", "head_layers", "head_hidden_dim")  # options of the adapter, whatever the method
EPOCHS = 20  # of an adapter; on 1,712 photos of rooms and on 5,000 images of CIFAR-10, 60 were worse


def for_frozen(
    kind: str, recipe: Config, options: dict[str, Any], images: int, needs_labels: bool
) -> tuple[Config, dict[str, Any]]:
    """Returns recipe and options of a run that keeps the backbone frozen.

    ``head`` and ``none`` train a linear adapter of 256 dimensions by AdamW, without labels at τ = .05: on features of
    CIFAR-10 by ``lite0``, kNN fell below that of whitening for τ of .1 and more. ``whiten`` trains nothing: options of the
    training are left out, with a warning.
    """
    recipe = dataclasses.replace(recipe, warmup_epochs=0.0, head_epochs=0.0, stay_close=0.0)
    if kind != "whiten":
        values: dict[str, Any] = {"epochs": EPOCHS, "knn_every": EPOCHS // 5}
        values["batch_size"] = min(256, max(2, images // 4))
        values |= {"embedding_dim": 256, "head_layers": 1, "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.0}
        values |= {} if needs_labels else {"temperature": 0.05}
        return dataclasses.replace(recipe, **values), options
    fixed = {option.name for option in dataclasses.fields(Config) if option.metadata["panel"] == "Optimisation"}
    fixed |= {"method", "temperature", "head_layers", "head_hidden_dim", "n_views", "knn_every", "pulse"}
    if unused := [name for name, value in options.items() if name in fixed and (name, value) != ("method", "simclr")]:
        log.warning("%s: not used, because tune=whiten trains nothing", ", ".join(unused))
    kept = {name: value for name, value in options.items() if name not in fixed or name == "method"}
    return dataclasses.replace(recipe, epochs=0, knn_every=0, embedding_dim=256), kept
