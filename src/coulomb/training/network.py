"""The encoder, the method and the classifier of a run, with reproducible initial weights."""

import copy
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import derive_seed, numpy_generator
from coulomb.kinds.image.views import ViewMaker
from coulomb.methods import Method
from coulomb.methods.options import SHARED, build_method
from coulomb.metrics.linear import fit_probe
from coulomb.models import Encoder, ImageNetwork, build_encoder, has_weights, load_encoder, save_encoder, wrap_encoder
from coulomb.models.classifier import Classifier
from coulomb.models.features import extract_features
from coulomb.models.image_network import require_images
from coulomb.models.micro_batches import batch_norms, require_size
from coulomb.models.saving import DESCRIPTION
from coulomb.models.tuning import Tune
from coulomb.models.user_code import is_user_code
from coulomb.tables.images import normalization
from coulomb.tables.split import class_probabilities
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.plan import Prepared

log = logging.getLogger("coulomb")


def make_encoder(config: Config, prepared: Prepared, module: nn.Module | None) -> ImageNetwork:
    """Builds the encoder of a run by its name, or around the user's module."""
    facts = prepared.facts
    mean, std = None, None
    if module is not None or not has_weights(config.encoder) or facts.channels not in (1, 3):  # weights have their own
        mean, std = pixel_statistics(prepared)
    if module is not None:
        return wrap_encoder(module, channels=facts.channels, image_size=facts.image_size, mean=mean, std=std)
    name = str(config.encoder)
    if is_user_code(name) or name.startswith("custom:"):
        raise InputError(
            f"encoder={name!r}: the run was trained with your own encoder; pass it again with --encoder "
            "my_file.py:MyEncoder (encoder=… in Python)"
        )
    return build_encoder(
        name,
        channels=facts.channels,
        image_size=facts.image_size,
        mean=mean,
        std=std,
        seed=derive_seed(config.seed, "encoder"),
        **config.encoder_options,
    )


def blank_encoder(config: Config, facts: Facts, module: nn.Module | None) -> Encoder:
    """Builds the encoder of a run with random weights, or a copy of the user's module; to check it or to time it.

    Raises:
        InputError: the options do not fit the encoder.
    """
    shared: dict[str, Any] = {"channels": facts.channels, "image_size": facts.image_size}
    if module is None:
        encoder = build_encoder(str(config.encoder), weights=False, **shared, **config.encoder_options)
        encoder.config["name"] = str(config.encoder)  # for messages
    else:
        encoder = wrap_encoder(copy.deepcopy(module), **shared)
    tune_encoder(config, encoder)
    return encoder


def tune_encoder(config: Config, encoder: Encoder) -> str:
    """Freezes what the run does not train, see `coulomb.models.tuning.Tune.apply`; returns a sentence for the log."""
    seed = derive_seed(config.seed, "lora")
    trains = Tune.parse(config.tune).apply(encoder, norm_statistics=config.norm_statistics, seed=seed)
    return f"tune={config.tune or 'all'}: {trains}"


def pixel_statistics(prepared: Prepared) -> tuple[list[float], list[float]]:
    """Returns mean [C] and standard deviation [C] of the training images, for values in [0, 1]."""
    mean, std = normalization(prepared.train.images, prepared.train.indices)
    return mean.tolist(), std.tolist()


def starting_encoder(
    config: Config,
    prepared: Prepared,
    initial: Path,
    module: nn.Module | None = None,
    *,
    resumed: bool = False,
    save: bool = False,
) -> ImageNetwork:
    """Returns the encoder with which a run begins, in training mode.

    One that starts from weights, or is a user's ``module``, is saved in the folder ``initial`` if ``save``. A resumed run
    loads weights from there, so that it needs neither the network nor the files that they came from. Of a user's module,
    the saved weights are the untrained baseline of the evaluation, as they cannot be made again.
    """
    saved = (initial / DESCRIPTION).is_file()  # written after the weights
    if module is not None:
        if (
            saved and config.frozen_kind is not None
        ):  # features may be cached, and the module may have other weights now
            return require_images(load_encoder(initial, module=module), initial).train()
        encoder = make_encoder(config, prepared, module)
        if save and not resumed:
            save_encoder(encoder, initial)
        return encoder
    if not has_weights(config.encoder):
        return make_encoder(config, prepared, None)
    if saved:
        return require_images(load_encoder(initial), initial).train()
    encoder = make_encoder(config, prepared, None).train()  # libraries return loaded models in eval mode
    if encoder.config.get("adapter", {}).get("kind") == "whitening":
        log.warning("%s: begins from the network without the whitening of its features", config.encoder)
        encoder.drop_adapter()
    if save:
        save_encoder(encoder, initial)
    return encoder


