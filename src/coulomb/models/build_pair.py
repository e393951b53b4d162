"""Both encoders of a published model for images and texts: CLIP and SigLIP."""

import math
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.models.build import build_encoder
from coulomb.models.build_text import build_text_encoder, published_source
from coulomb.models.encoder import Encoder
from coulomb.models.image_network import ImageNetwork
from coulomb.models.library_preprocessing import first_line
from coulomb.models.names import Published, is_local
from coulomb.models.published import import_library, quiet
from coulomb.models.text_layout import Repository
from coulomb.models.text_network import TextNetwork

NEEDED = ("text_config", "vision_config")


class Pair(NamedTuple):
    """Encoders of images and texts with a common space of features, and how their similarities become logits.

    Attributes:
        image: images [B, 3, S, S] in [0, 1] → features [B, D].
        text: tokens → features [B, D].
        temperature: logits are cosines divided by it; e^(−``logit_scale``) of the model.
        bias: added to the logits of SigLIP; None for CLIP. With random weights, both are the initial values of the papers.
    """

    image: ImageNetwork
    text: TextNetwork
    temperature: float
    bias: float | None


def is_pair(name: str | None) -> bool:
    """Returns True for a folder, or ``hf:NAME``, that holds a model for images and texts.

    Of ``hf:NAME``, the configuration is downloaded. Raises `InputError` if it cannot be read.
    """
    source = None if name is None else published_source(name)
    if source is None or name is None:
        return False
    if is_local(name):
        return all(isinstance(Repository(source.name, name).entries("config.json").get(each), dict) for each in NEEDED)
    return all(getattr(_configuration(source, name), each, None) is not None for each in NEEDED)


def build_pair(
    name: str, *, image_size: int | None = None, longest: int | None = None, seed: int = 0, weights: bool = True
) -> Pair:
    """Builds both encoders of a model for images and texts, each with its projection as an adapter.

    Features equal those of ``get_image_features`` and ``get_text_features`` of transformers; cosines between them are what the
    model was trained for.

    Args:
        name: ``hf:NAME@weights`` such as hf:openai/clip-vit-base-patch32@weights, ``hf:NAME`` for random weights, or a folder.
        image_size: side of the square images in pixels; default: the size of the weights.
        longest: tokens of a text that are used; default: all that the model takes.
        seed: seed of random weights. The global random state is neither used nor changed.
        weights: False builds the same architecture with random weights.

    Raises:
        InputError: the model is not one for images and texts, cannot be built, or a library is missing.
    """
    source = published_source(name)
    if source is None:
        raise InputError(f"encoder={name!r}: must be hf:NAME@weights or a folder, with a model for images and texts")
    weights = weights and source.weights
    config = _configuration(source, name)
    if missing := [each for each in NEEDED if getattr(config, each, None) is None]:
        raise InputError(f"encoder={name!r}: its config.json has no {missing[0]}; give a model for images and texts")
    size = image_size or (None if weights else config.vision_config.image_size)
    image = build_encoder(name, channels=3, image_size=size, seed=seed, weights=weights)
    text = build_text_encoder(name, longest=longest, seed=seed, weights=weights)
    tensors = _tensors(source, name, config) if weights else {}
    for encoder, key in ((image, "visual_projection"), (text, "text_projection")):
        _project(encoder, tensors.get(f"{key}.weight"), getattr(config, "projection_dim", None), seed)
    if image.feature_dim != text.feature_dim:
        raise InputError(
            f"encoder={name!r}: its features have {image.feature_dim} values of images and {text.feature_dim} of texts, and "
            f"no projection joins them; models of type {config.model_type} are not supported"
        )
    return Pair(image, text, *_scale(config, tensors))


class PairFacts(NamedTuple):
    """What is known of a model for images and texts before it is built.

    Attributes:
        image_size: side of its images in pixels.
        temperature, bias: see `Pair`.
    """

    image_size: int
    temperature: float
    bias: float | None


def pair_facts(name: str) -> PairFacts:
    """Returns facts of a model for images and texts, see `build_pair`, whose networks are not built.

    Raises:
        InputError: as `build_pair`.
    """
    source = published_source(name)
    assert source is not None
    config = _configuration(source, name)
    scale, bias = _scale(config, _tensors(source, name, config) if source.weights else {})
    return PairFacts(int(config.vision_config.image_size), scale, bias)


def _scale(config: Any, tensors: dict[str, Tensor]) -> tuple[float, float | None]:
    """Returns the temperature and the bias of the logits: those of the weights, else the initial ones."""
    scale = tensors.get("logit_scale", torch.tensor(float(getattr(config, "logit_scale_init_value", math.log(10)))))
    bias = tensors.get("logit_bias", torch.tensor(-10.0) if config.model_type.startswith("siglip") else None)
    return math.exp(-float(scale)), None if bias is None else float(bias)


def _project(encoder: Encoder, weight: Tensor | None, width: int | None, seed: int) -> None:
    """Adds the projection of a tower as an adapter, with ``weight`` or with random weights; none if it has no projection."""
    if weight is None and width is None:
        return
    out = int(len(weight) if weight is not None else width or 0)
    encoder.attach_adapter({"kind": "linear", "in": encoder.feature_dim, "out": out}, seed=seed)
    if weight is not None and encoder.adapter is not None:
        encoder.adapter.load_state_dict({"weight": weight.float()})


def _configuration(source: Published, name: str) -> Any:
    transformers = import_library("hf")
    try:
        if source.name in transformers.CONFIG_MAPPING:
            return transformers.AutoConfig.for_model(source.name)
        return transformers.AutoConfig.from_pretrained(source.name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"encoder={name!r}: no such configuration ({first_line(error)}); give a name of the hub or a local folder"
        ) from None


WANTED = ("visual_projection.weight", "text_projection.weight", "logit_scale", "logit_bias")


def _tensors(source: Published, name: str, config: Any) -> dict[str, Tensor]:
    """Returns the projections and the scale of the logits, those of ``WANTED`` that the model has."""
    path = Repository(source.name, name).file("model.safetensors")
    if path is not None:
        try:
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys() if key in WANTED}  # noqa: SIM118, no dictionary
        except (OSError, SafetensorError) as error:
            raise InputError(f"encoder={name!r}: {path} is damaged ({error})") from None
    try:
        with quiet():
            model = import_library("hf").AutoModel.from_pretrained(source.name, config=config)
    except Exception as error:
        raise InputError(f"encoder={name!r}: its weights could not be loaded ({first_line(error)})") from error
    return {key: tensor for key, tensor in model.state_dict().items() if key in WANTED}
