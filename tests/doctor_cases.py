"""Synthetic runs for the tests of the doctor."""

import math

from coulomb.evaluation.doctor import Evidence

NO_SIGNAL = math.log(511)


def evidence(method="simclr", steps=100, options=None, look=None, **parts):
    """A healthy run with some parts replaced: ``step`` are figures of every update, ``look`` of the live evaluation."""
    config = {"method": method, "temperature": 0.2, "embedding_dim": 64, "n_views": 2, "warmup_epochs": 2.0}
    config |= {
        "batch_size": 256,
        "lr": 0.004,
        "epochs": 20,
        "weight_decay": 1e-4,
        "views": "digits",
        "view_options": {},
    }
    config |= {"method_options": options or {}} | parts.pop("config", {})
    step = {
        "loss": 4.0,
        "no_signal": NO_SIGNAL,
        "update_ratio": 0.02,
        "top1_gradient": 0.04,
        "top10pct_gradient": 0.7,
        "negatives": 510.0,
    }
    step |= {"false_negative_gradient": 0.5} | parts.pop("step", {})
    seen = {"embedding_std": 0.97, "embedding_rank": 25.0, "separation": 0.95, "knn": 0.98} | (look or {})
    lines = [{"step": n, "epoch": (n + 4) // 5, **step} for n in range(1, steps + 1)]
    lines.insert(0, {"step": 0, "epoch": 0, **seen})
    lines.append({"step": steps, "epoch": steps // 5, **seen})
    data = {"train": 1438, "class_counts": [144] * 10}
    data |= {
        "copies": {"images": 1438, "exact": 0, "near": 0, "blank": 0},
        "leaks": {"images": 359, "exact": 0, "near": 0},
    }
    network = {"distance": 0.7, "growth": 1.2, "pixel_retrieval": 0.04, "matcher_separation": 0.8, "scale_change": 0.0}
    network |= {"identical_views": 0.0, "transplant": {"region": "top", "share": 0.1}}
    network |= {"labels": {"pixels": 0.9, "features": 0.95, "chance": 0.1, "images": 359}}
    network |= parts.pop("network", {})
    parts.setdefault("evaluation", {"verdict": {"level": "learned_well", "sentence": "98% are right.", "next": []}})
    return Evidence(config=config, metrics=lines, data=data | parts.pop("data", {}), network=network, **parts)
