"""Exports whatever `coulomb.load` opens: encoders of images, of texts, and the towers of a run on several columns."""

import json
from pathlib import Path
from typing import Any

from coulomb.export.card import markdown_table, plain
from coulomb.export.extras import library, new_folder
from coulomb.export.hub_folder import CARD, CONFIG, image_to_hub, method_of, network_facts, write_image_folder
from coulomb.export.onnx_check import require_same
from coulomb.export.onnx_file import image_to_onnx
from coulomb.export.pair_card import pair_card, text_card
from coulomb.export.sentence_folder import write_modules, write_sentence_folder
from coulomb.export.text_onnx import LONG, features_of, made_up_texts, text_to_onnx, vector_to_onnx
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json, write_text
from coulomb.ground.reading import maybe, read_object, table
from coulomb.ground.text import safe_name
from coulomb.ground.version import __version__
from coulomb.models import ImageNetwork, save_encoder
from coulomb.models.build_text import build_text_encoder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.pair_encoder import DESCRIPTION as TOWERS
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.text_network import TextNetwork
from coulomb.training.run import PairRun

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


def to_hub(
    encoder: Encoders, out: str | Path, *, on: Any = None, labels: str | None = None, progress: bool = False
) -> dict[str, Any]:
    """Writes an encoder as a folder for the hub, with a model card.

    ==================  ==========================================================================================
    encoder             folder
    ==================  ==========================================================================================
    of images           see `coulomb.export.hub_folder.image_to_hub`
    of texts            of sentence-transformers, see `coulomb.export.sentence_folder.write_sentence_folder`
    a run on columns    ``towers/NAME`` per tower, each like these; ``towers.json``, with which `coulomb.load` opens
                        all of them; and ``modules.json``, with which ``SentenceTransformer`` opens the first of texts
    ==================  ==========================================================================================

    Features of texts have unit length in these folders; their cosines are those of ``encode``.

    Args:
        encoder: what `coulomb.load` returns.
        out: folder to create.
        on: of published weights for images, labeled images on which they are measured for the card.
        labels: the column of a table that holds the labels of ``on``.
        progress: show a progress bar on a terminal.

    Returns:
        ``out``, ``files``, ``encoder``, ``features``; ``evaluated``: whether the card has an evaluation; for images
        ``plain_code``, and of a run on columns ``towers``.

    Raises:
        InputError: ``out`` exists, ``on`` is given for something else, or sentence-transformers has no modules for an encoder.
    """
    if isinstance(encoder, ImageEncoder):
        return image_to_hub(encoder, out, on=on, labels=labels, progress=progress)
    if on is not None or labels is not None:
        name = "on" if on is not None else "labels"
        raise InputError(f"{name}: is for published encoders of images, and {encoder.name} is none; leave it out")
    result: dict[str, Any] = {"evaluated": False}
    with new_folder(out) as (path, building):
        if isinstance(encoder, TextEncoder):
            network = encoder.encoder
            write_sentence_folder(network, building)
            check_sentence_folder(network, building)
            facts = text_facts(network) | {"Weights": f"{encoder.name}; the license of its authors applies"}
            write_text(building / CARD, text_card(network, facts, None))
            result |= {"encoder": network.name, "features": network.feature_dim}
        else:
            result |= write_pair_folder(encoder, building)
    return {"out": str(path), "files": sorted(each.name for each in path.iterdir()), **result}


def write_pair_folder(encoder: PairEncoder, folder: Path) -> dict[str, Any]:
    """Writes all towers of a run with its card; returns what `to_hub` reports of it."""
    names, networks, folders = tower_names(encoder), {}, {}
    modules: list[dict[str, Any]] = []
    evaluation = None
    facts: dict[str, str] = {}
    if isinstance(encoder, PairRun):
        facts = run_facts(encoder)
        evaluation = encoder.evaluation if encoder.folder.evaluation.is_file() else None
    part_of = "The card of the run, `../../README.md`, has the figures of all its towers together."
    for tower, column in names.items():
        opened, folders[tower] = encoder[column], f"towers/{safe_name(tower)}"
        inside = folder / folders[tower]
        inside.mkdir(parents=True)
        network = networks[tower] = getattr(opened, "encoder", opened)
        if isinstance(network, ImageNetwork):
            write_image_folder(inside, network, opened.canvas, network_facts(network) | {"Part of": PART_OF})
        elif isinstance(network, TextNetwork):
            written = write_sentence_folder(network, inside)
            check_sentence_folder(network, inside)
            write_text(inside / CARD, text_card(network, text_facts(network) | {"Part of": PART_OF}, part_of))
            modules = modules or [each | {"path": f"{folders[tower]}/{each['path']}"} for each in written]
        else:
            save_encoder(network, inside)
    if modules:
        write_modules(folder, modules)
    described = {key: encoder.description.get(key) for key in ("format", "canvas", "columns")}
    write_json(folder / TOWERS, described)
    width = next(iter(networks.values())).feature_dim
    config = {
        "library_name": "coulomb",
        "version": __version__,
        "feature_dim": width,
        "towers": {tower: networks[tower].name for tower in names},
    }
    write_json(folder / CONFIG, config)
    facts |= {"Features": str(width)}
    write_text(folder / CARD, pair_card(encoder.columns, folders, networks, facts, evaluation))
    return {
        "encoder": ", ".join(network.name for network in networks.values()),
        "features": width,
        "evaluated": evaluation is not None,
        "towers": folders,
    }


PART_OF = "a run on several columns, see ../../README.md"


def text_facts(network: TextNetwork) -> dict[str, str]:
    """Returns the rows of a card's table on a network of texts."""
    return {
        "Architecture": network.name,
        "Input": f"texts of at most {network.longest} tokens",
        "Features": str(network.feature_dim),
        "Parameters": f"{sum(each.numel() for each in network.parameters()):,}",
    }


def run_facts(run: PairRun) -> dict[str, str]:
    """Returns the rows of the card's table on a run: its method and its data, without paths."""
    facts = {}
    if run.folder.config.is_file():
        facts["Method"] = method_of(run)
    if run.folder.data.is_file():
        about = read_object(run.folder.data, {"source": maybe(table)})
        name = (about.get("source") or {}).get("name")
        facts["Data"] = f"{name}: {about.get('train')} training rows, {about.get('test')} held out"
    return facts


def check_sentence_folder(network: TextNetwork, folder: Path) -> None:
    """Raises `InputError` if the files of a folder do not give the features of the network."""
    again = build_text_encoder(str(folder)).eval()
    given = made_up_texts(LONG, network.longest)
    columns = [each.tokenize(given) for each in (network, again)]
    rows = [row for row in range(LONG) if row not in columns[0].reasons]
    if rows:
        expected, found = (
            features_of(each, column, rows) for each, column in zip((network, again), columns, strict=True)
        )
        require_same(network.name, [(found.numpy(), expected)], unit=True, what="exported folder")
