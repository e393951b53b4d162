"""Small encoders, runs and indexes that are quick to export."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from coulomb.evaluation.image_encoder import ImageEncoder
from coulomb.evaluation.run import Run
from coulomb.models import build_encoder, save_encoder
from coulomb.models.preprocessing import Preprocessing

CHOSEN = Preprocessing(side=32, resize=36, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2))


def built(name, size=32, channels=3, adapter=None, **options):
    """An encoder whose statistics and biases are not those of an untrained network."""
    torch.manual_seed(0)
    encoder = build_encoder(
        name, channels=channels, image_size=size, mean=[0.4] * channels, std=[0.3] * channels, **options
    )
    if adapter is not None:
        out = 24 if adapter == "whitening" else encoder.feature_dim
        encoder.attach_adapter({"kind": adapter, "in": encoder.feature_dim, "out": out})
        torch.nn.init.normal_(encoder.adapter.weight, std=0.1)
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d | torch.nn.BatchNorm1d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return encoder.eval()


def published(name, **options):
    encoder = built(name, **options)
    encoder.preprocessing = CHOSEN
    return ImageEncoder(encoder, name)


def run(folder, name, size=32, channels=3, canvas=48, evaluation=None, **options):
    """A folder with what an export needs of a run."""
    save_encoder(built(name, size, channels, **options), folder)
    about = {
        "source": {"name": "zoo", "root": "/home/someone/secret"},
        "train": 8,
        "classes": ["cat", "dog"],
        "canvas": {"size": canvas, "dtype": "uint8"},
    }
    (Path(folder) / "data.json").write_text(json.dumps(about))
    if evaluation is not None:
        (Path(folder) / "evaluation.json").write_text(json.dumps(evaluation))
    return Run(folder)


def photo(height, width, seed=0, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


class FakeIndex:
    """What exports use of `coulomb.Index`, in memory."""

    def __init__(self, count, dim=8, dtype=np.float16, seed=0):
        rows = np.random.default_rng(seed).normal(size=(count, dim))
        self.features = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)
        self.ids = [f'a,"b"/é {row}\n.jpg' for row in range(count)]
        self.labels = [None if row % 3 == 0 else f"class {row % 3}" for row in range(count)]
        columns = {"id": self.ids, "path": self.ids, "label": self.labels}
        self.table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))

    def __len__(self):
        return len(self.features)

    def rows(self, start, stop):
        return torch.from_numpy(self.features[start:stop].astype(np.float32))
