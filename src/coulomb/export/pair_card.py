"""The model cards of encoders of texts and of runs on several columns."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from coulomb.evaluation.level import Level
from coulomb.evaluation.one_column_verdict import ONE_COLUMN_CONTESTANTS
from coulomb.evaluation.pair_verdict import PAIR_CONTESTANTS
from coulomb.export.card import markdown_table, plain
from coulomb.export.card_head import Figure, card_head
from coulomb.metrics.matching import DIRECTIONS
from coulomb.models.text_network import TextNetwork

FIGURES = ("R@1", "R@5", "R@10", "MRR")
KS = ("1", "5", "10")
EXAMPLES = {"image": '["a.jpg", "b.jpg"]', "text": '["a red flower", "two old houses"]', "vector": "vectors"}
SENTENCES = """```sh
pip install sentence-transformers
```

```py
from sentence_transformers import SentenceTransformer

encoder = SentenceTransformer({name})  # {what}
features = encoder.encode(["a red flower", "two old houses"])
```"""


def text_card(network: TextNetwork, facts: Mapping[str, str], part_of: str | None) -> str:
    """Returns the README.md of an encoder of texts; ``part_of`` says where its evaluation is, if it belongs to a run."""
    parts = [
        card_head("sentence-transformers", "sentence-similarity"),
        f"# {plain(network.name)}: features of texts",
        f"Maps a text to {network.feature_dim} numbers; similar texts have features with a large cosine similarity.",
        markdown_table(["", ""], [[name, plain(value)] for name, value in facts.items()]),
        "## Use",
        SENTENCES.format(name='"."', what="this folder"),
        'Features have unit length, so that their dot product is the cosine. `coulomb.load(".")` opens the folder, too.',
        "## Evaluation",
        part_of or "Not evaluated. Measure it on your texts before you rely on it.",
        "## What it is not good for",
        "\n".join(f"- {line}" for line in [_cut(network), *GENERAL]),
    ]
    return "\n\n".join(parts) + "\n"


def pair_card(
    columns: Mapping[str, Mapping[str, str]],
    folders: Mapping[str, str],
    networks: Mapping[str, Any],
    facts: Mapping[str, str],
    evaluation: Mapping[str, Any] | None,
) -> str:
    """Returns the README.md of a run on several columns.

    Args:
        columns: kind and tower of each column.
        folders: of each tower.
        networks: of each tower.
        facts: rows of the first table.
        evaluation: the run's evaluation, if there is one.
    """
    texts = [tower for tower, network in networks.items() if isinstance(network, TextNetwork)]
    rows = [
        [plain(name), column["kind"], f"`{folders[column['tower']]}/`", plain(networks[column["tower"]].name)]
        for name, column in columns.items()
    ]
    names = " and ".join(plain(name) for name in columns)
    first = next(iter(networks.values()))
    parts = [
        card_head(
            "sentence-transformers" if texts else "coulomb",
            "sentence-similarity" if texts and len(columns) == 1 else "feature-extraction",
            model=" and ".join(columns),
            evaluation=evaluation,
            figures=_figures(evaluation or {}),
        ),
        f"# {names} in one space",
        f"Maps cells of {'each column' if len(columns) > 1 else 'the column'} to {first.feature_dim} numbers; those that "
        "belong together have a large cosine similarity.",
        markdown_table(["", ""], [[name, plain(value)] for name, value in facts.items()]),
        markdown_table(["column", "kind", "folder", "network"], rows),
        "## Use",
        _use(columns, networks),
        *([_sentences(texts, folders)] if texts else []),
        "## Evaluation",
        _evaluation(evaluation),
        "## What it is not good for",
        "\n".join(f"- {line}" for line in _limits(evaluation, [networks[tower] for tower in texts])),
    ]
    return "\n\n".join(parts) + "\n"


def _use(columns: Mapping[str, Mapping[str, str]], networks: Mapping[str, Any]) -> str:
    """With coulomb, all towers."""
    needs = "train,text" if any(isinstance(each, TextNetwork) for each in networks.values()) else "train"
    lines = ["import coulomb", "", 'towers = coulomb.load(".")  # this folder']
    names = list(columns)[:2]
    for place, name in enumerate(names):
        cells = EXAMPLES[columns[name]["kind"]]
        lines.append(f"features_{place} = towers.encode({cells}, column={json.dumps(name)})")
    lines.append(f"print(towers.similarity(features_0, features_{len(names) - 1}))  # cosines")
    code = "\n".join(lines)
    return f"```sh\npip install 'coulomb[{needs}]'\n```\n\n```py\n{code}\n```"


def _sentences(texts: Sequence[str], folders: Mapping[str, str]) -> str:
    """With sentence-transformers, the towers of texts."""
    others = "".join(
        f" `SentenceTransformer({json.dumps(folders[tower])})` opens that of {plain(tower)}." for tower in texts[1:]
    )
    text = SENTENCES.format(name='"."', what="this folder, or user/name on the hub")
    return (
        f"The tower of {plain(texts[0])}, without coulomb; its features have unit length, so divide those of the other "
        f"towers by their length, too:{others}\n\n{text}"
    )


COLUMN_FIGURES = {
    "kNN": ("knn",),
    "linear probe": ("linear",),
    "MAP@R": ("retrieval", "map_at_r"),
    "Spearman": ("scored_pairs", "spearman", "value"),
}


def _one_column(evaluation: Mapping[str, Any]) -> str:
    """The evaluation of a run on one column: its figures beside those of its baselines, the verdict and the protocol."""
    figures: dict[str, dict[str, float]] = {}
    for which, words in ONE_COLUMN_CONTESTANTS.items():
        for title, value in _of_one_column(evaluation.get(which)).items():
            figures.setdefault(title, {})[words] = value
    contestants = list(dict.fromkeys(words for row in figures.values() for words in row))
    rows = [[words, *(_figure(title, row.get(words)) for title, row in figures.items())] for words in contestants]
    parts = [markdown_table(["", *figures], rows)] if rows else []
    if verdict := evaluation.get("verdict"):
        parts.append(f"**{_without_paths(verdict['title'])}.** {_without_paths(verdict['sentence'])}")
    protocol = evaluation.get("protocol") or {}
    return "\n\n".join([*parts, *_protocol_of([], protocol)])


def _of_one_column(contestant: Any) -> dict[str, float]:
    """Returns the figures of a contestant by their titles."""
    found = {}
    for title, path in COLUMN_FIGURES.items():
        value = contestant
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            found[title] = float(value)
    return found


def _figures(evaluation: Mapping[str, Any]) -> list[Figure]:
    """Returns the figures of the trained towers for the head of the card."""
    trained = evaluation.get("trained") or {}
    if isinstance(evaluation.get("column"), str):
        kinds = {"MAP@R": "map", "Spearman": "spearmanr"}
        return [Figure(kinds.get(title, "accuracy"), title, value) for title, value in _of_one_column(trained).items()]
    names, found = [str(name) for name in evaluation.get("columns") or []], []
    for direction, arrow in zip(DIRECTIONS, (" to ".join(names), " to ".join(names[::-1])), strict=True):
        measured = trained.get(direction) or {}
        recall = measured.get("recall_at") or {}
        found += [Figure("recall", f"{arrow} R@{k}", float(recall[k])) for k in KS if recall.get(k) is not None]
        if measured.get("mrr") is not None:
            found.append(Figure("mrr", f"{arrow} MRR", float(measured["mrr"])))
    return found


def _figure(title: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if title == "Spearman" else f"{value:.1%}"


def _protocol_of(more: Sequence[str], protocol: Mapping[str, Any]) -> list[str]:
    """Returns a paragraph with the data, the split and ``more``; empty if nothing is known."""
    data = PurePath(str(protocol.get("data") or "")).name
    lines = [f"data {plain(data)}"] if data and not data.startswith("<") else []  # <dict> is data in memory
    lines += [plain(str(protocol["split"])).rstrip(".")] if protocol.get("split") else []
    lines += more
    return [f"Protocol: {'; '.join(lines)}."] if lines else []


def _evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is not None and isinstance(evaluation.get("column"), str):
        return _one_column(evaluation)
    names = [plain(str(name)) for name in (evaluation or {}).get("columns") or []]
    rows = []
    for which, words in PAIR_CONTESTANTS.items():
        figures = (evaluation or {}).get(which)
        if figures and all(figures.get(direction) for direction in DIRECTIONS):
            rows.append([words, *(cell for direction in DIRECTIONS for cell in _cells(figures[direction]))])
    if evaluation is None or not rows or len(names) < len(DIRECTIONS):
        return "Not evaluated. Measure it on pairs of yours before you rely on it."
    arrows = [f"{names[0]} → {names[1]}", f"{names[1]} → {names[0]}"]
    head = ["", *(f"{arrow} {figure}" for arrow in arrows for figure in FIGURES)]
    parts = [
        "Each held-out cell of one column is a query among all held-out cells of the other. R@k: share of the queries with "
        "a right answer among the first k; MRR: mean reciprocal rank of the first right answer.",
        markdown_table(head, rows),
    ]
    if verdict := evaluation.get("verdict"):
        parts.append(f"**{_without_paths(verdict['title'])}.** {_without_paths(verdict['sentence'])}")
    lines: list[str] = []
    trained = evaluation.get("trained") or {}
    for direction, arrow in zip(DIRECTIONS, arrows, strict=True):
        measured = trained.get(direction) or {}
        if {"queries", "keys"} <= measured.keys():
            lines.append(f"{arrow}: {measured['queries']:,} queries among {measured['keys']:,}")
    intervals = trained.get("intervals") or {}
    shown = [
        f"{arrow} {low:.1%} to {high:.1%}"
        for direction, arrow in zip(DIRECTIONS, arrows, strict=True)
        for low, high in [intervals.get(f"{direction}_recall_at_5") or (None, None)]
        if low is not None
    ]
    lines += [f"95% intervals of R@5: {', '.join(shown)}"] if shown else []
    return "\n\n".join([*parts, *_protocol_of(lines, evaluation.get("protocol") or {})])


def _without_paths(text: str) -> str:
    """Returns a sentence of a verdict, in which folders with weights are named without where they were."""
    return plain(re.sub(r"(?<![\w:])(?:/|~/|\.\.?/)\S*/(?=\S)", "", text))


def _cells(figures: Mapping[str, Any]) -> list[str]:
    recall = figures.get("recall_at") or {}
    shown = ["–" if recall.get(k) is None else f"{recall[k]:.1%}" for k in KS]
    return [*shown, "–" if figures.get("mrr") is None else f"{figures['mrr']:.3f}"]


def _limits(evaluation: Mapping[str, Any] | None, texts: Sequence[TextNetwork]) -> list[str]:
    lines = []
    if evaluation is None:
        lines.append("Nothing was measured here: measure it on your pairs before you rely on it.")
    else:
        lines.append(
            f"Measured on held-out {'rows' if 'column' in evaluation else 'pairs'} of one data set only. Other subjects and "
            "ways of writing are untested."
        )
        level = (evaluation.get("verdict") or {}).get("level")
        if level in (Level.USE_STARTING_POINT, Level.ADAPTING_HURT):
            lines.append(
                "The weights that it started from are as good or better, see the verdict above: use them instead."
            )
        elif level == Level.NOT_JUDGED:
            lines[-1] = (
                "Nothing was known of the held-out rows that it could be judged by: measure it before you rely on it."
            )
        elif level in (
            Level.NOTHING_MEASURABLE, Level.WORSE_THAN_BM25, Level.WORSE_THAN_RAW_VALUES, Level.COLLAPSED,
        ):  # fmt: skip
            lines.append("No benefit over its baselines was measured, see the verdict above: do not rely on it.")
    return [*lines, *dict.fromkeys(_cut(network) for network in texts), *GENERAL]


def _cut(network: TextNetwork) -> str:
    return f"Texts of more than {network.longest} tokens: what comes after them is ignored."


GENERAL = (
    "Decisions about people. Similarity is not identity, and bias was not measured.",
    "Probabilities: cosine similarities are not calibrated, and choose a threshold on your data.",
)
