"""The evaluation of a run: the trained encoder beside an untrained one and raw pixels, all measured the same way."""

import dataclasses
import logging
from typing import Any

from coulomb.assessment.contestants import RETRIEVAL, compared_with_baselines, contestants
from coulomb.assessment.samples import save_samples
from coulomb.evaluation import verdict
from coulomb.models.classifier import DESCRIPTION, Classifier, load_classifier
from coulomb.models.saving import read_description
from coulomb.runs.config import load_config
from coulomb.runs.environment import environment
from coulomb.runs.journal import read_metrics
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Prepared
from coulomb.runs.run_folder import RunFolder, write_json
from coulomb.training.launch import reopen

log = logging.getLogger("coulomb")

PIXELS = "the evaluation view, normalised per channel by the training images as the encoder's input is"


def assess(
    folder: RunFolder,
    prepared: Prepared | None = None,
    objects: Objects | None = None,
    *,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluate a run, write ``evaluation.json`` and ``samples.npz``, and return the former.

    For each of ``trained``, ``random_init`` and ``raw_pixels`` the figures of `evaluate_features`; without labels these are
    None and ``view_retrieval`` says how often the two views of an image find each other. ``comparison`` holds the paired
    differences from both baselines (`coulomb.evaluation.compare`), ``verdict`` what they amount to
    (`coulomb.evaluation.verdict`).

    Args:
        folder: the run.
        prepared: the run's data, when at hand; else opened and decoded again as ``config.yaml`` says.
        objects: what the run was handed over in Python (data, encoder, views), if anything.
        full: fine-tune both encoders too, with 1%, 10% and all of the labels (``fine_tune``); this may take longer than the
            training did.
        options: ``knn_k``, ``knn_sigma``, ``many_above``, ``few_below`` other than in ``config.yaml``.
        progress: show what goes on.
    """
    objects = objects or Objects()
    config = load_config(folder.config)
    if prepared is None:
        config, prepared = reopen(folder, objects, progress=progress)
    config = dataclasses.replace(config, **(options or {}))
    views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
    compared = contestants(config, folder, prepared, views, objects.encoder, classifier_of(folder))
    result: dict[str, Any] = {}
    for name, contestant in compared.items():
        log.info("evaluating %s", name)
        result[name] = contestant.measured(prepared, config, config.seed, f"evaluating {name}", progress)
        if full and contestant.pixels is None:
            tuned = contestant.fine_tuned(prepared, config, config.seed)
            result[name]["fine_tune"] = tuned["fractions"]
            result[name]["protocol"]["fine_tune"] = tuned["protocol"]
    metrics = read_metrics(folder.metrics)
    updates = max((int(line["step"]) for line in metrics if "loss" in line), default=0)
    result["comparison"] = compared_with_baselines(compared, config.seed)
    result["verdict"] = verdict(result["comparison"], dataclasses.asdict(config), updates)
    result["protocol"] = {
        "split": prepared.split,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "epochs": config.epochs,
        "seed": config.seed,
        "data": config.data,
        "image_size": prepared.facts.image_size,
        "raw_pixels": PIXELS,
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views",
        "versions": environment(),
    }
    write_json(folder.evaluation, result)
    save_samples(folder.samples, compared["trained"].features, prepared, views, config.seed)
    return result


def classifier_of(folder: RunFolder) -> Classifier | None:
    """The classifier that the run trained, if any."""
    if not (folder.path / DESCRIPTION).is_file():
        return None
    features = read_description(folder.path / "encoder.json")["feature_dim"]
    return load_classifier(folder.path, features)[0]
