"""Evaluation of a run, on its data or on other data, compared with its starting point, no training, and raw pixels."""

import dataclasses
from pathlib import Path
from typing import Any

from coulomb.evaluation.assess_columns import assess_columns
from coulomb.evaluation.contestants import PIXELS, RETRIEVAL, assist, contestants, measure_all
from coulomb.evaluation.samples import save_samples
from coulomb.evaluation.verdict import verdict
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.team import Team
from coulomb.ground.text import safe_name, visible
from coulomb.metrics.knn import default_neighbors
from coulomb.models import Encoder
from coulomb.models.classifier import DESCRIPTION, Classifier, load_classifier
from coulomb.models.saving import read_description
from coulomb.tables import Source
from coulomb.tables.check_labels import label_like
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.facts import measure, open_data
from coulomb.training.plan.given import Given, data_name
from coulomb.training.plan.plan import prepare
from coulomb.training.plan.resolve import AnyPlan
from coulomb.training.record.folder import RunFolder, stored_bands
from coulomb.training.record.journal import read_metrics
from coulomb.training.record.provenance import environment

RAW = (
    f"the evaluation view, averaged to at most {PIXELS}×{PIXELS} pixels, normalized per channel by the training images"
)
START = "the network before training, with the weights that the run started from"


def assess(
    folder: RunFolder,
    plan: AnyPlan,
    *,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
    team: Team | None = None,
) -> dict[str, Any]:
    """Evaluates a run, writes ``evaluation.json`` and ``samples.npz``, and returns the content of the former.

    ``trained``, ``random_init``, ``raw_pixels``, and ``starting_point`` if the run started from weights, hold the metrics
    of `evaluate_features`, which are None without labels, and ``view_retrieval``. ``comparison`` holds the paired
    differences from the baselines (`coulomb.evaluation.compare`), ``verdict`` their summary
    (`coulomb.evaluation.verdict`), ``drift`` how far training moved the features from the starting point, ``samples`` what
    is found among the sampled images, see `coulomb.evaluation.samples.describe_samples`.

    Args:
        folder: the run.
        plan: the run's plan, with its images decoded.
        full: also fine-tune the encoders with 1%, 10% and all of the labels (``fine_tune``); may take longer than training.
        options: ``knn_k``, ``knn_sigma``, ``many_above`` or ``few_below`` in place of those in ``config.yaml``.
        progress: show progress bars.
        team: processes that share the work; all but the first compute features and return an empty dict.
    """
    if isinstance(plan, ColumnsPlan):
        if asked := [name for name, value in {"full": full or None, **(options or {})}.items() if value is not None]:
            raise InputError(f"{asked[0]}: has no effect on a run on columns; leave it out")
        return assess_columns(folder, plan, progress=progress)
    config, prepared, views = dataclasses.replace(plan.config, **(options or {})), plan.prepared, plan.views
    compared = contestants(config, folder, prepared, views, plan.module, trained_classifier(folder))
    if team is not None and team.rank:
        assist(compared, prepared, team)
        return {}
    result = measure_all(compared, prepared, config, full=full, progress=progress, team=team)
    metrics = read_metrics(folder.metrics)
    updates = max((int(line["step"]) for line in metrics if "loss" in line), default=0)
    samples = save_samples(folder.samples, compared["trained"].features, prepared, views, config.seed)
    result["samples"] = samples
    result["verdict"] = verdict(
        result["comparison"], dataclasses.asdict(config), updates, samples.get("effective_rank")
    )
    result["protocol"] = {
        "split": prepared.split,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "updates": updates,
        "epochs": config.epochs,
        "seed": config.seed,
        "data": config.data,
        "image_size": prepared.facts.image_size,
        **described_adapter(compared["trained"].encoder),
        **({"starting_point": START} if "starting_point" in result else {}),
        "raw_pixels": RAW,
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views",
        "versions": environment(),
    }
    write_json(folder.evaluation, result)
    return result


def described_adapter(encoder: Encoder | None) -> dict[str, str]:
    """Describes the adapter of the trained encoder, as an entry of the protocol; empty without an adapter."""
    adapter = encoder.config.get("adapter") if encoder is not None else None
    if adapter is None:
        return {}
    if adapter["kind"] == "whitening":
        how = f"whitened on the training images ({adapter['in']} to {adapter['out']} dimensions); baselines are not"
    else:
        how = "through the linear adapter that was trained behind it"
    return {"trained_features": f"of the network, {how}"}


