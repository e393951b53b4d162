"""A run on pictures and captions that was not trained: towers with random weights, in an instant."""

import dataclasses
import json

from coulomb.kinds.image.canvas import Canvas
from coulomb.models import build_encoder, save_encoder
from coulomb.models.build_text import build_text_encoder

WORDS = "a photo of the cat dog bird car red green blue yellow square neither something else".split()


def tiny_run(folder, temperature=0.1, size=16, dim=8, texts=True):
    """Writes the files of a run on ``image`` and ``caption`` from which its encoders are opened; returns ``folder``."""
    towers = {"image": build_encoder("convnet", channels=3, image_size=size, width=8, seed=0)}
    if texts:
        towers["caption"] = build_text_encoder("static-random", texts=WORDS * 3, seed=0)
    for seed, (name, encoder) in enumerate(towers.items()):
        encoder.attach_adapter({"kind": "linear", "in": encoder.feature_dim, "out": dim}, seed=seed)
        save_encoder(encoder, folder / "towers" / name)
    kinds = {"image": "image", "caption": "text"}
    description = {
        "format": 1,
        "canvas": dataclasses.asdict(Canvas(size, "uint8")),
        "columns": {name: {"kind": kinds[name], "tower": name} for name in towers},
        "temperature": temperature,
    }
    (folder / "towers.json").write_text(json.dumps(description))
    (folder / "config.yaml").write_text("{}\n")
    return folder
