"""Trains several runs on columns, on one process or two: ``python two_processes_columns.py OUT DEVICES``.

Nothing in them depends on which process a row is in: no dropout, and views that are drawn by the place of a row in the batch.
"""

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import coulomb

WORDS = ["red", "green", "blue", "small", "large", "left", "right", "round", "flat", "old", "new", "wet"]
ROWS = 60
TEXTS = {"columns": "question,answer", "encoder": "static-random"}
RUNS = {
    "clip": TEXTS,
    "clip with a queue": TEXTS | {"method_options": {"queue_size": 32, "momentum": 0.9}},
    "siglip": TEXTS | {"method": "siglip"},
    "negatives": {"columns": "question,answer,wrong:negative", "encoder": "static-random"},
    "pictures": {"columns": "image,answer", "encoder": "image=vit,answer=static-random", "image_size": 16},
    "frozen": {"columns": "image,answer", "encoder": "image=lite0,answer=static", "image_size": 32, "cached_views": 2},
    "one column of texts": {"columns": "question", "encoder": "static-random", "head_layers": 1},
    "one column of vectors": {"columns": "vector", "head_layers": 1},
}


def picture(draw):
    buffer = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def data():
    """60 rows, of which every fifth has an answer that another one has, too."""
    draw = np.random.default_rng(0)
    phrases = [" ".join(draw.choice(WORDS, 4)) + f" {row}" for row in range(ROWS)]
    return {
        "question": [f"which is {phrase}" for phrase in phrases],
        "answer": [f"it is {phrases[row - row % 5 % 2]}" for row in range(ROWS)],
        "wrong": [f"it is {phrases[(row + 7) % ROWS]}" for row in range(ROWS)],
        "image": [picture(draw) for _ in range(ROWS)],
        "vector": draw.normal(size=(ROWS, 6)).astype(np.float32),
    }


def train(out, devices):
    """Writes ``OUT/RUN/metrics.jsonl``."""
    for name, own in RUNS.items():
        options = {
            "epochs": 3,
            "batch_size": 16 // devices,
            "devices": devices,
            "embedding_dim": 8,
            "optimizer": "sgd",
            "lr": 0.05,
            "weight_decay": 0.0,
            "knn_every": 0,
            "workers": 0,
            "precision": "32",
            "accelerator": "cpu",
        } | own
        coulomb.train(data(), out=Path(out) / name, evaluate=False, progress=False, **options)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
