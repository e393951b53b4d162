"""Encoders of texts by name: random weights, or weights that exist."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.randomness import seeded_initialization
from coulomb.models import wordllama
from coulomb.models.names import Published, is_local, is_published, local_path, parse_name
from coulomb.models.published import import_library
from coulomb.models.published_text import build_published_text
from coulomb.models.saving import DESCRIPTION, load_encoder, random_encoder, read_description
from coulomb.models.text_backbones import LONGEST, TEXT_BACKBONES, TEXT_OPTIONS, StaticVectors
from coulomb.models.text_layout import Repository
from coulomb.models.text_network import TextNetwork, assemble_text, require_texts
from coulomb.models.tokenizing import train_tokenizer

OF_IMAGES = ("vision_config", "image_size", "num_channels")  # entries in the config.json of a model that takes images


def build_text_encoder(
    name: str,
    *,
    texts: Iterable[Any] | None = None,
    longest: int | None = None,
    seed: int = 0,
    weights: bool = True,
    **options: Any,
) -> TextNetwork:
    """Builds an encoder of texts by name.

    =================  ========  ==========================================================================
    name               features  network; options (defaults)
    =================  ========  ==========================================================================
    static             256       mean of the token vectors of wordllama (``pip install 'coulomb[text]'``)
    static-random      256       mean of random token vectors; width=256
    transformer-small  256       a transformer with random weights; width=256, depth=4, heads=4
    hf:NAME            varies    of transformers (``pip install 'coulomb[hf]'``): a repository of the hub with random
                                 weights, or a model type such as hf:bert
    hf:NAME@weights    varies    a repository of the hub with its weights, of transformers or sentence-transformers
    FOLDER             varies    saved by transformers, sentence-transformers or coulomb, with its weights
    run:FOLDER         varies    the encoder of texts of an earlier run, with its weights
    =================  ========  ==========================================================================

    Published encoders keep their tokenizer, the pooling of ``modules.json`` (default: the mean over tokens), and their limit
    of tokens. Text encoders of CLIP and SigLIP return their pooled features; `coulomb.models.build_pair` adds the projections.

    Args:
        name: from the table.
        texts: the training texts, from which static-random and transformer-small learn their vocabulary.
        longest: tokens of a text that are used; longer texts are cut. Default: 256 of static ones, 128 of transformer-small,
            of published ones what their files say.
        seed: seed of the random weights. The global random state is neither used nor changed.
        weights: False builds the same architecture with random weights, and the same vocabulary.
        options: options of the architecture.

    Raises:
        InputError: the name or an option is unknown or out of range, texts or a library are missing.

    >>> build_text_encoder("static-random", texts=["a red flower", "two cats"] * 10).feature_dim
    256
    """
    if is_published(name) or is_local(name):
        if options:
            option = next(iter(options))
            raise InputError(
                f"{option}={options[option]!r}: {name} takes no options; its files determine the architecture"
            )
        return _build_existing(name, texts=texts, longest=longest, seed=seed, weights=weights)
    require_text_architecture(name)
    known, chosen = TEXT_OPTIONS[name], LONGEST[name] if longest is None else longest
    if unknown := [option for option in options if option not in known]:
        raise InputError(
            f"{unknown[0]}={options[unknown[0]]!r}: {name} has no such option; its options are {', '.join(known) or 'none'}"
        )
    if name == "static":
        tokenizer, vectors = wordllama.read_tokenizer(), wordllama.read_vectors()
        options = {"vocabulary": len(vectors), "width": vectors.shape[1]} | options
    else:
        vectors = None
        tokenizer = train_tokenizer(texts, name)
        options = {"vocabulary": tokenizer.get_vocab_size()} | options
    with torch.device("meta"):  # uses no memory
        blank = assemble_text(name, tokenizer, longest=chosen, options=options)
    if vectors is not None and weights:
        blank.backbone.load_state_dict({"vectors.weight": vectors}, assign=True)
        return blank
    with seeded_initialization(seed, "encoder", name):
        return assemble_text(name, tokenizer, longest=chosen, options=options)


def require_text_encoder(name: str) -> None:
    """Raises `InputError` unless an encoder of texts of this ``name`` exists, as far as that is known without building it."""
    if name == "static":
        wordllama.package_folder()
    elif is_local(name) or is_published(name):
        published_source(name)
    else:
        require_text_architecture(name)


def published_source(name: str) -> Published | None:
    """Returns the repository of ``hf:NAME``, or the folder of another library; None for other names.

    Raises:
        InputError: it belongs to timm, or there is no such folder, or nothing in it describes an architecture.
    """
    if is_published(name):
        parsed = parse_name(name)
        if parsed.kind != "hf":
            raise InputError(f"encoder={name!r}: timm has no encoders of texts; give hf:NAME@weights or a folder")
        return parsed
    if not is_local(name):
        return None
    path = local_path(name)
    if not path.is_dir():
        raise InputError(f"encoder={name!r}: there is no folder {str(path)!r}; check the path")
    if (path / DESCRIPTION).is_file():
        return None
    if not (path / "config.json").is_file() and not (path / "modules.json").is_file():
        raise InputError(
            f"encoder={name!r}: no config.json, modules.json or {DESCRIPTION} in {str(path)!r} says which architecture "
            "the weights are for; give a folder that transformers, sentence-transformers or coulomb saved"
        )
    return Published("hf", str(path), True)


def takes_texts(name: str) -> bool:
    """Returns True for the name of an encoder of texts: built in, a folder, or ``hf:NAME``, whose files are downloaded.

    A model for images and texts takes images by its name alone; `coulomb.models.build_pair` builds both.
    """
    if is_local(name):
        folder = local_path(name)
        if (folder / DESCRIPTION).is_file():
            return read_description(folder / DESCRIPTION).get("cells") == TextNetwork.cells
        if not folder.is_dir():
            return False
    elif is_published(name):
        if parse_name(name).kind != "hf":
            return False
    else:
        return name in TEXT_BACKBONES
    source = Published("hf", str(local_path(name)), True) if is_local(name) else parse_name(name)
    transformers = None if is_local(name) else import_library("hf")
    if transformers is not None and source.name in transformers.CONFIG_MAPPING:
        config = vars(transformers.AutoConfig.for_model(source.name))
        return "vocab_size" in config and not any(entry in config for entry in OF_IMAGES)
    repository = Repository(source.name, name)
    config = repository.entries("config.json")
    if not config:
        return repository.file("modules.json") is not None
    return "vocab_size" in config and not any(entry in config for entry in OF_IMAGES)


def _build_existing(
    name: str, *, texts: Iterable[Any] | None, longest: int | None, seed: int, weights: bool
) -> TextNetwork:
    """Builds ``hf:NAME``, ``run:FOLDER`` or the encoder of a folder."""
    source = published_source(name)
    if source is None:
        return _build_own(local_path(name), name, longest, seed, weights)
    with seeded_initialization(seed, "encoder", name):
        source = source._replace(weights=source.weights and weights)
        return build_published_text(name, source, texts=texts, longest=longest)


def _build_own(folder: Path, name: str, longest: int | None, seed: int, weights: bool) -> TextNetwork:
    """Builds the encoder of texts that coulomb saved, perhaps with another limit of tokens."""
    network = require_texts(load_encoder(folder) if weights else random_encoder(folder, seed), name)
    if longest is not None and longest != network.longest:
        if longest < 1 or (longest > network.longest and not isinstance(network.backbone, StaticVectors)):
            raise InputError(f"longest={longest}: {name} takes from 1 to {network.longest} tokens")
        network.longest = network.config["longest"] = longest
    return network.train()


def require_text_architecture(name: str) -> None:
    """Raises `InputError` unless ``name`` is known."""
    if name not in TEXT_BACKBONES:
        raise InputError(
            f"encoder={name!r}: of texts is unknown: use one of {', '.join(TEXT_BACKBONES)}"
            + did_you_mean(name, TEXT_BACKBONES)
        )
