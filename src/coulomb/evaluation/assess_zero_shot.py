"""Evaluation of a run on pictures and texts on labeled images: by the words of their classes, beside its image tower."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from coulomb.evaluation.assess import open_labeled
from coulomb.evaluation.contestants import measure_features, measuring
from coulomb.evaluation.starting_tower import starting_tower
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_json
from coulomb.ground.progress import progress_bar
from coulomb.ground.text import safe_name, visible
from coulomb.index.named_classes import check_prompts
from coulomb.metrics.evaluate import MEASUREMENTS
from coulomb.metrics.knn import default_neighbors
from coulomb.metrics.zero_shot import class_embeddings, class_prompts, zero_shot
from coulomb.models import ImageNetwork
from coulomb.models.encode import source_features
from coulomb.models.image_encoder import ImageEncoder, with_check
from coulomb.models.pair_encoder import PairEncoder
from coulomb.tables import Source
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.facts import measure
from coulomb.training.plan.given import data_name
from coulomb.training.plan.plan import Part, arrange
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.provenance import environment

Side = tuple[torch.Tensor, torch.Tensor]  # features [n, F], labels [n]


def assess_zero_shot(
    folder: RunFolder,
    data: Any,
    test: Any = None,
    *,
    prompts: str | Sequence[str] | None = None,
    labels: str | None = None,
    group: str | None = None,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Evaluates a run on columns on labeled images, writes ``transfer/NAME.json`` into its folder, and returns the content.

    ``zero_shot`` holds the accuracy of the most similar class name on the held-out images, see `coulomb.metrics.zero_shot`:
    no image of ``data`` is used for it. ``trained`` and ``starting_point`` hold the metrics of `evaluate_features` on the
    same images, of the image tower in the shared space, and before training: kNN and linear probe, which learn from the
    labels of the other images. A run without texts has no ``zero_shot``.

    Args:
        folder: the run.
        data: labeled images, whose classes have names.
        test: held-out images of the same classes; default: a stratified fifth of ``data``.
        prompts: templates of texts in which ``{}`` is the name of the class, "_" read as a space; default "a photo of a {}".
            The embedding of a class is the mean over the templates.
        labels: the column of a table that holds the labels.
        group: what must not be on both sides of the split, see `coulomb.tables.groups.find_groups`.
        options: ``knn_k`` (default: 200 from 10,000 training images, else 20), ``knn_sigma``, ``many_above``, ``few_below``.
        progress: show progress bars.

    Raises:
        InputError: the run has no column of images, ``data`` has no labels or its classes no names, or a template has no {}.
    """
    pair = PairEncoder(folder.path)
    tower, trained_on = pair.of_kind("image"), load_config(folder.config)
    if not pair.has_kind("text") and prompts is not None:
        raise InputError(
            f"prompts: {pair.name} has no column of texts, so that names mean nothing to it; leave them out"
        )
    templates = check_prompts(prompts)
    names: dict[str, Any] = {"data": data_name(data), "test": None if test is None else data_name(test)}
    size = {"image_size": tower.encoder.image_size, "channels": tower.encoder.channels}
    config = Config(**names, **size, labels=labels, group=group, seed=trained_on.seed)
    sources = open_labeled(config, data, test)
    classes = sources[0].class_names
    if pair.has_kind("text") and classes is None:
        raise InputError(
            f"data={visible(names['data'])!r}: its classes have numbers and no names, so that words cannot name them; give a "
            "column of names as labels (--labels COLUMN), or a folder per class"
        )
    prepared = arrange(config, sources, measure(config, *sources))
    config = dataclasses.replace(config, **{"knn_k": default_neighbors(len(prepared.train.indices))} | (options or {}))
    failed: dict[str, str] = {}
    result: dict[str, Any] = {}
    for name, encoder in _contestants(folder, pair, tower).items():
        sides = [_features(part, encoder, tower, failed, progress) for part in (prepared.train, prepared.test)]
        with progress_bar(MEASUREMENTS, f"evaluating {name}", progress) as advance:
            doing = measuring(advance, f"evaluating {name}")
            (x, y), (test_x, test_y) = sides
            result[name] = measure_features([x, y, test_x, test_y], prepared, config, doing=doing)
        if name == "trained" and pair.has_kind("text"):
            assert classes is not None
            words = [each.replace("_", " ") for each in classes]
            texts = pair.of_kind("text").encode(class_prompts(words, templates))
            found = zero_shot(test_x, test_y, class_embeddings(texts, len(words)))
            result["zero_shot"] = found | {"classes": list(classes)}
            result["zero_shot"]["protocol"] |= {"prompts": list(templates)}
    result["protocol"] = {
        "name": sources[0].name,
        **names,
        "split": prepared.split,
        "trained_on": trained_on.data,
        "seed": config.seed,
        **size,
        "encoders": "frozen; the image tower with its linear map into the shared space, and before training without it",
        "zero_shot": "on the held-out images; no image and no label of this data is used",
        "versions": environment(),
    }
    result["failed"] = [{"id": id_, "reason": reason} for id_, reason in failed.items()]
    folder.transfer.mkdir(exist_ok=True)
    write_json(folder.transfer / f"{safe_name(sources[0].name)}.json", result)
    return result


def _contestants(folder: RunFolder, pair: PairEncoder, tower: ImageEncoder) -> dict[str, ImageNetwork]:
    """Returns the image tower after training and, if the run has it, before."""
    found: dict[str, ImageNetwork] = {"trained": tower.encoder}
    column = next(name for name, each in pair.columns.items() if each["kind"] == "image")
    before = starting_tower(folder, pair, column)
    if before is not None:
        name, network = before
        assert isinstance(network, ImageNetwork)
        found[name] = with_check(network)
    return found


def _features(part: Part, encoder: ImageNetwork, tower: ImageEncoder, failed: dict[str, str], progress: bool) -> Side:
    """Returns the features and labels of the readable images of a part; adds the others to ``failed``."""
    source, device = part.images.table, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert isinstance(source, Source)
    with progress_bar(len(part.indices), "encoding", progress) as advance:
        features, readable, failures = source_features(
            encoder.to(device),
            source,
            tower.canvas,
            part.indices.tolist(),
            workers=cores(),
            device=device,
            advance=advance,
        )
    failed |= {source.item_id(index): reason for index, reason in failures.items()}
    if not len(readable):
        index, reason = next(iter(failures.items()))
        raise InputError(
            f"{source.name!r}: none of {len(part.indices)} images can be read ({source.item_id(index)}: {reason})"
        )
    assert part.labels is not None
    return features, torch.from_numpy(part.labels[readable])
