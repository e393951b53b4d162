"""Small encoders, runs and indexes that are quick to export."""

import inspect
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pyarrow as pa
import torch
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from PIL import Image

from coulomb.ground.text import safe_name
from coulomb.models import build_encoder, save_encoder
from coulomb.models.build_text import build_text_encoder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.preprocessing import Preprocessing
from coulomb.training.run import PairRun, Run

CODE = re.compile(r"```python\n(.*?)```", re.S)
CAPTIONS = ["a red flower", "two old houses by the sea", "a cat on a sofa and a red leaf", "the old cat"]
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


def run(folder, name, size=32, channels=3, canvas=48, dtype="uint8", evaluation=None, **options):
    """A folder with what an export needs of a run."""
    save_encoder(built(name, size, channels, **options), folder)
    about = {
        "source": {"name": "zoo", "root": "/home/someone/secret"},
        "train": 8,
        "classes": ["cat", "dog"],
        "canvas": {"size": canvas, "dtype": dtype},
    }
    (Path(folder) / "data.json").write_text(json.dumps(about))
    if evaluation is not None:
        (Path(folder) / "evaluation.json").write_text(json.dumps(evaluation))
    return Run(folder)


def texts(name="static-random", adapter=24, **options):
    """An encoder of texts with an adapter."""
    network = build_text_encoder(name, texts=CAPTIONS, **options)
    if adapter is not None:
        network.attach_adapter({"kind": "linear", "in": network.feature_dim, "out": adapter}, seed=1)
    return network.eval()


def pair(folder, towers, canvas=48, evaluation=None):
    """A folder with what an export needs of a run on several columns, given their networks, or for pictures a name."""
    columns = {}
    for name, network in towers.items():
        kind = "image"
        if isinstance(network, str):
            network = built(network, width=8)
            network.attach_adapter({"kind": "linear", "in": network.feature_dim, "out": 24}, seed=1)
        else:
            kind = network.cells.removesuffix("s")
        save_encoder(network, Path(folder) / "towers" / safe_name(name))
        columns[name] = {"kind": kind, "tower": name}
    described = {"format": 1, "columns": columns, "canvas": {"size": canvas, "dtype": "uint8"}}
    (Path(folder) / "towers.json").write_text(json.dumps(described))
    about = {
        "source": {"name": "stamps", "root": "/home/someone/secret"},
        "kind": "columns",
        "columns": {name: column["kind"] for name, column in columns.items()},
        "train": 38,
        "test": 10,
        "split": "10 of 48 rows held out.",
    }
    (Path(folder) / "data.json").write_text(json.dumps(about))
    if evaluation is not None:
        (Path(folder) / "evaluation.json").write_text(json.dumps(evaluation))
    return PairRun(folder)


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


def files_of_all_modes(folder, size=(61, 45)):
    """One smooth picture as files of all the modes and formats that `encode` reads; returns their paths."""
    folder.mkdir()
    height, width = size
    draw = np.random.default_rng(5)
    small = Image.fromarray(draw.integers(0, 256, (5, 4, 3), dtype=np.uint8))
    color = small.resize((width, height), Image.Resampling.BICUBIC)
    gray, values = color.convert("L"), np.asarray(color)
    alpha = Image.fromarray(np.linspace(0, 255, height * width).reshape(height, width).astype(np.uint8))
    transparent = color.copy()
    transparent.putalpha(alpha)
    palette = color.quantize(16)
    deep = (np.asarray(gray, np.float32) * 257 + draw.integers(0, 257, (height, width))).clip(0, 65535)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    pictures = {
        "1.png": gray.convert("1"),
        "L.png": gray,
        "L-transparent.png": (gray, {"transparency": int(np.asarray(gray)[9, 9])}),
        "LA.png": Image.merge("LA", [gray, alpha]),
        "P.png": palette,
        "P-gray.png": gray.quantize(16),
        "P-transparent.png": (palette, {"transparency": 3}),
        "P-alphas.png": (palette, {"transparency": bytes(range(0, 256, 16))}),
        "P.gif": (palette, {"transparency": 3}),
        "RGB.png": color,
        "RGB-transparent.png": (color, {"transparency": tuple(values[9, 9].tolist())}),
        "RGB.jpg": (color, {"quality": 95}),
        "RGB-large.jpg": color.resize((8 * width, 8 * height), Image.Resampling.BICUBIC),
        "RGB-turned.jpg": (color, {"quality": 95, "exif": exif}),
        "RGB-turned.png": (color, {"exif": exif}),
        "RGBA.png": transparent,
        "RGBA.webp": (transparent, {"lossless": True}),
        "CMYK.jpg": (color.convert("CMYK"), {"quality": 95}),
        "CMYK.tif": color.convert("CMYK"),
        "YCbCr.tif": color.convert("YCbCr"),
        "I16.png": Image.fromarray(deep.astype(np.uint16)),
        "I16B.tif": Image.fromarray(deep.astype(">u2")),
        "I.tif": Image.fromarray(deep.astype(np.int32)),
        "F.tif": Image.fromarray(deep / np.float32(65535)),
    }
    for name, picture in pictures.items():
        image, options = picture if isinstance(picture, tuple) else (picture, {})
        image.save(folder / name, **options)
    write_deep_color(folder / "RGB16.png", values)
    return sorted(folder.iterdir())


