"""The encoder in a run folder, with its classifier."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coulomb.ground.reading import maybe, read_object
from coulomb.kinds.image.canvas import STORED_CANVAS, Canvas
from coulomb.models import ImageNetwork, load_encoder
from coulomb.models.classification import Classification
from coulomb.models.classifier import Classifier, load_classifier
from coulomb.models.image_encoder import ImageEncoder, with_check
from coulomb.models.image_network import require_images

CANVAS = {"canvas": maybe(STORED_CANVAS)}


class TrainedEncoder(ImageEncoder):
    """The encoder that a run has trained, and its classifier if it has one.

    Args:
        path: the run folder.
        module: the user's own encoder, if the run was trained with one; its weights are replaced by the run's.
    """

    def __init__(self, path: str | Path, module: nn.Module | None = None):
        self.path = Path(path)
        self.name = str(self.path.resolve())
        self._module = module
        self.device = None

    @cached_property
    def encoder(self) -> ImageNetwork:
        """The trained encoder in eval mode: images [B, C, S, S] in [0, 1] → features [B, F].

        It refuses images of another size and values clearly outside [0, 1]; use `encode` for other images.
        """
        encoder = require_images(load_encoder(self.path, module=self._module), self.path)
        return with_check(encoder).to(self.device)

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
        features, ids, failed = self._read(
            images, batch_size=batch_size, workers=workers, skip_unreadable=skip_unreadable
        )
        probabilities = classifier(features.to(classifier.weight.device)).softmax(1).cpu()
        names = names or [str(label) for label in range(probabilities.shape[1])]
        return Classification(ids, names, probabilities, failed)

    @cached_property
    def canvas(self) -> Canvas | None:
        """How the run stored its images; None if its folder does not say, as for published weights."""
        data, shared = self.path / "data.json", self.path / "config.json"
        if data.exists():
            stored = read_object(data, CANVAS).get("canvas")
        elif shared.exists():
            stored = read_object(shared, CANVAS, remedy="download the folder again").get("canvas")
        else:
            stored = None
        return None if stored is None else Canvas.from_dict(stored)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"
