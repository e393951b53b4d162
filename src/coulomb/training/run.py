"""A run on disk: its encoder, its classifier, its figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coulomb.ground.reading import read_object
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import load as load_encoder
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.trained_encoder import TrainedEncoder
from coulomb.training.plan.config import Config, load_config
from coulomb.training.record.folder import RunFolder, read_evaluation
from coulomb.training.record.journal import read_metrics


class Record:
    """The files of a run that describe it."""

    path: Path

    @property
    def folder(self) -> RunFolder:
        """The paths of the run's files."""
        return RunFolder(self.path)

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


class Run(Record, TrainedEncoder):
    """A finished (or interrupted) run on images, on disk.

    Args:
        path: the run folder.
        module: the user's own encoder, if the run was trained with one; its weights are replaced by the run's.

    >>> run = coulomb.train("digits", epochs=1, out="one-epoch", evaluate=False, progress=False)
    >>> run.encode(np.zeros((2, 8, 8, 1), np.uint8)).shape
    torch.Size([2, 256])
    """


class PairRun(Record, PairEncoder):
    """A finished (or interrupted) run on several columns, on disk.

    Args:
        path: the run folder.
        module: the user's own module, if a tower was trained with one, or modules by column.

    >>> sums = {"question": [f"{n} plus one?" for n in range(40)], "answer": [f"it is {n + 1}" for n in range(40)]}
    >>> options = {"encoder": "static-random", "epochs": 1, "batch_size": 8, "evaluate": False, "progress": False}
    >>> run = coulomb.train(sums, columns="question,answer", out="sums", **options)
    >>> sorted(run.columns)
    ['answer', 'question']
    """


def load(
    run: str | Path,
    module: nn.Module | Mapping[str, nn.Module] | None = None,
    *,
    image_size: int | None = None,
    device: str | torch.device | None = None,
) -> ImageEncoder | TextEncoder | PairEncoder:
    """Opens the encoder of a run, or published weights: ``coulomb.load("lite0").encode(images)``.

    ``coulomb.load("static").encode(texts)`` opens an encoder of texts: ``static``, ``hf:NAME@weights`` of a model of texts,
    or a folder that transformers, sentence-transformers or coulomb saved, such as ``RUN/towers/caption``. CLIP and SigLIP,
    ``coulomb.load("hf:openai/clip-vit-base-patch32@weights")`` or a folder, encode images and texts in one space, as a run on
    both does.

    Args:
        run: a run folder (also as ``run:PATH``), which gives a `Run`, or a `PairRun` if it was trained on several columns; or
            an encoder with weights, by the names of ``train``: ``lite0``, ``hf:NAME@weights``, ``timm:NAME@weights``, a local
            folder or ``.safetensors`` file of these libraries; or ``hf:USER/NAME``, a repository of the hub that
            `coulomb.export.push` wrote. Existing folders take precedence over names.
        module: the user's own encoder, if the run was trained with one; of several columns also modules by column.
        image_size: for published weights, side of the input in pixels; default: their size. A run has a fixed size.
        device: where the encoder computes, such as ``"cuda"``; default: the CPU. Features are returned on the CPU.

    Raises:
        InputError: the folder contains no encoder, no encoder has this name, or the device cannot be used.
    """
    return load_encoder(run, module, image_size=image_size, device=device, trained=Run, pair=PairRun)
