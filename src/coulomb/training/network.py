"""The encoder, the method and the classifier of a run, with reproducible initial weights."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.data.samplers import class_probabilities
from coulomb.data.views import ViewMaker
from coulomb.errors import InputError
from coulomb.methods.making import SHARED, make_method
from coulomb.metrics.features import extract_features
from coulomb.metrics.linear import fit_probe
from coulomb.models import Encoder, build_encoder, wrap_encoder
from coulomb.models.classifier import Classifier
from coulomb.models.user_code import is_own_file
from coulomb.randomness import derive_seed, numpy_generator
from coulomb.runs.config import Config
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Prepared

log = logging.getLogger("coulomb")


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


def classifier_of(
    method: nn.Module, encoder: Encoder, prepared: Prepared, views: ViewMaker, seed: int, device: torch.device
) -> Classifier | None:
    """The method's own classifier, or a new one where it says ``two_stages``; None where it has neither."""
    if (made := getattr(method, "classifier", None)) is not None:
        found: Any = made()
        return found if isinstance(found, Classifier) else None
    if not getattr(method, "two_stages", False) or prepared.train.labels is None:
        return None
    log.info("second stage: a linear classifier on the frozen encoder")
    part = prepared.train
    features, kept = extract_features(encoder, part.images, part.indices, views.plain, device=device)
    classes = len(prepared.class_counts or [])
    return linear_classifier(features, torch.from_numpy(part.labels[kept]), classes, seed)  # type: ignore[index]


def linear_classifier(features: Tensor, labels: Tensor, classes: int, seed: int) -> Classifier | None:
    """Multinomial logistic regression on features [n, F] with labels [n] (−1: left out), as in the linear probe.

    The features are standardised, and C is chosen on a held-out fifth, all of it training images; the standardisation is
    then written into weights and bias, so that the classifier takes plain features. A class without images is never
    predicted (bias −∞). None when fewer than two classes have images.
    """
    x, y = features[labels >= 0], labels[labels >= 0]
    if len(y.unique()) < 2:
        log.warning("second stage left out: the training images have fewer than two classes")
        return None
    probe = fit_probe(x, y, numpy_generator(seed, "second stage").permutation(len(y)))
    model, std = probe.model, probe.std.double()
    slope, offset = (torch.from_numpy(part).double() for part in (model.coef_, model.intercept_))
    if len(slope) == 1:  # two classes: one logit, that of the second
        slope, offset = torch.cat([-slope / 2, slope / 2]), torch.cat([-offset / 2, offset / 2])
    seen = torch.from_numpy(model.classes_)
    weight, bias = torch.zeros(classes, x.shape[1], dtype=torch.double), torch.full((classes,), -torch.inf).double()
    weight[seen] = slope / std
    bias[seen] = offset - (slope / std) @ probe.mean.double()
    log.info("second stage: C = %g, %s", probe.C, "converged" if probe.converged else "stopped before it converged")
    return Classifier(weight, bias, how=f"logistic regression on the frozen encoder, L-BFGS, C = {probe.C:g}")


def predictions(classifier: Classifier, features: Tensor) -> Tensor:
    """Class numbers [n] of features [n, F]."""
    with torch.no_grad():
        return classifier.eval()(features).argmax(1)
