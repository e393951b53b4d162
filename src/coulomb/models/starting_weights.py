"""Encoders from weights on this machine: an earlier run, or a folder saved by transformers, timm or coulomb."""

from pathlib import Path

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.randomness import seeded_initialization
from coulomb.ground.reading import read_object
from coulomb.models.image_network import (
    OWN_MODULE,
    ImageNetwork,
    Normalization,
    assemble_published,
    measure_feature_dim,
    require_images,
)
from coulomb.models.names import PICKLES, RUN, Published, local_path
from coulomb.models.published import require_channels
from coulomb.models.saving import DESCRIPTION, WEIGHTS, load_encoder, random_encoder, read_description

FILE = "model.safetensors"
CONVERT = (
    "convert the tensors once, where you trust the file: "
    "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
)


def find(name: str) -> Path | Published:
    """Returns the folder of a coulomb encoder, or how a folder of another library is loaded.

    Raises:
        InputError: there is no such file or folder, the file is a pickle, or nothing describes its architecture.
    """
    path = local_path(name)
    if path.suffix in PICKLES:
        raise InputError(
            f"encoder={name!r}: is a pickle, which could run code; {CONVERT.replace('FILE', repr(path.name))}"
        )
    if not path.exists():
        raise InputError(f"encoder={name!r}: there is no file or folder {str(path)!r}; {_nearest(path)}")
    folder = path if path.is_dir() else path.parent
    own = (folder / DESCRIPTION).is_file() and (path.is_dir() or path.name == WEIGHTS)
    if own or name.startswith(RUN):
        _require_own(name, folder)
        return folder
    if not (folder / "config.json").is_file():
        raise InputError(
            f"encoder={name!r}: no config.json or {DESCRIPTION} in {str(folder)!r} says which architecture the weights are "
            "for; save the model with save_pretrained of transformers, or timm.models.save_for_hf, and give that folder"
        )
    config = read_object(folder / "config.json", remedy="save the model again")
    weights = folder / FILE if path.is_dir() else path
    if not weights.is_file() and not (folder / f"{FILE}.index.json").is_file():
        pickles = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLES)
        remedy = "save the model there with save_pretrained"
        if pickles:
            remedy = f"only {pickles[0]}, a pickle, which could run code; {CONVERT.replace('FILE', repr(pickles[0]))}"
        raise InputError(f"encoder={name!r}: there is no {FILE} in {str(folder)!r}; {remedy}")
    named = None if path.is_dir() or path.name == FILE else path
    for kind, entry in (("hf", "model_type"), ("timm", "architecture")):
        if isinstance(config.get(entry), str):
            return Published(kind, str(folder), True, weights if kind == "timm" else named, config)
    raise InputError(
        f"encoder={name!r}: config.json in {str(folder)!r} has neither the model_type of transformers nor the architecture "
        "of timm; give a folder that one of these libraries saved"
    )


def _nearest(path: Path) -> str:
    hint = ""
    if path.parent.is_dir():
        hint = did_you_mean(path.name, [each.name for each in path.parent.iterdir()])
    return f"check the path{hint}"


def _require_own(name: str, folder: Path) -> None:
    description = read_description(folder / DESCRIPTION)
    if description["kind"] == OWN_MODULE:
        raise InputError(
            f"encoder={name!r}: was trained with your own encoder {description['name']!r}; give it as "
            "my_file.py:MyEncoder, a function that loads these weights with coulomb.models.load_encoder(folder, module=…)"
        )


def build_local(
    name: str, *, channels: int, image_size: int | None, seed: int, weights: bool, normalize: Normalization
) -> ImageNetwork:
    """Builds the encoder of ``run:PATH`` or of a folder, with its weights, normalization and preprocessing.

    Without ``weights``: the same architecture with random ones, which are drawn from ``seed``, and ``normalize``.

    Raises:
        InputError: as in `find`, or the weights are for other channels or sizes.
    """
    found = find(name)
    if isinstance(found, Published):
        with seeded_initialization(seed, "encoder", name):
            return assemble_published(name, found._replace(weights=weights), channels, image_size, normalize, {})
    encoder = require_images(load_encoder(found) if weights else random_encoder(found, seed), name)
    require_channels(name, encoder.channels, channels)
    if not weights:
        encoder.normalize = normalize
    return resized(encoder, name, image_size).train()


def resized(encoder: ImageNetwork, name: str, image_size: int | None) -> ImageNetwork:
    """Declares another image size; the architecture remains as it was built, and is tried with a blank image.

    Raises:
        InputError: the network takes images of one size only.
    """
    if image_size is not None and encoder.image_size != image_size:
        encoder.config["built_for"] = encoder.config.get("built_for", encoder.image_size)
        encoder.config["image_size"] = image_size
        try:
            measure_feature_dim(encoder, encoder.name, encoder.channels, image_size)
        except InputError as error:
            size = encoder.config["built_for"]
            raise InputError(
                f"encoder={name!r}: was trained at {size} pixels and cannot take {image_size} ({error}); give "
                f"--image-size {size}"
            ) from None
        if encoder.preprocessing is not None:
            encoder.preprocessing = encoder.preprocessing.at(image_size)
    return encoder
