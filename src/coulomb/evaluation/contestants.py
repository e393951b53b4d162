"""What an evaluation compares: the trained encoder, the same untrained, and raw pixels, all measured the same way."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.data.workers import progress_bar
from coulomb.errors import InputError
from coulomb.evaluation.comparison import VIEWS, compare
from coulomb.evaluation.fine_tuning import LabelledImages, fine_tune
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.features import extract_features, frozen, pixel_features
from coulomb.metrics.retrieval import views_retrieved
from coulomb.models import Encoder, load_encoder
from coulomb.models.classifier import Classifier
from coulomb.models.encoder import Normalisation
from coulomb.randomness import generator
from coulomb.runs.config import Config
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Part, Prepared
from coulomb.training.network import make_encoder, predictions

log = logging.getLogger("coulomb")

RETRIEVAL = 2_000  # held-out images whose views are matched


@dataclass
class Contestant:
    """One of the three: an encoder, or with ``pixels`` the pixels that it sees, normalised per channel by that."""

    encoder: Encoder
    views: ViewMaker
    device: torch.device
    pixels: Normalisation | None = None
    classifier: Classifier | None = None
    correct: dict[str, np.ndarray] = field(default_factory=dict)  # by the last `measured`, for paired comparisons

    def features(self, part: Part, done: Callable[[int], None] | None = None) -> tuple[Tensor, np.ndarray]:
        """Features [n, F] of a part of the data, and the positions [n] of its readable images.

        ``done`` is called after each batch with the number of images so far.
        """
        normalise = self.pixels
        if normalise is not None:
            return pixel_features(
                part.images,
                part.indices,
                lambda canvas, aspect: normalise(self.views.plain(canvas, aspect)),
                progress=done,
            )
        return extract_features(
            self.encoder, part.images, part.indices, self.views.plain, device=self.device, progress=done
        )

    def embed(self, view: Tensor) -> Tensor:
        """Features [B, F] of views [B, C, S, S] in [0, 1]."""
        if self.pixels is not None:
            return self.pixels(view).flatten(1)
        with frozen(self.encoder):
            found: Tensor = self.encoder(view.to(self.device))
        return found.float().cpu()

    def measured(
        self, prepared: Prepared, config: Config, seed: int, what: str = "evaluating", progress: bool | None = False
    ) -> dict[str, Any]:
        """All figures of the frozen features; without labels only whether two views of an image find each other.

        With ``progress``, a bar named ``what`` counts the images and then the measurements.
        """
        labelled = prepared.train.labels is not None and prepared.test.labels is not None
        self.correct = {}
        images = (len(prepared.train.indices) + len(prepared.test.indices)) if labelled else 0
        with progress_bar(images + 2, what, progress) as advance:
            result = self._by_labels(prepared, config, seed, advance) if labelled else nothing()
            advance(1)
            self.correct[VIEWS] = self.views_retrieved(prepared, seed)
            result[VIEWS] = float(self.correct[VIEWS].mean())
            advance(1)
        return result

    def _by_labels(
        self, prepared: Prepared, config: Config, seed: int, advance: Callable[[int], None]
    ) -> dict[str, Any]:
        found = []
        for part in (prepared.train, prepared.test):
            before = 0

            def done(count: int) -> None:
                nonlocal before
                advance(count - before)
                before = count

            features, kept = self.features(part, done)
            assert part.labels is not None
            found += [features, torch.from_numpy(part.labels[kept])]
        classifier = self.classifier
        return evaluate_features(
            *found,
            k=config.knn_k,
            sigma=config.knn_sigma,
            seed=seed,
            many_above=config.many_above,
            few_below=config.few_below,
            class_names=prepared.class_names,
            classifier=None if classifier is None else lambda features: predictions(classifier, features),
            correct=self.correct,
        )

    def views_retrieved(self, prepared: Prepared, seed: int) -> np.ndarray:
        """Which held-out images are found by their other view, bool [n]."""
        part = prepared.unseen.sample(RETRIEVAL, seed, "retrieval")
        found = []
        for number, batch in enumerate(part.images.batches(part.indices, 256)):
            pair = self.views(batch["image"], generator(seed, "retrieval views", number), n=2, aspect=batch["aspect"])
            found.append(torch.stack([self.embed(view) for view in pair]))
        first, second = torch.cat(found, dim=1)
        return views_retrieved(first, second).numpy()

    def fine_tuned(self, prepared: Prepared, config: Config, seed: int) -> dict[str, Any]:
        """Accuracy after fine-tuning a copy with 1%, 10% and all of the labels."""
        sides = []
        for part in (prepared.train, prepared.test):
            if part.labels is None:
                raise InputError("fine-tuning needs labels, and there are none.")
            sides.append(LabelledImages(part.images, part.indices, part.labels[part.indices]))
        return fine_tune(
            self.encoder,
            self.encoder.feature_dim,
            sides[0],
            sides[1],
            self.views,
            seed=seed,
            device=self.device,
            bf16=config.precision == "bf16",
            workers=0 if prepared.train.images.cached else prepared.train.images.workers,
            say=log.info,
        )


def contestants(
    config: Config,
    folder: RunFolder,
    prepared: Prepared,
    views: ViewMaker,
    module: nn.Module | None,
    classifier: Classifier | None = None,
) -> dict[str, Contestant]:
    """``trained``, ``random_init`` and ``raw_pixels``, ready to be measured on ``prepared``.

    A user's own ``module`` is copied: it keeps its weights and its modes. On data that the run was not trained on, the
    untrained encoder normalises as the trained one does, and raw pixels by the statistics of the data they are of.
    """
    device = torch.device("cuda" if torch.cuda.is_available() and config.accelerator != "cpu" else "cpu")
    if module is not None and not folder.initial.exists():
        raise InputError(f"{str(folder.initial)!r}: missing; it holds the first weights of the run's own encoder")
    trained = load_encoder(folder.path, module=copy.deepcopy(module)).to(device).eval()
    untrained = make_encoder(config, prepared, copy.deepcopy(module))
    pixels = copy.deepcopy(untrained.normalise)
    if module is None:
        untrained.normalise.load_state_dict(trained.normalise.state_dict())
    else:
        untrained = load_encoder(folder.initial, module=copy.deepcopy(module))
    return {
        "trained": Contestant(trained, views, device, classifier=classifier),
        "random_init": Contestant(untrained.to(device).eval(), views, device),
        "raw_pixels": Contestant(trained, views, device, pixels=pixels),
    }


def compared_with_baselines(made: dict[str, Contestant], seed: int) -> list[dict[str, Any]]:
    """The trained encoder against raw pixels and against the untrained network, after all three were measured."""
    baselines = {"raw_pixels": "raw_pixels", "untrained": "random_init"}
    return [compare(name, made["trained"].correct, made[key].correct, seed) for name, key in baselines.items()]


def nothing() -> dict[str, Any]:
    """The figures of data without labels."""
    names = ("knn", "linear", "few_shot", "retrieval", "clustering", "by_frequency", "per_class")
    return dict.fromkeys(names) | {"protocol": {"labels": "none: nothing to measure by"}}
