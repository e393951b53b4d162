"""A run on disk: its encoder, its classifier, its figures."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.ground.reading import check_shape, read_object, text, whole
from coulomb.ground.text import visible
from coulomb.kinds.image.canvas import Canvas
from coulomb.models import Encoder, load_encoder
from coulomb.models.classification import Classification
from coulomb.models.classifier import Classifier, load_classifier
from coulomb.models.encode import source_features
from coulomb.models.image_encoder import ImageEncoder, open_encoder, require_all, run_path, with_check
from coulomb.tables.sources import open_images
from coulomb.training.plan.config import Config, load_config
from coulomb.training.record.folder import RunFolder, read_canvas, read_evaluation
from coulomb.training.record.journal import read_metrics


class Run(ImageEncoder):
    """A finished (or interrupted) run on disk.

    Args:
        path: the run folder.
        module: the user's own encoder, if the run was trained with one; its weights are replaced by those of the run.
    """

    def __init__(self, path: str | Path, module: nn.Module | None = None):
        self.folder = RunFolder(path)
        self._module = module
        self.device = None

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @cached_property
    def encoder(self) -> Encoder:
        """The trained encoder in eval mode: images [B, C, S, S] in [0, 1] → features [B, F].

        It refuses images of another size and values clearly outside [0, 1]; use `encode` for other images.
        """
        return with_check(load_encoder(self.path, module=self._module)).to(self.device)

    @cached_property
    def classifier(self) -> Classifier:
        """Features [B, F] → logits [B, C], if the run trained a classifier: supcon (second stage), softmax, paco, …"""
        return load_classifier(self.path, self.encoder.feature_dim)[0].to(self.device)

    @property
    def class_names(self) -> list[str] | None:
        """Names of the classes of the run's classifier; None if they have no names."""
        return load_classifier(self.path, self.encoder.feature_dim)[1]

    @torch.no_grad()
    def classify(
        self, images: Any, *, skip_unreadable: bool = False, batch_size: int = 256, workers: int = 0
    ) -> Classification:
        """Classifies any images with the run's classifier; returns names and probabilities of the classes.

        Args:
            images, batch_size, workers: as for `encode`.
            skip_unreadable: list images that cannot be read under ``failed`` instead of raising an error.

        Raises:
            InputError: the run has no classifier, or an image cannot be read.

        Example:
            >>> run.classify("a.jpg").top(2)
            [[('cat', 0.93), ('dog', 0.05)]]
        """
        classifier, names = self.classifier, self.class_names
        source = open_images(images)
        features, indices, failures = source_features(
            self.encoder, source, self.canvas, batch_size=batch_size, workers=workers
        )
        if not skip_unreadable:
            require_all(source, failures)
        probabilities = classifier(features.to(classifier.weight.device)).softmax(1).cpu()
        names = names or [str(label) for label in range(probabilities.shape[1])]
        failed = [{"id": source.item_id(index), "reason": reason} for index, reason in failures.items()]
        return Classification([source.item_id(int(index)) for index in indices], names, probabilities, failed)

    @property
    def canvas(self) -> Canvas | None:
        """How the run stored its images; None if its folder does not say, as for published weights."""
        written = read_canvas(self.folder)
        return None if written is None else Canvas(**written)

    @property
    def config(self) -> Config:
        """Every option of the run."""
        return load_config(self.folder.config)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_metrics(self.folder.metrics)

    @property
    def evaluation(self) -> dict[str, Any]:
        """The content of ``evaluation.json``."""
        return read_evaluation(self.folder)

    @property
    def doctor(self) -> dict[str, Any]:
        """The content of ``doctor.json``: the problems of the run, if any."""
        return read_object(self.folder.doctor, remedy="write it again with: coulomb doctor RUN")

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder.report

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def load(
    run: str | Path,
    module: nn.Module | None = None,
    *,
    image_size: int | None = None,
    device: str | torch.device | None = None,
) -> ImageEncoder:
    """Opens the encoder of a run, or published weights: ``coulomb.load("lite0").encode(images)``.

    Args:
        run: a run folder (also as ``run:PATH``), which gives a `Run`; or an encoder with weights, by the names of ``train``:
            ``lite0``, ``hf:NAME@weights``, ``timm:NAME@weights``, a local folder or ``.safetensors`` file of these
            libraries. Existing folders take precedence over names.
        module: the user's own encoder, if the run was trained with one.
        image_size: of the input of published weights, in pixels; default: their own. A run has its own.
        device: where the encoder computes, such as ``"cuda"``; default: the CPU. Features are returned on the CPU.

    Raises:
        InputError: the folder contains no encoder, no encoder has this name, or the device cannot be used.
    """
    opened = _open(run, module, image_size)
    opened.device = None if device is None else usable_device(device)
    return opened


def usable_device(device: str | torch.device) -> torch.device:
    """Returns a device; raises `InputError` if there is none of this name, or PyTorch cannot use it here."""
    try:
        wanted = torch.device(device)
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"device={str(device)!r}: cannot be used ({reason}); give 'cpu', or leave it out") from None
    return wanted


def _open(run: str | Path, module: nn.Module | None, image_size: int | None) -> ImageEncoder:
    path = run_path(run)
    if path is None:
        if module is not None:
            raise InputError(
                f"module={type(module).__name__}: belongs to a run, and {str(run)!r} is none; leave it out"
            )
        return open_encoder(str(run), image_size)
    if not (path / "encoder.json").is_file():
        if (path / "index.json").is_file():
            raise InputError(f"{str(run)!r}: is an index, not an encoder; {_encoder_of_index(path)}")
        raise InputError(f"{str(run)!r}: no trained encoder in it (encoder.json); train one, or --resume the run first")
    if image_size is not None:
        raise InputError(
            f"image_size={image_size}: the encoder of a run takes the size it was trained on; leave it out"
        )
    return Run(path, module)


ENCODER_OF_INDEX = {"name": text, "image_size": whole}  # of the entry ``encoder`` of ``index.json``


def _encoder_of_index(path: Path) -> str:
    """Returns what to give instead of an index: the encoder that it was built with."""
    info = path / "index.json"
    entry = check_shape(info, read_object(info).get("encoder"), ENCODER_OF_INDEX)
    size = "" if run_path(entry["name"]) else f" --image-size {entry['image_size']}"
    return f"give the encoder that it was built with: {visible(entry['name'])}{size}"
