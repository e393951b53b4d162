"""Exports an encoder of texts, or of vectors, as an ONNX file; texts have the file of their tokenizer beside it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.export.extras import new_path, quiet
from coulomb.export.network_graph import network_graph
from coulomb.export.onnx_check import BATCHES, require_same
from coulomb.export.onnx_session import open_session, serialized
from coulomb.export.text_graph import text_graph
from coulomb.export.tokenizer_file import complete_tokenizer
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.text_network import TextNetwork
from coulomb.models.tokenizing import TOKENIZER, import_tokenizers
from coulomb.models.vector_network import VectorNetwork

SCRIPT = '''"""Features of texts: python {script} "a text" "another text". Needs onnxruntime, numpy and tokenizers."""
import pathlib, sys
import numpy as np, onnxruntime, tokenizers

folder = pathlib.Path(__file__).parent
tokenizer = tokenizers.Tokenizer.from_file(str(folder / {tokenizer!r}))  # cuts at {longest} tokens, and pads
session = onnxruntime.InferenceSession(folder / {model!r})


def encode(texts):
    """Features [N, {dim}] of texts, float32."""
    encodings = tokenizer.encode_batch(texts)
    inputs = {{
        "input_ids": np.array([each.ids for each in encodings], np.int64),
        "attention_mask": np.array([each.attention_mask for each in encodings], np.int64),
    }}
    return session.run(["features"], inputs)[0]


if __name__ == "__main__":
    for text, features in zip(sys.argv[1:], encode(sys.argv[1:])):
        print(repr(text), *features)
'''
VECTOR_SCRIPT = '''"""Features of vectors: python {script} 0.1,2,…  Needs onnxruntime and numpy."""
import pathlib, sys
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession(pathlib.Path(__file__).with_name({model!r}))


def encode(vectors):
    """Features [N, {dim}] of vectors [N, {width}], float32."""
    return session.run(["features"], {{"vectors": np.asarray(vectors, np.float32)}})[0]


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(*encode([[float(value) for value in each.split(",")]])[0])
'''
WORDS = "a red flower by the sea, two old houses; 1,250 m of Größe – what is it? 花".split()
LONG = 3  # texts of the batch with a long one


def text_to_onnx(encoder: TextEncoder, out: str | Path, *, unit: bool = False) -> dict[str, Any]:
    """Writes an encoder of texts as an ONNX file, and next to it ``tokenizer.json`` and a script that uses both.

    Inputs ``input_ids`` and ``attention_mask``, int64 [B, L] for any B and for L up to the encoder's limit of tokens; output
    ``features`` float32 [B, F]. ``tokenizer.json`` cuts and pads texts as the encoder does. The files are written only if
    tokenizers and onnxruntime return the features of ``encode``.

    Args:
        encoder: of texts.
        out: file to write, such as ``model.onnx``; it must not exist.
        unit: features of unit length.

    Raises:
        InputError: a file exists, the network cannot be converted, or features differ.
    """
    path, script = new_model(out)
    tokenizer_path = new_path(path.with_name(TOKENIZER))
    started, network = time.perf_counter(), encoder.encoder
    tokenizer = complete_tokenizer(network)
    about = {"encoder": network.name, "longest": str(network.longest), "tokenizer": TOKENIZER}
    with quiet():
        graph = text_graph(network, unit)
    content = serialized(graph, about, f"{network.name}: token ids and their mask [B, L] → features")
    stored = tokenizer.to_str(pretty=False)
    result = {
        "check": check_texts(open_session(content), import_tokenizers().Tokenizer.from_str(stored), encoder, unit)
    }
    facts = {"longest": network.longest, "dim": network.feature_dim}
    text = SCRIPT.format(script=script.name, model=path.name, tokenizer=TOKENIZER, **facts)
    write_atomically(tokenizer_path, stored.encode())
    return written(path, script, content, text, network, unit, started) | {
        "tokenizer": str(tokenizer_path),
        "longest": network.longest,
        **result,
    }


def vector_to_onnx(network: VectorNetwork, out: str | Path, *, unit: bool = False) -> dict[str, Any]:
    """Writes an encoder of vectors as an ONNX file, ``vectors`` float32 [B, in] → ``features`` [B, F], and a script.

    Raises:
        InputError: a file exists, the network cannot be converted, or features differ.
    """
    path, script = new_model(out)
    started = time.perf_counter()
    graph = network_graph(network, unit, network.trial_cells(2), "vectors")
    content = serialized(graph, {"encoder": network.name}, f"{network.name}: vectors [B, {network.dim}] → features")
    session, pairs = open_session(content), []
    for batch in BATCHES:
        vectors = network.trial_cells(batch, torch.Generator().manual_seed(batch))
        vectors = network.standardize.mean + network.standardize.std * vectors
        with torch.no_grad():
            expected = network.eval()(vectors)
        pairs.append((session.run(["features"], {"vectors": vectors.numpy()})[0], expected))
    check = require_same(network.name, pairs, unit) | {"batches": list(BATCHES)}
    text = VECTOR_SCRIPT.format(script=script.name, model=path.name, dim=network.feature_dim, width=network.dim)
    return written(path, script, content, text, network, unit, started) | {"check": check}


def new_model(out: str | Path) -> tuple[Path, Path]:
    """Returns the paths of a model and of its script; raises `InputError` if one exists or the name is none of a model."""
    path = new_path(out)
    if path.suffix != ".onnx":
        raise InputError(f"out={str(out)!r}: must end in .onnx")
    return path, new_path(path.with_suffix(".py"))


def written(
    path: Path, script: Path, content: bytes, text: str, network: Any, unit: bool, started: float
) -> dict[str, Any]:
    """Writes a model and its script; returns what every export reports."""
    write_atomically(path, content)
    write_atomically(script, text.encode())
    return {
        "out": str(path),
        "script": str(script),
        "encoder": network.name,
        "features": network.feature_dim,
        "unit": unit,
        "bytes": len(content),
        "seconds": round(time.perf_counter() - started, 1),
    }


def check_texts(session: Any, tokenizer: Any, encoder: TextEncoder, unit: bool) -> dict[str, Any]:
    """Returns the smallest cosine between features by onnxruntime and by `TextEncoder.encode`, which must be ≥ .99999.

    Batches of 1, 2, 3, 64 and 257 made-up texts of 1 to 30 words, and one that is longer than the encoder takes.

    Raises:
        InputError: a cosine or a length differs by more; the message has the figure.
    """
    network = encoder.encoder
    pairs = []
    for batch in BATCHES:
        texts = made_up_texts(batch, network.longest)
        column = network.tokenize(texts)
        rows = [row for row in range(len(texts)) if row not in column.reasons]  # words without a token
        if not rows:
            continue
        expected = features_of(network, column, rows)
        encodings = tokenizer.encode_batch([texts[row] for row in rows])
        inputs = {
            "input_ids": np.array([each.ids for each in encodings], np.int64),
            "attention_mask": np.array([each.attention_mask for each in encodings], np.int64),
        }
        pairs.append((session.run(["features"], inputs)[0], expected))
    if not pairs:
        raise InputError(f"{network.name}: its tokenizer has no tokens for {' '.join(WORDS)!r}; nothing was written")
    return require_same(network.name, pairs, unit) | {"batches": list(BATCHES)}


@torch.no_grad()
def features_of(network: TextNetwork, column: Any, rows: Sequence[int]) -> Tensor:
    """Returns the features of some rows of a column."""
    device = next(each.device for each in network.parameters())
    features: Tensor = network(column.stack(rows).to(device)).float().cpu()
    return features


def made_up_texts(count: int, longest: int) -> list[str]:
    """Returns texts of different lengths, every second with spaces before it; of three, one is longer than ``longest``."""
    draw = np.random.default_rng((count, longest))
    texts = []
    for place in range(count):
        words = longest + 3 if count == LONG and not place else int(draw.integers(1, min(30, longest) + 1))
        texts.append("  " * (place % 2) + " ".join(draw.choice(WORDS, words)))
    return texts