def write_deep_color(path, values):
    """A PNG of 16 bits per channel, which Pillow cannot write."""
    height, width, _ = values.shape

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (values.astype(np.uint16) * 257 + 100).clip(0, 65535).astype(">u2")
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def by_the_card(folder, paths):
    """Features by the card's code, in a process in which coulomb cannot be imported."""
    (code,) = CODE.findall((folder / "README.md").read_text())
    program = "import sys; sys.modules['coulomb'] = None\n" + code
    program += "\nimport json; print(json.dumps(encode(sys.argv[1:]).tolist()))"
    command = [sys.executable, "-I", "-W", "error", "-c", program, *map(str, paths)]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


class FakeHub:
    """The hub as a folder: what is uploaded is found again. ``calls`` has (function, options) as the library takes them.

    Other branches than main are folders ``NAME@BRANCH``. ``reached`` is False without a connection: only the cache is there.
    """

    def __init__(self, path):
        self.path, self.calls, self.reached = path, [], True

    def __call__(self, token=None):
        self.calls.append(("HfApi", {"token": token}))
        return self

    def _called(self, function, *arguments, **options):
        inspect.signature(function).bind(*([self] if "self" in inspect.signature(function).parameters else []), *arguments,
                                         **options)  # fmt: skip
        self.calls.append((function.__name__, options))

    def _folder(self, name, revision):
        return self.path / (name if revision is None else f"{name}@{revision}")

    def create_repo(self, name, **options):
        self._called(REAL.create_repo, name, **options)
        return SimpleNamespace(repo_id=name)

    def create_branch(self, name, **options):
        self._called(REAL.create_branch, name, **options)

    def upload_folder(self, **options):
        self._called(REAL.upload_folder, **options)
        folder, patterns = options["folder_path"], options["allow_patterns"]
        copy_matching(Path(folder), self._folder(options["repo_id"], options["revision"]), patterns)
        proposed = "https://hub/pr/1" if options["create_pr"] else None
        return SimpleNamespace(pr_url=proposed, commit_url="https://hub/commit/1")

    def hf_hub_download(self, name, file, revision=None, **options):
        self._called(DOWNLOAD, name, file, revision=revision, **options)
        found, cached = self._folder(name, revision) / file, self.path / "cache" / name / file
        if not self.reached:
            if not cached.is_file():
                raise LocalEntryNotFoundError("no connection\nand more")
            return str(cached)
        if not found.is_file():
            raise EntryNotFoundError(f"no {file}")
        return str(found)

    def snapshot_download(self, name, allow_patterns, revision=None, **options):
        self._called(SNAPSHOT, name, allow_patterns=allow_patterns, revision=revision, **options)
        if self.reached:
            copy_matching(self._folder(name, revision), self.path / "cache" / name, allow_patterns)
        return str(self.path / "cache" / name)


REAL, DOWNLOAD, SNAPSHOT = huggingface_hub.HfApi, huggingface_hub.hf_hub_download, huggingface_hub.snapshot_download


def copy_matching(source, target, patterns):
    for file in source.rglob("*"):
        relative = str(file.relative_to(source))
        if file.is_file() and list(filter_repo_objects([relative], allow_patterns=patterns)):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / relative)


def fake_hub(path, monkeypatch):
    """Puts a `FakeHub` in the place of the hub."""
    made = FakeHub(path)
    monkeypatch.setattr(huggingface_hub, "HfApi", made)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", made.hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    return made
