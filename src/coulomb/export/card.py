"""The model card of an encoder: how to use it, what was measured, and its limits."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS, START
from coulomb.evaluation.level import Level
from coulomb.export.card_head import Figure, card_head
from coulomb.ground.text import visible
from coulomb.models import ImageNetwork

COLUMNS = {"kNN": "knn", "linear probe": "linear"}
SHOTS = {"1": "1 label", "5": "5 labels", "10": "10 labels"}
WEAKEST = 3  # classes that are named


def card(
    encoder: ImageNetwork,
    facts: Mapping[str, str],
    evaluation: Mapping[str, Any] | None,
    code: str | None,
    *,
    published: bool,
    classes: int | None,
) -> str:
    """Returns README.md.

    Args:
        encoder: the network.
        facts: rows of the first table.
        evaluation: evaluation of the run, or of the published weights on other data; None if there is none.
        code: plain PyTorch, see `coulomb.export.plain_code.plain_code`.
        published: whether these are published weights as they are; then ``starting_point`` is this encoder.
        classes: number of classes of the classifier in the folder, if there is one.
    """
    figures = _figures(evaluation or {}, published)
    parts = [
        card_head("coulomb", "image-feature-extraction", model=encoder.name, evaluation=evaluation, figures=figures),
        f"# {plain(encoder.name)}: features of images",
        f"Maps an image to {encoder.feature_dim} numbers; similar images have features with a large cosine similarity.",
        markdown_table(["", ""], [[name, plain(value)] for name, value in facts.items()]),
        "## Use",
        _use(encoder, classes),
        *(
            [f"Without coulomb, in this folder (torch, numpy, Pillow, safetensors):\n\n```python\n{code}```"]
            if code
            else []
        ),
        "## Evaluation",
        _evaluation(evaluation, published),
        "## What it is not good for",
        "\n".join(f"- {line}" for line in _limits(encoder, evaluation, published)),
    ]
    return "\n\n".join(parts) + "\n"


def _use(encoder: ImageNetwork, classes: int | None) -> str:
    custom = encoder.config["kind"] == "module"
    module = f", module={encoder.name}()" if custom else ""
    lines = ["import coulomb", "", f'encoder = coulomb.load("."{module})  # this folder']
    lines += ['features = encoder.encode(["a.jpg", "b.jpg"])', 'encoder.similarity("a.jpg", ["b.jpg", "c.jpg"])']
    if classes:
        lines.append(f'print(encoder.classify("a.jpg"))  # {classes} classes')
    code = "\n".join(lines)
    note = (
        f"The architecture is a module of its author, `{encoder.name}`, which this folder does not contain.\n\n"
        if custom
        else ""
    )
    return f"{note}```sh\npip install 'coulomb[train]'\n```\n\n```py\n{code}\n```"


def _evaluation(evaluation: Mapping[str, Any] | None, published: bool) -> str:
    if evaluation is None:
        return "Not evaluated. `coulomb evaluate FOLDER --on PHOTOS` measures it on labeled photos of yours."
    rows = []
    for name, words in (CONTESTANTS | {_which(published): "this encoder"}).items():
        figures = evaluation.get(name)
        if figures:
            shots = figures.get("few_shot") or {}
            row = [_percent(figures.get(key)) for key in COLUMNS.values()]
            row += ["–" if not shots.get(n) else f"{shots[n]['mean']:.1%} ± {shots[n]['std']:.1%}" for n in SHOTS]
            rows.append([words, *row])
    parts = [markdown_table(["accuracy on held-out images", *COLUMNS, *SHOTS.values()], rows)]
    if verdict := evaluation.get("verdict"):
        parts.append(f"**{plain(verdict['title'])}.** {plain(verdict['sentence'])}")
    return "\n\n".join([*parts, "Protocol: " + "; ".join(_protocol(evaluation, published)) + "."])


def _figures(evaluation: Mapping[str, Any], published: bool) -> list[Figure]:
    """Returns the figures of the encoder for the head of the card."""
    measured = _measured(evaluation, published)
    found: dict[str, Any] = {name: measured.get(key) for name, key in COLUMNS.items()}
    shots = measured.get("few_shot") or {}
    found |= {f"{words} per class": (shots.get(n) or {}).get("mean") for n, words in SHOTS.items()}
    return [Figure("accuracy", name, float(value)) for name, value in found.items() if value is not None]


def _which(published: bool) -> str:
    return START if published else "trained"


def _measured(evaluation: Mapping[str, Any], published: bool) -> Mapping[str, Any]:
    return evaluation.get(_which(published)) or {}


def _protocol(evaluation: Mapping[str, Any], published: bool) -> list[str]:
    outer, inner = evaluation.get("protocol") or {}, _measured(evaluation, published).get("protocol") or {}
    lines = [f"data {plain(outer.get('name') or PurePath(str(outer.get('data'))).name)}"]
    if split := outer.get("split"):
        lines.append(plain(str(split)).rstrip("."))
    if knn := inner.get("knn"):
        lines.append(f"kNN by cosine with k={knn.get('k')}, σ={knn.get('sigma')}")
    if linear := inner.get("linear"):
        lines.append(f"linear probe: {plain(str(linear.get('classifier')))} on frozen features, C={linear.get('C')}")
    if few := inner.get("few_shot"):
        lines.append(
            f"few labels per class: mean ± deviation of {few.get('draws')} draws, without the randomness of training"
        )
    return lines


def _limits(encoder: ImageNetwork, evaluation: Mapping[str, Any] | None, published: bool) -> list[str]:
    """What the figures do not support, from the evaluation itself."""
    lines = []
    if evaluation is None:
        lines.append("Nothing was measured here: measure it on your images before you rely on it.")
    else:
        figures = _measured(evaluation, published)
        counts = figures.get("protocol") or {}
        where = f"{counts['test']} held-out images" if "test" in counts else "the held-out images above"
        lines.append(f"Measured on {where} of one data set only. Other images, cameras and subjects are untested.")
        level = (evaluation.get("verdict") or {}).get("level")
        if level in (Level.USE_STARTING_POINT, Level.ADAPTING_HURT):
            lines.append(
                "The weights that it started from are as good or better, see the verdict above: use them instead."
            )
        elif level in (Level.NOTHING_MEASURABLE, Level.WORSE_THAN_RAW_PIXELS, Level.WORSE_THAN_BM25, Level.COLLAPSED):
            lines.append("No benefit over its baselines was measured, see the verdict above: do not rely on it.")
        elif level == Level.ADAPTING_UNVERIFIED:
            lines.append("Whether adapting the weights helped could not be measured without labels.")
        per_class = [row for row in figures.get("per_class") or [] if row.get("knn") is not None]
        weak = sorted(per_class, key=lambda row: row["knn"])[:WEAKEST]
        if len(per_class) > 1:
            named = ", ".join(f"{plain(str(row.get('class', row['label'])))} ({row['knn']:.0%})" for row in weak)
            lines.append(f"The classes that kNN recognizes worst: {named}.")
    side = encoder.image_size
    lines += [
        f"Details that are lost at {side}×{side} pixels, and what lies outside the central square of a photo.",
        "Decisions about people. Similarity is not identity, and bias was not measured.",
        "Probabilities: cosine similarities are not calibrated, and choose a threshold on your images.",
    ]
    return lines


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def plain(text: str) -> str:
    """Returns untrusted text, such as a class name, for one line of Markdown without effect."""
    for mark in "\\`*_[]#":
        text = text.replace(mark, f"\\{mark}")
    return visible(text.replace("<", "&lt;").replace(">", "&gt;"), 500)
