"""The recipe of a run on columns: settings by what its towers train and on how many rows."""

import math
from dataclasses import replace
from typing import Any

from coulomb.ground.machine import fast_bf16
from coulomb.methods import METHODS, PAIR_METHODS
from coulomb.methods.options import complete_options
from coulomb.models.build_pair import pair_facts
from coulomb.training.plan.config import Config
from coulomb.training.plan.towers import KINDS, TowerPlan

LEAST_TEMPERATURE = 0.01  # of method clip, its option's default


def complete(
    named: dict[str, Any],
    asked: Config,
    towers: tuple[TowerPlan, ...],
    rows: int,
    *,
    several: bool,
    negatives: bool = False,
) -> Config:
    """Completes the configuration: settings by the towers and the number of pairs, overridden by the options ``named``."""
    values = settings(towers, rows, named.get("batch_size"), named.get("epochs"), several=several)
    facts = next((pair_facts(tower.encoder) for tower in towers if tower.pair), None)
    sigmoid = facts is not None and facts.bias is not None and not negatives  # as the weights were trained
    default = "simclr" if not several else "siglip" if sigmoid else "clip"
    method = str(named.get("method") or default)
    found = PAIR_METHODS.get(method) if several else METHODS.get(method)
    own = named.get("method_options", {})
    if facts is not None:  # where the training of the weights ended
        values["temperature"] = max(facts.temperature, own.get("least_temperature", LEAST_TEMPERATURE))
        if method == "siglip":
            bias = {} if facts.bias is None else {"bias": facts.bias}
            own = {"scale": 1 / facts.temperature} | bias | own
    chosen = {
        "method": method,
        "encoder": ",".join(f"{name}={tower.encoder}" for tower in towers for name in tower.columns),
        "tune": ",".join(f"{name}={tower.tune}" for tower in towers for name in tower.columns),
        "method_options": complete_options(method, found, own) if found is not None else own,
    }
    taken = {name: value for name, value in named.items() if name not in chosen}
    return replace(asked, **values | taken | chosen)


def settings(
    towers: tuple[TowerPlan, ...], rows: int, batch: int | None, epochs: int | None, *, several: bool
) -> dict[str, Any]:
    """Returns the settings that depend on what is trained, on how many rows, and on ``batch`` and ``epochs`` if given.

    ==============================  =========  ==============  =========================
    what is trained                 lr         batch           epochs
    ==============================  =========  ==============  =========================
    linear maps of cached features  1e-4       up to 1,024     50 updates, more from 1,000 rows on
    static token vectors            3e-2       up to 2,048     by rows
    a transformer from weights      5e-5       up to 128       by rows
    a network from random weights   1e-3       up to 512       by rows
    ==============================  =========  ==============  =========================
    """
    trained = [tower for tower in towers if not tower.cached]
    if not trained:
        lr, most, updates = 1e-4, 1024, max(50, rows // 20)
    elif all(tower.encoder.startswith("static") for tower in trained):
        lr, most, updates = 3e-2, 2048, 150
    elif any(not tower.weights for tower in trained):
        lr, most, updates = 1e-3, 512, 3000
    else:
        lr, most, updates = 5e-5, 128, 1500
    if batch is None:
        batch = max(2, min(most, rows if several else rows // 2))
    if epochs is None:
        epochs = max(1, min(200 if trained else 1000, math.ceil(updates * batch / max(rows, 1))))
    return {
        "batch_size": batch,
        "epochs": epochs,
        "lr": lr,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "warmup_epochs": epochs / 20,
        "temperature": 0.07 if several else KINDS[towers[0].kind].temperature,  # CLIP
        "embedding_dim": 512 if several else 128,
        "n_views": 1 if several else 2,
        "cached_views": 4,
        "views": "captioned",
        "knn_every": max(1, epochs // 10),
        "precision": "bf16" if trained and fast_bf16() else "32",
    }
