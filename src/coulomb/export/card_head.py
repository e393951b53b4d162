"""The YAML head of a model card, by which the hub sorts a repository and shows its figures."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml

from coulomb.ground.text import safe_name, visible

TAGS = ("feature-extraction", "contrastive-learning")


class Figure(NamedTuple):
    """A figure of the evaluation: the hub's ``kind`` of metric (accuracy, recall, …), a ``name`` and its value."""

    kind: str
    name: str
    value: float


def card_head(
    library: str,
    pipeline: str,
    *,
    model: str = "",
    evaluation: Mapping[str, Any] | None = None,
    figures: Iterable[Figure] = (),
) -> str:
    """Returns the head of a card, with ``model-index`` if there are figures; the format is that of huggingface_hub.

    Args:
        library: by which it is opened.
        pipeline: the hub's name of the task.
        model: name of the model.
        evaluation: whose ``protocol`` names the data.
        figures: of the trained encoder, on held-out data.
    """
    head: dict[str, Any] = {"library_name": library, "pipeline_tag": pipeline, "tags": list(TAGS)}
    metrics = [{"type": figure.kind, "value": figure.value, "name": figure.name} for figure in figures]
    if metrics:
        data, split = _data_of((evaluation or {}).get("protocol") or {})
        about = {"name": data, "type": safe_name(data).lower(), "split": split}
        result = {"task": {"type": pipeline}, "dataset": about, "metrics": metrics}
        head["model-index"] = [{"name": visible(model, 100), "results": [result]}]
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---"


def _data_of(protocol: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the name of the data, without its path, and of its part."""
    name = str(protocol.get("name") or PurePath(str(protocol.get("data") or "")).name)
    known = name and not name.startswith("<")  # <dict> is data in memory
    return visible(name, 100) if known else "own data", "held out"
