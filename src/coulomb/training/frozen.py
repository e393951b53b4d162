"""Linear adapters: learned behind a frozen backbone, or whitening in closed form, which may also follow a training."""

import logging
from pathlib import Path

import torch

from coulomb.ground.progress import progress_bar
from coulomb.kinds.image.views import ViewMaker
from coulomb.models import Encoder
from coulomb.models.adapter import set_whitening
from coulomb.models.features import frozen
from coulomb.models.folding import folded
from coulomb.models.whitening import Moments, whitening
from coulomb.training.checkpoints import does_not_fit, method_state
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Part

log = logging.getLogger("coulomb")

BATCH = 256  # images per forward pass


def add_adapter(
    encoder: Encoder,
    config: Config,
    part: Part,
    views: ViewMaker,
    device: torch.device,
    *,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> None:
    """Freezes the backbone and adds an adapter (`coulomb.models.adapter`): the identity, or with ``tune="whiten"`` the
    whitening of the features of the training images.

    With ``checkpoint``, only the shape is restored; the weights are loaded with the checkpoint.

    Args:
        encoder: moved to ``device``, where its features are computed.
        config: configuration of the run; ``embedding_dim`` is the largest width of a whitening's output.
        part: the training images.
        views: for their plain view.
        checkpoint: to resume from.
        progress: show a progress bar.

    Raises:
        InputError: a feature is NaN or infinite, or all features are equal.
    """
    encoder.to(device).freeze()
    width = encoder.feature_dim
    if config.frozen_kind != "whiten":
        encoder.attach_adapter({"kind": "linear", "in": width, "out": width})
        encoder.to(device)
        return
    if checkpoint is None:
        whiten(encoder, part, views, device, dim=config.embedding_dim, power=config.whitening, progress=progress)
        return
    encoder.attach_adapter({"kind": "whitening", "in": width, "out": saved_dim(checkpoint)})
    encoder.to(device)


def whiten(
    encoder: Encoder,
    part: Part,
    views: ViewMaker,
    device: torch.device,
    *,
    dim: int,
    power: float,
    progress: bool = False,
) -> None:
    """Adds the whitening of the features of images, in at most ``dim`` dimensions; see `coulomb.models.whitening`.

    ``encoder`` is on ``device``. See `add_adapter` for the other arguments and errors.
    """
    moments = feature_moments(encoder, part, views, device, progress=progress)
    width, linear = encoder.feature_dim, whitening(moments, dim, power)
    found = len(linear[1])
    rank = f", not {dim}: that is their rank" if found < dim else ""
    log.info(
        "whitened the features of %d images (power %g): %d to %d dimensions%s",
        moments.count, power, width, found, rank,
    )  # fmt: skip
    encoder.attach_adapter({"kind": "whitening", "in": width, "out": found})
    encoder.to(device)
    assert isinstance(encoder.adapter, torch.nn.Linear)
    set_whitening(encoder.adapter, *linear)


def feature_moments(
    encoder: Encoder,
    part: Part,
    views: ViewMaker,
    device: torch.device,
    *,
    progress: bool = False,
) -> Moments:
    """Accumulates the moments of the features of the plain view of images; unreadable images are left out."""
    moments = Moments(encoder.feature_dim)
    network = folded(encoder)
    with frozen(network), progress_bar(len(part.indices), "computing features", progress) as advance:
        for batch in part.images.batches(part.indices, BATCH, part.images.readers):
            if len(batch):
                plain = views.plain(batch.stack.to(device))
                moments.add(network.backbone_features(plain))
            advance(len(batch) + len(batch.failed))
    return moments


def saved_dim(checkpoint: Path) -> int:
    """Returns the output width of the whitening in a checkpoint; raises `InputError` if it has none."""
    state = method_state(checkpoint)
    weight = state.get("tower.encoder.adapter.weight")
    if weight is None or weight.ndim != 2:
        raise does_not_fit(checkpoint, LookupError("tower.encoder.adapter.weight"))
    return len(weight)
