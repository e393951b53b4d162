"""Run folders as training writes them, made from scikit-learn's digits and invented curves."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

from coulomb.evaluation.comparison import BASELINES, VIEWS, comparison_row, family_mean, group_families, with_share
from coulomb.evaluation.drift import drift_note
from coulomb.evaluation.samples import describe_samples
from coulomb.evaluation.verdict import verdict

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"quotes' & ampersands;",
    "\u202egpj.eman\u2028\x00\u0007",
    "лось 🦌 ñandú",
    "long-" * 200,
    "{{ 7 * 7 }} {% raw %}",
    "</style><style>*{display:none}",
]


def protocol(n: int) -> dict:
    knn, few = {"k": 200, "sigma": 0.1}, {"draws": 20, "classes_short_of_images": {"1": 0}}
    return {"knn": knn, "few_shot": few, "seed": 0, "train": n * 4, "test": n, "versions": {"torch": "2.13.0"}}


def result(knn: float, linear: float, few: tuple[float, float, float], retrieval: float = 0.9) -> dict:
    shots = {
        shot: {"mean": mean, "std": std}
        for shot, mean, std in zip("1 5 10".split(), few, (0.031, 0.011, 0.007), strict=True)
    }
    return {"knn": knn, "linear": linear, "few_shot": shots, "view_retrieval": retrieval, "protocol": protocol(360)}


EVALUATION = {
    "trained": result(0.9806, 0.9861, (0.762, 0.934, 0.956)),
    "random_init": result(0.894, 0.931, (0.541, 0.710, 0.792)),
    "raw_pixels": result(0.961, 0.953, (0.651, 0.865, 0.902)),
    "protocol": protocol(360),
}
UNLABELED = {
    "trained": {"knn": None, "linear": None, "few_shot": None, "view_retrieval": 0.931},
    "random_init": {"knn": None, "linear": None, "few_shot": None, "view_retrieval": 0.402},
    "raw_pixels": {"knn": None, "linear": None, "few_shot": None, "view_retrieval": 0.553},
    "protocol": {"test": 360, "seed": 0},
}


def judged(evaluation: dict, options: dict | None = None) -> dict:
    """Adds the comparison, with intervals of ± 2 points, and the verdict."""
    comparison = []
    for against, name in BASELINES.items():
        if name in evaluation:
            ours, theirs = (accuracies(evaluation[side]) for side in ("trained", name))
            families = group_families([each for each in ours if each != VIEWS] or list(ours))
            rows = {each: row(ours[each], theirs[each]) for each in ours}
            overall = row(*(float(family_mean(families, side)) for side in (ours, theirs)))
            comparison.append(
                {"against": against, "measurements": rows, "overall": with_share(overall, list(families))}
            )
    return evaluation | {"comparison": comparison, "verdict": verdict(comparison, options)}


def row(ours: float, theirs: float) -> dict:
    return comparison_row(ours, theirs, ours - theirs - 0.02, ours - theirs + 0.02, 360)


def accuracies(figures: dict) -> dict[str, float]:
    shots = {f"few_shot_{shot}": found["mean"] for shot, found in (figures["few_shot"] or {}).items()}
    found = {"knn": figures["knn"], "linear": figures["linear"]} | shots | {VIEWS: figures[VIEWS]}
    return {name: value for name, value in found.items() if value is not None}


def training_lines(epochs: int = 30, steps: int = 20, batch: int = 256) -> list[dict]:
    rng = np.random.default_rng(0)
    top, total = math.log(2 * batch - 1), epochs * steps
    return [
        {
            "step": step,
            "epoch": (step - 1) // steps + 1,
            "loss": top - 3.4 * (1 - math.exp(-step / total * 5)) + 0.05 * float(rng.standard_normal()),
            "lr": 1e-3 * 0.5 * (1 + math.cos(math.pi * step / total)),
            "no_signal": top,
            "floor": 1.47,
            "images_per_second": 8000 + 300 * float(rng.standard_normal()),
        }
        for step in range(1, total + 1)
    ]


def measure_lines(epochs: int = 30, every: int = 3) -> list[dict]:
    return [
        {
            "epoch": epoch,
            "knn": 0.98 - 0.09 * math.exp(-epoch / 6),
            "knn_k": 200,
            "alignment": 0.2 + 0.2 * math.exp(-epoch / 8),
            "uniformity": -3.4 + 2.1 * math.exp(-epoch / 7),
            "effective_rank": 44 - 30 * math.exp(-epoch / 9),
            "feature_dim": 128,
            "view_retrieval": 0.95 - 0.6 * math.exp(-epoch / 7),
        }
        for epoch in range(0, epochs + 1, every)
    ]


def digit_samples(n: int) -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = np.random.default_rng(1).permutation(len(digits.images))[:n]
    pixels = np.kron(np.clip(digits.images[chosen] * 16, 0, 255).astype(np.uint8), np.ones((1, 2, 2), dtype=np.uint8))
    flat = digits.data[chosen] - digits.data.mean(0)
    features = (flat @ np.linalg.svd(flat, full_matrices=False)[2][:24].T).astype(np.float16)
    return {
        "thumbnails": np.repeat(pixels[..., None], 3, axis=-1),
        "features": features,
        "labels": digits.target[chosen].astype(np.int64),
        "ids": np.array([f"digits/{i:04d}" for i in chosen]),
    }


def describe(folder: Path, seed: int = 0) -> None:
    """Writes the neighbors, maps and clusters of the samples, as the evaluation does."""
    with np.load(folder / "samples.npz") as stored:
        columns = dict(stored)
    parts = [
        [columns[prefix + name] for prefix in ("", "training_") if prefix + name in columns]
        for name in ("features", "labels")
    ]
    arrays, description = describe_samples(*map(np.concatenate, parts), len(columns["labels"]), seed)
    for name in ("neighbors", "clusters", "map_tsne", "map_umap", "map_pca"):
        columns.pop(name, None)
    np.savez(folder / "samples.npz", **columns, **arrays)
    edit_json(folder / "evaluation.json", samples=description)


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def make_run(folder: Path, n: int = 120) -> Path:
    """A complete, labeled run."""
    folder.mkdir(parents=True)
    config = {
        "data": "digits", "out": f"runs/{folder.name}", "method": "simclr", "encoder": "convnet", "epochs": 30,
        "batch_size": 256, "temperature": 0.2, "lr": 0.001, "seed": 0, "views": "digits", "weight_decay": 1e-4,
        "precision": "32", "devices": 1, "workers": 0, "resume": False, "test": None,
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    data = {
        "source": {"name": "digits", "kind": "digits"}, "train": 1437, "test": 360, "labeled": 1797,
        "classes": [str(i) for i in range(10)], "image_size": 16, "channels": 1, "kind": "digits", "corrupt": [],
        "split": "Stratified split: 20 % of each class held out, seed 0.", "class_counts": [144] * 10,
    }  # fmt: skip
    write_json(folder / "data.json", data)
    write_lines(folder / "metrics.jsonl", training_lines() + measure_lines())
    write_json(folder / "evaluation.json", judged(EVALUATION))
    write_json(
        folder / "environment.json",
        {"coulomb": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "device": "cpu", "threads": 2},
    )
    np.savez(folder / "samples.npz", **digit_samples(n))
    describe(folder)
    rng = np.random.default_rng(2)
    Image.fromarray(rng.integers(0, 255, (160, 360, 3), dtype=np.uint8)).save(folder / "views.png")
    return folder


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def edit_json(path: Path, **changes: object) -> None:
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | changes)


def edit_samples(folder: Path, **changes: np.ndarray) -> None:
    with np.load(folder / "samples.npz") as stored:
        kept = dict(stored)
    np.savez(folder / "samples.npz", **(kept | changes))


def unlabeled(folder: Path) -> None:
    edit_json(folder / "data.json", labeled=0, classes=None)
    write_json(folder / "evaluation.json", judged(UNLABELED))
    write_lines(
        folder / "metrics.jsonl",
        training_lines() + [{k: v for k, v in line.items() if k != "knn"} for line in measure_lines()],
    )
    with np.load(folder / "samples.npz") as stored:
        n = len(stored["labels"])
    edit_samples(folder, labels=np.full(n, -1))
    describe(folder)


def partial(folder: Path) -> None:
    """Some labels are unknown, and one is all that metrics has."""
    with np.load(folder / "samples.npz") as stored:
        labels = stored["labels"].copy()
    labels[::2] = -1
    edit_samples(folder, labels=labels)
    describe(folder)
    write_lines(folder / "metrics.jsonl", training_lines()[:1])


def stopped(folder: Path) -> None:
    """Killed in the middle of a line, before any evaluation."""
    for name in ("evaluation.json", "samples.npz", "views.png"):
        (folder / name).unlink()
    text = "".join(json.dumps(line) + "\n" for line in training_lines()[:130])
    (folder / "metrics.jsonl").write_text(text + '{"step": 130, "ep', encoding="utf-8")


def figures(folder: Path) -> None:
    """All that a run can record: live figures, pulse, doctor, training samples, classes of a long tail."""
    rng = np.random.default_rng(3)
    edges = np.linspace(-1, 1, 41)

    def counts(mean: float, std: float, n: int) -> list[int]:
        return np.histogram(np.clip(rng.normal(mean, std, n), -1, 1), edges)[0].tolist()

    measures = [
        line
        | {
            "positive_similarity": 0.9, "negative_similarity": 0.02, "hardest_similarity": 0.6, "separation": 0.98,
            "tolerance": 0.5, "purity": 0.9, "false_negative_rate": 0.1, "embedding_norm": 3.0, "embedding_rank": 12.0,
            "spectrum": [math.exp(-i / (4 + line["epoch"])) for i in range(64)],
            "similarity_histogram": {
                "edges": edges.tolist(),
                "positive": counts(0.2 + 0.02 * line["epoch"], 0.15, 300),
                "negative": counts(0.02, 0.25, 3000),
                "hardest": counts(0.6, 0.1, 300),
                "same_class": counts(0.4, 0.2, 300),
            },
        }
        for line in measure_lines()
    ]  # fmt: skip
    training = training_lines()
    for line in training[::20]:
        line |= {
            "effective_negatives": 60.0, "negatives": 510, "top1_gradient": 0.08, "top1pct_gradient": 0.2,
            "top10pct_gradient": 0.6, "false_negative_gradient": 0.3, "train_positive_similarity": 0.7,
            "gradient_norm": 1.2, "update_ratio": 2e-3, "drift": 0.01, "queue_age_mean": 4.0,
        }  # fmt: skip
    write_lines(folder / "metrics.jsonl", training + measures)
    doctor = {
        "version": 1, "step": 600, "healthy": False,
        "verdicts": [
            {"name": "temperature-too-low", "severity": "warning", "title": "Few negatives count.", "evidence": []},
            {
                "name": "dimensional-collapse", "severity": "sick", "title": "The embeddings use few directions.",
                "evidence": [
                    {"what": "effective rank of embeddings", "value": 1.3, "threshold": 5.0, "bad": "below", "at_epoch": 20}
                ],
                "consequence": "Classes overlap.", "remedy": "Raise the learning rate.",
            },
        ],
        "checked": [
            {"name": "dimensional-collapse", "state": "sick", "why": "rank 1.3"},
            {"name": "queue-stale", "state": "unknown", "why": "no queue"},
            {"name": "no-signal", "state": "well", "why": "loss 2.8"},
        ],
        "suggestions": {"temperature": {"value": 0.2, "why": "few negatives count"}},
    }  # fmt: skip
    write_json(folder / "doctor.json", doctor)
    table = [
        {
            "label": i,
            "class": str(i),
            "train": (500, 60, 7)[min(i, 2)] if i < 3 else 60,
            "test": 36,
            "knn": 0.9 - 0.05 * i,
            "frequency": ("many", "medium", "few")[min(i, 2)] if i < 3 else "medium",
        }
        | {"taken_for": {str(i): 33, str((i + 1) % 10): 3}}
        for i in range(10)
    ]
    evaluation = json.loads((folder / "evaluation.json").read_text())
    write_json(folder / "evaluation.json", evaluation | {"trained": evaluation["trained"] | {"per_class": table}})
    more = digit_samples(160)
    edit_samples(folder, **{f"training_{name}": column[120:] for name, column in more.items()})
    describe(folder)


def weights(folder: Path) -> None:
    """A run from weights that are as good as the trained encoder."""
    start = result(0.985, 0.988, (0.772, 0.94, 0.96), 0.95)
    drift = {
        "distance": 0.48,
        "between": 0.56,
        "cka": 0.44,
        "recovered": 0.32,
        "recovered_untrained": 0.01,
        "images": 360,
    }
    drift["note"] = drift_note(drift)
    config = yaml.safe_load((folder / "config.yaml").read_text()) | {"encoder": "lite0", "image_size": 96}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    write_json(folder / "evaluation.json", judged(EVALUATION | {"starting_point": start, "drift": drift}, config))
    describe(folder)


def hostile(folder: Path) -> None:
    edit_json(
        folder / "data.json",
        classes=[HOSTILE[i % len(HOSTILE)] for i in range(10)],
        corrupt=[{"id": name, "reason": name} for name in HOSTILE] + [{"id": "bytes \udcff", "reason": "x"}],
        split=HOSTILE[0],
        source={"name": HOSTILE[1], "kind": HOSTILE[0]},
    )
    config = yaml.safe_load((folder / "config.yaml").read_text()) | {
        "data": HOSTILE[1],
        "method": HOSTILE[0],
        HOSTILE[1]: HOSTILE[0],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    edit_json(folder / "environment.json", device=HOSTILE[1], **{HOSTILE[0]: HOSTILE[7]})
    words = {key: HOSTILE[i % len(HOSTILE)] for i, key in enumerate(("name", "title", "consequence", "remedy"))}
    verdict = words | {"severity": HOSTILE[1], "evidence": [{"what": name, "value": name} for name in HOSTILE]}
    write_json(
        folder / "doctor.json",
        {"verdicts": [verdict], "checked": [], "suggestions": {HOSTILE[0]: {"value": HOSTILE[1]}}},
    )
    with np.load(folder / "samples.npz") as stored:
        n = len(stored["labels"])
    edit_samples(folder, ids=np.array([HOSTILE[i % len(HOSTILE)].replace("\x00", "") for i in range(n)]))


CHANGES: dict[str, Callable[[Path], None]] = {
    "labeled": lambda folder: None, "unlabeled": unlabeled, "partial": partial, "stopped": stopped, "hostile": hostile,
    "figures": figures, "weights": weights,
}  # fmt: skip


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "digits-demo")


@pytest.fixture
def run_folder(pristine: Path, tmp_path: Path) -> Path:
    """A complete run that a test may change."""
    return Path(shutil.copytree(pristine, tmp_path / "digits-demo"))


@pytest.fixture(scope="session")
def maker() -> SimpleNamespace:
    """The functions above, for tests that need them."""
    return SimpleNamespace(
        changes=CHANGES,
        hostile=HOSTILE,
        describe=describe,
        edit_json=edit_json,
        edit_samples=edit_samples,
        make_run=make_run,
        write_lines=write_lines,
    )