def set_micro_batch(encoder: Encoder, config: Config, images: int) -> None:
    """Makes the encoder run in micro-batches, before a method copies it; the log says how, and what batch norms do then.

    ``images``: images of this process in a step.

    Raises:
        InputError: the micro-batch is too small for batch norms.
    """
    size, views = config.micro_batch, images * config.n_views
    if size is None:
        return
    require_size(size, encoder.backbone)
    if size >= views:
        log.info("micro_batch=%d: has no effect, because the batch of a process has %d views", size, views)
        return
    encoder.micro_batch = size
    log.info(
        "micro_batch=%d: the encoder takes %d views in %d parts, twice; head and loss see all of them",
        size, views, -(-views // size),
    )  # fmt: skip
    if norms := batch_norms(encoder.backbone):
        log.warning(
            "micro_batch=%d: %d batch norms use the statistics of at most %d views, so this is another network than with the "
            "whole batch; --norm group (from scratch) or --norm-statistics frozen (from weights) make the two equal",
            size, norms, size,
        )  # fmt: skip


def compile_encoders(method: Method, device: torch.device) -> None:
    """Compiles the backbones of a method, including momentum encoders, after a trial of the compiler.

    Raises:
        InputError: torch.compile does not work on this machine.
    """
    try:
        torch.compile(torch.sin, fullgraph=True)(torch.ones(8, device=device))
    except Exception as error:  # compilers raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"compile=True: torch.compile fails on this machine ({reason}); leave it out") from None
    encoders = [part for part in method.modules() if isinstance(part, ImageNetwork)]
    for encoder in encoders:
        encoder.compile_backbone()
    log.info("compile: the encoder is compiled in the first step (%d with its copies)", len(encoders))


def make_method(config: Config, prepared: Prepared, made: type[Method], encoder: Encoder, images: int) -> Method:
    """Builds the method of a run, of class ``made``, for ``images`` training images; class counts are as the sampler draws."""
    counts = None if prepared.class_counts is None else torch.tensor(prepared.class_counts)
    if counts is not None and config.sampler != "uniform":
        counts = torch.from_numpy(class_probabilities(counts.numpy(), config.sampler)) * counts.sum()
    shared = {name: getattr(config, name) for name in SHARED} | {"seed": derive_seed(config.seed, "head")}
    if encoder.adapter is not None:  # it is the head
        shared |= {"embedding_dim": encoder.feature_dim, "head_layers": 0}
    return build_method(
        config.method,
        made,
        encoder,
        shared=shared,
        num_images=images,
        class_counts=counts,
        own=config.method_options,
    )


def make_classifier(
    method: Method, encoder: Encoder, prepared: Prepared, views: ViewMaker, seed: int, device: torch.device
) -> Classifier | None:
    """Returns the method's own classifier, or trains one if it has ``two_stages``; None if neither applies."""
    if (own := method.classifier()) is not None:
        return own if isinstance(own, Classifier) else None
    if not method.two_stages or prepared.train.labels is None:
        return None
    log.info("second stage: a linear classifier on the frozen encoder")
    part = prepared.train
    features, indices = extract_features(encoder, part.images, part.indices, views.plain, device=device)
    classes = len(prepared.class_counts or [])
    return linear_classifier(features, torch.from_numpy(part.labels[indices]), classes, seed)  # type: ignore[index]


def linear_classifier(features: Tensor, labels: Tensor, classes: int, seed: int) -> Classifier | None:
    """Fits a multinomial logistic regression on features [N, F] with labels [N] (−1: left out), as in the linear probe.

    Features are standardized, and C is chosen on a held-out fifth of the training images. The standardization is then folded
    into weights and bias, so that the classifier takes unscaled features. A class without images is never predicted (bias
    −∞). Returns None if fewer than two classes have images.
    """
    x, y = features[labels >= 0], labels[labels >= 0]
    if len(y.unique()) < 2:
        log.warning("second stage left out: the training images have fewer than two classes")
        return None
    probe = fit_probe(x, y, numpy_generator(seed, "second stage").permutation(len(y)))
    model, std = probe.model, probe.std.double()
    slope, offset = (torch.from_numpy(part).double() for part in (model.coef_, model.intercept_))
    if len(slope) == 1:  # two classes: one logit, for the second class
        slope, offset = torch.cat([-slope / 2, slope / 2]), torch.cat([-offset / 2, offset / 2])
    present = torch.from_numpy(model.classes_)
    weight, bias = torch.zeros(classes, x.shape[1], dtype=torch.double), torch.full((classes,), -torch.inf).double()
    weight[present] = slope / std
    bias[present] = offset - (slope / std) @ probe.mean.double()
    log.info("second stage: C = %g, %s", probe.C, "converged" if probe.converged else "stopped before convergence")
    return Classifier(weight, bias, how=f"logistic regression on the frozen encoder, L-BFGS, C = {probe.C:g}")


def predictions(classifier: Classifier, features: Tensor) -> Tensor:
    """Returns the class numbers [N] of features [N, F]."""
    with torch.no_grad():
        return classifier.eval()(features).argmax(1)