def trained_classifier(folder: RunFolder) -> Classifier | None:
    """Returns the classifier that the run trained, None if it trained none."""
    if not (folder.path / DESCRIPTION).is_file():
        return None
    features = read_description(folder.path / "encoder.json")["feature_dim"]
    return load_classifier(folder.path, features)[0]


def transfer(
    folder: RunFolder,
    data: Any,
    test: Any = None,
    given: Given | None = None,
    *,
    labels: str | None = None,
    group: str | None = None,
    full: bool = False,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluates the run's frozen encoder on other ``data``, writes ``transfer/NAME.json`` into the run folder, returns it.

    Images are resized to the encoder's input size and converted to its channels. The metrics are the same as in `assess`, for
    the trained encoder, its starting point, the untrained encoder and the raw pixels of the same images.

    Args:
        folder: the run.
        data: labeled images: a name as for training, an array, a torch ``Dataset``.
        test: held-out images of the same classes; default: a stratified fifth of ``data``.
        given: objects that the run was trained with (encoder, views).
        labels: the column of a table that holds the labels.
        group: what must not be on both sides of the split, see `coulomb.tables.groups.find_groups`.
        full: also fine-tune the encoders on the data.
        options: ``knn_k`` (default: 200 from 10,000 training images, else 20), ``knn_sigma``, ``many_above``, ``few_below``.
        progress: show progress bars.

    Raises:
        InputError: ``data`` or ``test`` has no labels or cannot be read.
    """
    given = given or Given({})
    trained_on = load_config(folder.config)
    names: dict[str, Any] = {"data": data_name(data), "test": None if test is None else data_name(test)}
    split: dict[str, Any] = {
        "labels": labels,
        "root": None,
        "test_fraction": 0.2,
        "group": group,
        "long_tail": None,
        "sampler": "uniform",
    }
    config = dataclasses.replace(trained_on, **names, **split)
    sources = open_labeled(config, data, test)
    prepared = prepare(config, sources, measure(config, *sources, bands=stored_bands(folder)), progress=progress)
    k = default_neighbors(len(prepared.train.indices))
    config = dataclasses.replace(config, **{"knn_k": k} | (options or {}))
    views = given.build_views(trained_on, prepared.facts.image_size, prepared.facts.channels)
    compared = contestants(config, folder, prepared, views, given.module)
    result = measure_all(compared, prepared, config, full=full, on=sources[0].name, progress=progress)
    result["protocol"] = {
        "name": sources[0].name,
        **names,
        "split": prepared.split,
        "trained_on": trained_on.data,
        "seed": config.seed,
        "image_size": prepared.facts.image_size,
        "channels": prepared.facts.channels,
        "encoders": "frozen; they normalize by the images they were trained on",
        **described_adapter(compared["trained"].encoder),
        **({"starting_point": START} if "starting_point" in result else {}),
        "raw_pixels": f"{RAW} of this data",
        "view_retrieval": f"R@1 among at most {RETRIEVAL} held-out images, cosine of features of two views of the run",
        "versions": environment(),
    }
    folder.transfer.mkdir(exist_ok=True)
    write_json(folder.transfer / f"{safe_name(sources[0].name)}.json", result)
    return result


def open_labeled(config: Config, data: Any, test: Any) -> tuple[Source, Source | None]:
    """Opens labeled ``data`` and ``test``, which ``config`` names; raises `InputError` if one has no labels."""
    sources = open_data(config, *(None if isinstance(given, str | Path) else given for given in (data, test)))
    for name, source in zip(("data", "test"), sources, strict=True):
        if source is not None and source.labels is None:
            raise InputError(
                f"{name}={getattr(config, name)!r}: has no labels, so that nothing can be measured; {_give_labels(source)}"
            )
    return sources


def _give_labels(source: Source) -> str:
    """Returns how to give labels to a ``source`` that has none."""
    if columns := label_like(source):
        return f"name their column as labels (--labels {visible(columns[0]['name'])})"
    if source.has_paths:
        return "sort the images into a folder per class, or give a CSV file with columns path and label"
    if source.other_columns():
        return "name their column as labels (--labels COLUMN)"
    return "pass a pair (images, labels)"
