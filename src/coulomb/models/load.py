"""Opens encoders: of a run folder, or published weights by name."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.reading import check_shape, read_object, text, whole
from coulomb.ground.text import visible
from coulomb.models import build_encoder, has_weights
from coulomb.models.backbones import BACKBONES
from coulomb.models.build_text import build_text_encoder, takes_texts
from coulomb.models.from_hub import hub_folder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.installed import installed_encoders
from coulomb.models.names import RUN, is_local, is_published, names_weights
from coulomb.models.pair_encoder import DESCRIPTION as TOWERS
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.published_pair import PublishedPair, is_published_pair
from coulomb.models.text_backbones import TEXT_BACKBONES
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.trained_encoder import TrainedEncoder


def load(
    run: str | Path,
    module: nn.Module | Mapping[str, nn.Module] | None = None,
    *,
    image_size: int | None = None,
    device: str | torch.device | None = None,
    trained: type[TrainedEncoder] = TrainedEncoder,
    pair: type[PairEncoder] = PairEncoder,
) -> ImageEncoder | TextEncoder | PairEncoder:
    """Opens the encoder of a run, or published weights; see `coulomb.load`.

    ``trained`` is `coulomb.Run` there, and ``pair`` `coulomb.PairRun`.
    """
    if module is None and run_path(run) is None:
        run = hub_folder(str(run)) or run
    path = run_path(run)
    opened: ImageEncoder | TextEncoder | PairEncoder
    if path is not None and (path / TOWERS).is_file():
        if image_size is not None:
            raise InputError(f"{str(run)!r}: is a run on several columns; leave out image_size")
        opened = pair(path, module)
    elif isinstance(module, Mapping):
        raise InputError(f"module: {str(run)!r} is no run on columns; give one module, or leave it out")
    elif path is None and module is None and is_published_pair(str(run)):
        opened = PublishedPair(str(run), image_size=image_size)
    else:
        opened = _open_text(str(run), module, image_size) or _open(run, module, image_size, trained)
    opened.device = None if device is None else usable_device(device)
    return opened


def of_images(opened: ImageEncoder | TextEncoder | PairEncoder) -> ImageEncoder:
    """Returns an opened encoder of images, of several columns the first one of images; raises `InputError` for others."""
    if isinstance(opened, PairEncoder):
        of_pair: ImageEncoder = opened.of_kind("image")
        return of_pair
    if not isinstance(opened, ImageEncoder):
        raise InputError(f"encoder={opened.name!r}: takes texts; an encoder of images is needed here")
    return opened


def _open_text(name: str, module: nn.Module | None, image_size: int | None) -> TextEncoder | None:
    """Opens an encoder of texts; returns None if ``name`` is none."""
    if module is None and name in TEXT_BACKBONES and name != "static" and not is_local(name):
        raise InputError(
            f"{name!r}: has random weights; give static, hf:NAME@weights, or a folder with an encoder of texts"
        )
    if module is not None or not has_text_weights(name):
        return None
    if image_size is not None:
        raise InputError(f"image_size={image_size}: {name} takes texts; leave it out")
    return TextEncoder(build_text_encoder(name), name)


def has_text_weights(name: str) -> bool:
    """Returns True for the name of an encoder of texts that has weights."""
    return (name == "static" or names_weights(name)) and takes_texts(name)


def _open(
    run: str | Path, module: nn.Module | None, image_size: int | None, trained: type[TrainedEncoder]
) -> ImageEncoder:
    path = run_path(run)
    if path is None:
        if module is not None:
            raise InputError(
                f"module={type(module).__name__}: belongs to a run, and {str(run)!r} is none; leave it out"
            )
        return open_published(str(run), image_size)
    if not (path / "encoder.json").is_file():
        if (path / "index.json").is_file():
            raise InputError(f"{str(run)!r}: is an index, not an encoder; {_encoder_of_index(path)}")
        raise InputError(f"{str(run)!r}: no trained encoder in it (encoder.json); train one, or --resume the run first")
    if image_size is not None:
        raise InputError(
            f"image_size={image_size}: the encoder of a run takes the size it was trained on; leave it out"
        )
    return trained(path, module)


def usable_device(device: str | torch.device) -> torch.device:
    """Returns a device; raises `InputError` if there is none of this name, or PyTorch cannot use it here."""
    try:
        wanted = torch.device(device)
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"device={str(device)!r}: cannot be used ({reason}); give 'cpu', or leave it out") from None
    return wanted


RUN_FILES = ("encoder.json", TOWERS, "config.yaml", "seeds.json")


def run_path(name: str | Path) -> Path | None:
    """Returns the folder if ``name`` (or ``run:NAME``) is one, None if it is to be the name of an encoder.

    Folders take precedence over names, except for folders of transformers, which have a ``config.json``.
    """
    path = Path(str(name).removeprefix(RUN)).expanduser()
    if path.name == "encoder.safetensors" and (path.parent / "encoder.json").is_file():
        return path.parent
    ours = any((path / file).is_file() for file in RUN_FILES)
    return path if ours or (path.is_dir() and not (path / "config.json").is_file()) else None


def require_weights(name: str) -> None:
    """Raises `InputError` unless an encoder of this name has weights."""
    if has_weights(name):
        return
    published = is_published(name)
    random = published or name in BACKBONES or name in installed_encoders()
    problem = "has random weights" if random else "neither a run folder nor an encoder"
    remedy = f"{name}@weights" if published else "a run folder, lite0, hf:NAME@weights or timm:NAME@weights"
    raise InputError(f"{name!r}: {problem}; give {remedy}{did_you_mean(name, filter(has_weights, BACKBONES))}")


def open_published(name: str, image_size: int | None = None) -> ImageEncoder:
    """Opens published weights by name, with the channels and, unless given, the image size of the weights.

    Raises:
        InputError: the encoder has no weights, see `require_weights`, or cannot be built, see `build_encoder`.
    """
    require_weights(name)
    return ImageEncoder(build_encoder(name, channels=3, image_size=image_size), name)


ENCODER_OF_INDEX = {"name": text}  # of the entry ``encoder`` of ``index.json``


def _encoder_of_index(path: Path) -> str:
    """Returns what to give instead of an index: the encoder that it was built with."""
    info = path / "index.json"
    entry = check_shape(info, read_object(info).get("encoder"), ENCODER_OF_INDEX)
    fixed = run_path(entry["name"]) is not None or "image_size" not in entry  # a run, or an encoder of texts
    size = "" if fixed else f" --image-size {check_shape(info, entry, {'image_size': whole})['image_size']}"
    return f"give the encoder that it was built with: {visible(entry['name'])}{size}"
