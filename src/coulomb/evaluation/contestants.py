"""The feature extractors of an evaluation: the trained encoder, its starting point, the untrained network, raw pixels."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.evaluation.comparison import BASELINES, VIEWS, compare
from coulomb.evaluation.drift import drift_figures
from coulomb.evaluation.fine_tuning import LabeledImages, fine_tune
from coulomb.ground.errors import InputError
from coulomb.ground.progress import Progress, differences, progress_bar
from coulomb.ground.randomness import derive_seed, generator
from coulomb.ground.team import Team
from coulomb.kinds.image.views import ViewMaker
from coulomb.metrics.evaluate import MEASUREMENTS, evaluate_features
from coulomb.metrics.retrieval import views_retrieved
from coulomb.models import ImageNetwork, has_weights, load_encoder
from coulomb.models.classifier import Classifier
from coulomb.models.features import extract_features, frozen, pixel_features
from coulomb.models.folding import folded
from coulomb.models.image_network import Normalization, require_images
from coulomb.models.saving import random_encoder
from coulomb.training.network import make_encoder, pixel_statistics, predictions
from coulomb.training.plan.config import Config
from coulomb.training.plan.plan import Part, Prepared
from coulomb.training.record.folder import RunFolder

log = logging.getLogger("coulomb")

BATCH = 512  # images per forward pass, see `extract_features`
RETRIEVAL = 2_000  # held-out images for view retrieval
DRIFT = 1_000  # held-out images for the comparison with the starting weights
PIXELS = 32  # side of the raw pixels; 50,000 images of 96 pixels would need 5.5 GB, and classifiers of them several times that
CACHED = 2**30  # bytes of features cached for a second contestant: 200,000 images of lite0


def averaged(images: Tensor) -> Tensor:
    """Returns images [B, C, S, S] averaged to at most 32×32 pixels."""
    return images if images.shape[-1] <= PIXELS else nn.functional.adaptive_avg_pool2d(images, PIXELS)


def measuring(advance: Progress, title: str) -> Callable[[str], None]:
    """Returns a function to call with the name of each measurement before it begins; the bar shows it after ``title``."""
    begun = 0

    def doing(measurement: str) -> None:
        nonlocal begun
        advance.doing(f"{title}: {measurement}")
        advance(min(begun, 1))
        begun += 1

    return doing


def measure_features(sides: list[Tensor], prepared: Prepared, config: Config, **options: Any) -> dict[str, Any]:
    """Returns `evaluate_features` of ``sides``, features and labels of both parts, with the settings of a run."""
    return evaluate_features(
        *sides,
        k=config.knn_k,
        sigma=config.knn_sigma,
        seed=config.seed,
        many_above=config.many_above,
        few_below=config.few_below,
        class_names=prepared.class_names,
        **options,
    )


@dataclass
class Contestant:
    """A feature extractor and its metrics: an encoder, or raw pixels.

    Args:
        encoder: the encoder.
        views: prepares images and draws their views.
        device: where the encoder computes.
        pixels: if given, the features are raw pixels, averaged to at most 32×32 and normalized by this.
        classifier: classifies the features, if the run trained one.
        network: the contestant without the adapter, if this encoder is an adapter behind a frozen network. The network's
            features are computed once for both: they are stored in ``network.cached`` until that contestant uses them.
        correct: which images the last `measure` classified correctly, for paired comparisons.
        cached: features for the next call of `features` with the same images.
    """

    encoder: ImageNetwork
    views: ViewMaker
    device: torch.device
    pixels: Normalization | None = None
    classifier: Classifier | None = None
    network: "Contestant | None" = None
    correct: dict[str, np.ndarray] = field(default_factory=dict)
    cached: dict[tuple[int, bytes], tuple[Tensor, np.ndarray]] = field(default_factory=dict)

    def shared_features(
        self, part: Part, team: Team, progress: Callable[[int], None] | None = None
    ) -> tuple[Tensor, np.ndarray]:
        """Returns the result of `features`, computed by all processes in whole batches; empty except in the first process."""
        if self.pixels is not None:  # takes longer to send than to compute
            return self.features(part, progress) if team.rank == 0 else (torch.empty(0, 0), np.empty(0, dtype=np.int64))
        batches = np.array_split(np.arange(0, len(part.indices), BATCH), team.world)[team.rank]
        share = part.indices[batches[0] : batches[-1] + BATCH] if len(batches) else part.indices[:0]
        shares = team.to_first(lambda: self.features(Part(part.images, share, part.labels), progress))
        found = [(features, indices) for features, indices in shares if len(indices)]
        if not found:
            return torch.empty(0, 0), np.empty(0, dtype=np.int64)
        return torch.cat([features for features, _ in found]), np.concatenate([indices for _, indices in found])

    def features(self, part: Part, progress: Callable[[int], None] | None = None) -> tuple[Tensor, np.ndarray]:
        """Returns features [n, F] of a part of the data and the indices [n] of its readable images.

        ``progress`` is called after each batch with the number of images processed so far.
        """
        if self.pixels is not None:
            return pixel_features(
                part.images,
                part.indices,
                lambda stack: self.embed(self.views.plain(stack)),
                workers=part.images.readers,
                progress=progress,
            )
        which = (id(part.images), part.indices.tobytes())
        if self.network is not None:
            features, indices = self.network.features(part, progress)
            if features.nbytes <= CACHED:
                self.network.cached[which] = features, indices
            adapter = self.encoder.adapter
            if adapter is None or not len(features):
                return features, indices
            with frozen(adapter):
                return torch.cat([adapter(rows.to(self.device)).cpu() for rows in features.split(BATCH)]), indices
        if which in self.cached:
            if progress is not None:
                progress(len(part.indices))
            return self.cached.pop(which)
        return extract_features(
            folded(self.encoder),
            part.images,
            part.indices,
            self.views.plain,
            batch_size=BATCH,
            device=self.device,
            workers=part.images.readers,
            progress=progress,
        )

    def embed(self, view: Tensor) -> Tensor:
        """Returns features [B, F] of views [B, C, S, S] in [0, 1]."""
        if self.pixels is not None:
            return self.pixels(averaged(view)).flatten(1)
        with frozen(self.encoder):
            features: Tensor = self.encoder(view.to(self.device))
        return features.float().cpu()

    def measure(
        self,
        prepared: Prepared,
        config: Config,
        title: str = "evaluating",
        progress: bool | None = False,
        team: Team | None = None,
    ) -> dict[str, Any]:
        """All metrics of the frozen features; without labels only ``view_retrieval``.

        With ``progress``, a bar named ``title`` counts the images, and another one the measurements.
        """
        labeled = prepared.train.labels is not None and prepared.test.labels is not None
        self.correct = {}
        sides = self._labeled_features(prepared, title, progress, team) if labeled else []
        with progress_bar(MEASUREMENTS + 1 if labeled else 1, title, progress) as advance:
            doing = measuring(advance, title)
            classifier = self.classifier
            classify = None if classifier is None else lambda features: predictions(classifier, features)
            more: dict[str, Any] = {"classifier": classify, "correct": self.correct, "doing": doing}
            result = measure_features(sides, prepared, config, **more) if labeled else no_figures()
            doing("retrieval of views")
            self.correct[VIEWS] = self.views_retrieved(prepared, config.seed)
            result[VIEWS] = float(self.correct[VIEWS].mean())
        return result

    def _labeled_features(
        self, prepared: Prepared, title: str, progress: bool | None, team: Team | None
    ) -> list[Tensor]:
        """Returns the features and labels of the training images, then the features and labels of the test images."""
        sides = []
        with progress_bar(len(prepared.train.indices) + len(prepared.test.indices), title, progress) as advance:
            for part in (prepared.train, prepared.test):
                count = differences(advance)
                features, indices = (
                    self.features(part, count) if team is None else self.shared_features(part, team, count)
                )
                assert part.labels is not None
                sides += [features, torch.from_numpy(part.labels[indices])]
        return sides

    def views_retrieved(self, prepared: Prepared, seed: int) -> np.ndarray:
        """Returns which of at most 2,000 held-out images are retrieved by their other view, bool [n]."""
        part = prepared.unseen.sample(RETRIEVAL, seed, "retrieval")
        pairs = []
        for number, batch in enumerate(part.images.batches(part.indices, 256, part.images.readers)):
            pair = self.views(batch.stack, generator(seed, "retrieval views", number), n=2)
            pairs.append(torch.stack([self.embed(view) for view in pair]))
        first, second = torch.cat(pairs, dim=1)
        return views_retrieved(first, second).numpy()

    def fine_tune_copy(self, prepared: Prepared, config: Config) -> dict[str, Any]:
        """Accuracy of a copy of the encoder after fine-tuning with 1%, 10% and all of the labels; see `fine_tune`."""
        sides = []
        for part in (prepared.train, prepared.test):
            if part.labels is None:
                raise InputError("full=True: fine-tuning needs labels, and the data has none.")
            sides.append(LabeledImages(part.images, part.indices, part.labels[part.indices]))
        return fine_tune(
            self.encoder,
            self.encoder.feature_dim,
            sides[0],
            sides[1],
            self.views,
            seed=config.seed,
            device=self.device,
            bf16=config.precision == "bf16",
            workers=prepared.train.images.readers,
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
    """Returns ``trained``, ``starting_point`` (of a run from weights), ``random_init`` and ``raw_pixels``.

    The starting point is the network as it was before training, with the weights that the run started from; the untrained
    network has the same architecture and random weights. Both are made from the run folder, without network. A user's
    ``module`` may or may not have been given trained weights, which cannot be known: its initial weights are the untrained
    network, and there is no starting point. It is copied, so that its weights and modes do not change.

    All encoders normalize their input as the trained one does. Raw pixels are normalized by the training images of
    ``prepared``, on which all are to be measured.
    """
    device = torch.device("cuda" if torch.cuda.is_available() and config.accelerator != "cpu" else "cpu")
    if module is not None and not folder.initial.exists():
        raise InputError(f"{str(folder.initial)!r}: missing; it holds the initial weights of the user's encoder")
    trained = require_images(load_encoder(folder.path, module=copy.deepcopy(module)), folder.path).to(device).eval()
    start = None
    if module is None and not has_weights(config.encoder):
        untrained = make_encoder(config, prepared, None)
        pixels = copy.deepcopy(untrained.normalize)
        untrained.normalize.load_state_dict(trained.normalize.state_dict())
    else:
        pixels = Normalization(prepared.facts.channels, *pixel_statistics(prepared))
    if module is not None:
        untrained = require_images(load_encoder(folder.initial, module=copy.deepcopy(module)), folder.initial)
    elif has_weights(config.encoder):
        start = require_images(load_encoder(folder.initial), folder.initial)
        seed = derive_seed(config.seed, "encoder")
        untrained = require_images(random_encoder(folder.initial, seed), folder.initial)
    found = {"trained": Contestant(trained, views, device, classifier=classifier)}
    if start is not None:
        found["starting_point"] = Contestant(start.to(device).eval(), views, device)
        if config.frozen_kind is not None and trained.adapter is not None and start.adapter is None:
            found["trained"].network = found["starting_point"]
    return found | {
        "random_init": Contestant(untrained.to(device).eval(), views, device),
        "raw_pixels": Contestant(trained, views, device, pixels=pixels),
    }


def measure_all(
    compared: dict[str, Contestant],
    prepared: Prepared,
    config: Config,
    *,
    full: bool = False,
    on: str = "",
    progress: bool | None = False,
    team: Team | None = None,
) -> dict[str, Any]:
    """Returns the metrics of each contestant, ``comparison`` of the trained encoder with the others, and ``drift``.

    ``drift``, for runs from weights, is the result of `drift_figures`. With ``full``, all encoders are fine-tuned as well.
    ``on`` names data other than the run's in the log. The other processes of ``team`` call `assist` meanwhile.
    """
    result: dict[str, Any] = {}
    for name, contestant in compared.items():
        log.info("evaluating %s%s", name, f" on {on}" if on else "")
        result[name] = contestant.measure(prepared, config, f"evaluating {name}", progress, team)
        if full and contestant.pixels is None:
            tuned = contestant.fine_tune_copy(prepared, config)
            result[name]["fine_tune"] = tuned["fractions"]
            result[name]["protocol"]["fine_tune"] = tuned["protocol"]
    trained = compared["trained"].correct
    result["comparison"] = [
        compare(name, trained, compared[baseline].correct, config.seed)
        for name, baseline in BASELINES.items()
        if baseline in compared
    ]
    if "starting_point" in compared:
        trained_x, start_x, untrained_x = (
            compared[name].features for name in ("trained", "starting_point", "random_init")
        )
        same_space = compared["trained"].encoder.adapter is None
        part = prepared.unseen.sample(DRIFT, config.seed, "drift")
        result["drift"] = drift_figures(trained_x, start_x, untrained_x, part, same_space=same_space)
    return result


def assist(compared: dict[str, Contestant], prepared: Prepared, team: Team) -> None:
    """Computes this process's shares of the features that the first process of ``team`` needs in `measure_all`."""
    if prepared.train.labels is None or prepared.test.labels is None:
        return
    for contestant in compared.values():
        for part in (prepared.train, prepared.test):
            contestant.shared_features(part, team)


def no_figures() -> dict[str, Any]:
    """Returns the result of `evaluate_features` for data without labels: every metric is None."""
    names = ("knn", "linear", "few_shot", "retrieval", "clustering", "by_frequency", "per_class")
    return dict.fromkeys(names) | {"protocol": {"labels": "none: not measured"}}
