"""Exports whatever `coulomb.load` opens: encoders of images, of texts, and the towers of a run on several columns."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coulomb.export.card import markdown_table, plain
from coulomb.export.extras import library, new_path
from coulomb.export.onnx_file import image_to_onnx
from coulomb.export.text_onnx import text_to_onnx, vector_to_onnx
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_text
from coulomb.ground.text import safe_name
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder

Encoders = ImageEncoder | TextEncoder | PairEncoder
MODEL, MODEL_SCRIPT = "model.onnx", "model.py"


def to_onnx(
    encoder: Encoders,
    out: str | Path,
    *,
    unit: bool = False,
    int8: bool = False,
    on: Any = None,
    labels: str | None = None,
) -> dict[str, Any]:
    """Writes an encoder as an ONNX file with a script that uses it without coulomb.

    ==================  =====================  ==================================================================
    encoder             ``out``                written
    ==================  =====================  ==================================================================
    of images           a file, NAME.onnx      the file and NAME.py, see `coulomb.export.onnx_file.image_to_onnx`
    of texts            a file, NAME.onnx      the file, NAME.py and ``tokenizer.json``, see
                                               `coulomb.export.text_onnx.text_to_onnx`
    a run on columns    a folder               a folder per tower with ``model.onnx``, ``model.py`` and for texts
                                               ``tokenizer.json``; and README.md
    ==================  =====================  ==================================================================

    Args:
        encoder: what `coulomb.load` returns.
        out: file or folder to write; it must not exist.
        unit: features of unit length, so that their dot product is the cosine similarity.
        int8: weights and activations of 8 bits, of images only; needs ``on``.
        on: images on which the file is also checked.
        labels: the column of a table that holds the labels of ``on``.

    Returns:
        ``out``, ``script``, ``encoder``, ``features`` (F), ``unit``, ``bytes``, ``check``, ``seconds``; for images
        ``image_size``, for texts ``tokenizer`` and ``longest``. Of a run on columns ``out``, ``readme``, and these for each
        tower under ``towers``.

    Raises:
        InputError: a library is missing, a file exists, the network cannot be converted, or features differ.
    """
    for module in ("onnx", "onnxruntime", "onnxscript"):
        library(module, "export", "onnx")
    if isinstance(encoder, ImageEncoder):
        return image_to_onnx(encoder, out, unit=unit, int8=int8, on=on, labels=labels)
    images = {"int8": int8, "on": on is not None, "labels": labels is not None}
    if isinstance(encoder, TextEncoder):
        require_none(images, encoder.name)
        return text_to_onnx(encoder, out, unit=unit)
    if not encoder.has_kind("image"):
        require_none(images, encoder.name)
    if Path(out).suffix == ".onnx":
        raise InputError(
            f"out={str(out)!r}: {encoder.name} has {len(tower_names(encoder))} towers, each of which is a file; give the name "
            "of a folder"
        )
    with new_folder(out) as (path, building):
        towers = {}
        for tower, column in tower_names(encoder).items():
            opened, file = encoder[column], building / safe_name(tower) / MODEL
            file.parent.mkdir()
            if isinstance(opened, ImageEncoder):
                result = image_to_onnx(opened, file, unit=unit, int8=int8, on=on, labels=labels)
            elif isinstance(opened, TextEncoder):
                result = text_to_onnx(opened, file, unit=unit)
            else:
                result = vector_to_onnx(opened, file, unit=unit)
            towers[tower] = {
                key: str(path / Path(value).relative_to(building)) if key in ("out", "script", "tokenizer") else value
                for key, value in result.items()
            }
        write_text(building / "README.md", onnx_readme(encoder, towers))
    return {"out": str(path), "readme": str(path / "README.md"), "unit": unit, "towers": towers}


def require_none(options: dict[str, bool], name: str) -> None:
    """Raises `InputError` for an option that only encoders of images have."""
    for option, given in options.items():
        if given:
            raise InputError(f"{option}: is for encoders of images, and {name} has none; leave it out")


def tower_names(encoder: PairEncoder) -> dict[str, str]:
    """Returns the towers of a run on columns, each with a column that it reads, in the order of the columns."""
    towers: dict[str, str] = {}
    for column, described in encoder.columns.items():
        towers.setdefault(described["tower"], column)
    return towers


@contextmanager
def new_folder(out: str | Path) -> Iterator[tuple[Path, Path]]:
    """Context of a folder that is there in full, or not at all: yields its path, and the folder in which to write.

    Raises:
        InputError: it exists, or cannot be written.
    """
    path = new_path(out)
    building = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)  # left by an interrupted call
    try:
        building.mkdir()
        yield path, building
        building.rename(path)
    except OSError as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error.strerror}); free some space") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


PACKAGES = {"image": "Pillow", "text": "tokenizers"}
ARGUMENTS = {"image": '["a.jpg", "b.jpg"]', "text": '["a red flower", "two old houses"]'}


def onnx_readme(encoder: PairEncoder, towers: dict[str, dict[str, Any]]) -> str:
    """Returns the README of the folder: its files, and a program that compares cells of two columns."""
    kinds = {tower: encoder.columns[column]["kind"] for tower, column in tower_names(encoder).items()}
    packages = ["numpy", "onnxruntime", *dict.fromkeys(PACKAGES[each] for each in kinds.values() if each in PACKAGES)]
    columns: dict[str, list[str]] = {tower: [] for tower in kinds}
    for column, described in encoder.columns.items():
        columns[described["tower"]].append(plain(column))
    rows = [
        [f"`{safe_name(tower)}/`", ", ".join(columns[tower]), f"{kinds[tower]}s", str(result["features"])]
        for tower, result in towers.items()
    ]
    used = list(towers)[:2]
    code = ["import runpy", "import numpy as np", ""]
    for place, tower in enumerate(used):
        argument = ARGUMENTS.get(kinds[tower], "vectors")
        code += [
            f'encode = runpy.run_path({json.dumps(safe_name(tower) + "/" + MODEL_SCRIPT)})["encode"]',
            f"features_{place} = encode({argument})",
        ]
    last = f"features_{len(used) - 1}"
    code += [
        "unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)",
        f"print(unit(features_0) @ unit({last}).T)  # cosines: rows as the first, columns as the last list",
    ]
    return (
        "# Towers of one space, as ONNX\n\nExported by coulomb. Cells of all columns are vectors of one space: those that "
        "belong together have a large cosine.\n\n"
        + markdown_table(["folder", "columns", "takes", "features"], rows)
        + "\n\nWithout coulomb, in this folder:\n\n```sh\npip install "
        + " ".join(packages)
        + "\n```\n\n```python\n"
        + "\n".join(code)
        + "\n```\n"
    )
