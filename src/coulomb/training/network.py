"""The encoder and the method of a run, with their first weights: the same every time for the same seed."""

from typing import Any

import torch
from torch import nn

from coulomb.data.samplers import class_probabilities
from coulomb.errors import InputError
from coulomb.methods.making import SHARED, make_method
from coulomb.models import Encoder, build_encoder, wrap_encoder
from coulomb.models.own_file import is_own_file
from coulomb.randomness import derive_seed
from coulomb.runs.config import Config
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Prepared


def make_encoder(config: Config, prepared: Prepared, module: nn.Module | None) -> Encoder:
    """The encoder of a run: built by name, or around the user's module."""
    facts = prepared.facts
    mean, std = (each.tolist() for each in prepared.train.images.normalisation(indices=prepared.train.indices))
    if module is None and (is_own_file(str(config.encoder)) or str(config.encoder).startswith("custom:")):
        raise InputError(
            f"encoder={config.encoder!r}: the run has an encoder of your own; name it again with --encoder "
            "my_file.py:MyEncoder (encoder=… in Python)"
        )
    if module is not None:
        return wrap_encoder(module, channels=facts.channels, image_size=facts.image_size, mean=mean, std=std)
    width: dict[str, Any] = {} if config.encoder_width is None else {"width": config.encoder_width}
    return build_encoder(
        str(config.encoder),
        channels=facts.channels,
        image_size=facts.image_size,
        mean=mean,
        std=std,
        seed=derive_seed(config.seed, "encoder"),
        **width,
    )


def method_of(config: Config, prepared: Prepared, objects: Objects, encoder: Encoder, images: int) -> nn.Module:
    """The method around ``encoder``, told of its ``images`` and of the class counts as the sampler draws them."""
    counts = None if prepared.class_counts is None else torch.tensor(prepared.class_counts)
    if counts is not None and config.sampler != "uniform":
        counts = torch.from_numpy(class_probabilities(counts.numpy(), config.sampler)) * counts.sum()
    return make_method(
        config.method,
        objects.method_of(config),
        encoder,
        shared={name: getattr(config, name) for name in SHARED} | {"seed": derive_seed(config.seed, "head")},
        facts={
            "num_images": images,
            "class_counts": counts,
            "num_classes": None if counts is None else len(counts),
        },
        own=config.method_options,
    )
