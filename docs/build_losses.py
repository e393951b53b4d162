"""Write docs/losses/ from the docstrings of the losses, which are the source: ``make docs``.

A docstring is a formula line, an explanation, then sections. A section starts at the margin with one of the words in
`HEADINGS`; Args, Attributes and Raises hold items, the others prose. Examples become scripts that print what they show.
"""

import ast
import doctest
import inspect
import re
import sys
import textwrap
from pathlib import Path

import coulomb.losses
from coulomb.losses.debiased import DebiasedDiagnosis
from coulomb.losses.diagnosis import Diagnosis

FOLDER = Path(__file__).parent / "losses"
BEGIN, END = "<!-- table of all losses, by make docs -->", "<!-- end of the table -->"
PARTS = {
    "LearnableTemperature": coulomb.losses.LearnableTemperature,
    "ParametricCenters": coulomb.losses.ParametricCenters,
    "Diagnosis": Diagnosis,
    "DebiasedDiagnosis": DebiasedDiagnosis,
}
LOSSES = {name: getattr(coulomb.losses, name) for name in coulomb.losses.__all__ if name not in PARTS}

# How a section starts in a docstring, and what it is called on the page, in the page's order.
HEADINGS = {
    "When to use": "When to use it",
    "Needs": "What it needs",
    "Temperature": "What the temperature does",
    "Shape": "Call",
    "Args": "Arguments",
    "Attributes": "What it holds",
    "Example": "Example",
    "Deviation": "Deviations from the authors' code",
    "Degenerate input": "Degenerate input",
    "Degenerate input and Raises": "Degenerate input and errors",
    "In a compiled graph": "In a compiled graph",
    "Raises": "Errors",
    "Cost": "What it costs",
    "Memory": "Memory",
    "Reference": "Reference",
}
START = re.compile(r"(In a compiled graph)\b|([A-Z][\w ]+?)( from the authors' code)?:(?: |$)")

# For the table of all losses: positives, negatives, labels, several processes.
FACTS = {
    "AlignmentLoss": ("the other view", "none", "no", "nothing to gather"),
    "ArcFaceLoss": ("the class center", "the other centers", "yes", "nothing to gather"),
    "BalancedSoftmaxLoss": ("the class center", "the other centers", "yes, and counts", "nothing to gather"),
    "BarlowTwinsLoss": ("the same dimension", "the other dimensions", "no", "`gather`"),
    "DebiasedLoss": ("the other view", "views of other samples, less τ⁺ of them", "no", "`gather`"),
    "DecoupledLoss": ("the other view", "views of other samples", "no", "`gather`"),
    "DistillationLoss": ("every key, by the teacher's softmax", "every key", "no", "`gather`"),
    "HardContrastiveLoss": ("the paired key", "the top k of batch or queue", "no", "`gather`"),
    "HardNegativeLoss": ("the other view", "views of other samples, near ones weighted more", "no", "`gather`"),
    "HardSimpleLoss": ("the paired key", "the top k of batch or queue", "no", "`gather`"),
    "InfoNCELoss": ("the paired key", "keys of batch, queue or both", "no", "`gather`"),
    "JointInfoNCELoss": ("the paired key", "documents and queries of the batch", "no", "`gather`"),
    "MatryoshkaLoss": ("as its loss", "as its loss", "as its loss", "`gather` of its loss"),
    "NCELoss": ("its entry in the bank", "m drawn entries", "no", "nothing to gather"),
    "NTXentLoss": ("the other views", "views of other samples", "no", "`gather`"),
    "NegativeCosineLoss": ("the target", "none", "no", "nothing to gather"),
    "PaCoLoss": ("the class center, the same label", "all centers and features", "yes, −1 allowed", "`gather`"),
    "SigmoidLoss": ("the paired key, or equal ids", "all other keys of the batch", "no", "`gather`"),
    "SimpleContrastiveLoss": ("the paired key", "keys of batch or queue, weighted equally", "no", "`gather`"),
    "SoftmaxLoss": ("the class center", "the other centers", "yes", "nothing to gather"),
    "SupConLoss": ("the same label", "all other samples", "yes, −1 allowed", "`gather`"),
    "TripletLoss": ("the same label", "other labels", "yes, −1 left out", "`gather`"),
    "UniformityLoss": ("none", "all other samples", "no", "`gather`"),
    "VICRegLoss": ("the other view", "none", "no", "`gather`"),
}
KNOBS = {"temperature": "τ", "scale": "s", "t": "t", "alpha": "α", "margin": "m", "weight": "λ", "invariance": "λ"}


def sections(doc: str) -> dict[str, str]:
    """The docstring by section: "Formula", "Text", and the keys of `HEADINGS` that it has."""
    formula, _, rest = inspect.cleandoc(doc).partition("\n")
    found, here = {"Formula": formula, "Text": ""}, "Text"
    for line in rest.split(">>> ")[0].splitlines():
        start = START.match(line)
        if start and (name := (start[1] or start[2]).replace("Deviations", "Deviation")) in HEADINGS:
            here = name
            found[here] = "" if start[1] else line[start.end() :] + "\n"
            if not start[1]:
                continue
        found[here] += line + "\n"
    return {name: text.strip("\n") for name, text in found.items()}


def prose(text: str) -> str:
    """Markdown of a docstring's prose: its marks for code, links to other losses and to papers."""
    paragraphs = re.split(r"\n\s*\n", text)
    text = "\n\n".join(re.sub(r"\s*\n\s*", " ", paragraph).strip() for paragraph in paragraphs)
    text = re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    return re.sub(r"``(.+?)``|(?<!`)`([\w.]+)`(?!`)", lambda m: f"`{m[1]}`" if m[1] else linked(m[2]), text)


def linked(name: str) -> str:
    """A name as code, with a link where there is a page for it."""
    if name in LOSSES:
        return f"[`{name}`]({name}.md)"
    if name in PARTS:
        return f"[`{name}`](parts.md#{name.lower()})"
    if name == "coulomb.losses.negatives":
        return "[several processes](README.md#several-processes)"
    return f"`{name}`"


def items(text: str, signature: inspect.Signature) -> str:
    """A list of arguments, attributes or errors, with the defaults of the arguments."""
    lines = []
    for item in re.split(r"\n(?=\S)", textwrap.dedent(text)):
        names, _, meaning = item.partition(": ")
        known = [signature.parameters[n] for n in names.split(", ") if n in signature.parameters]
        defaults = {repr(p.default) for p in known if p.default is not p.empty}
        default = f" (default `{defaults.pop()}`)" if len(known) == len(defaults) == 1 else ""
        lines.append(f"- {', '.join(f'`{name}`' for name in names.split(', '))}{default}: {prose(meaning)}")
    return "\n".join(lines)


def calls(name: str, cls: type) -> str:
    """How it is constructed and called, with all defaults."""
    marked, lines = False, []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not marked:
            marked = bool(lines.append("    *,")) or True
        lines.append(f"    {plain(parameter)},")
    forward = [plain(p) for p in list(inspect.signature(cls.forward).parameters.values())[1:]]
    return "\n".join(["```text", f"loss = {name}(", *lines, ")", f"loss({', '.join(forward)})", "```"])


def called(name: str, cls: type, text: str) -> str:
    """The call of a class: its signature, and the shape and meaning of each argument of ``forward``."""
    text, _, note = text.partition("\n\n")
    documented = (inspect.getdoc(cls.forward) or "").partition("Args:\n")[2] if name in LOSSES else ""
    meanings = dict(item.split(": ", 1) for item in re.split(r"\n(?=\S)", textwrap.dedent(documented)) if item)
    lines = []
    for names, _, shape in (line.partition(": ") for line in textwrap.dedent(text).splitlines()):
        for one in names.split(", "):
            meaning = f": {prose(meanings[one])}" if one in meanings else "."
            lines.append(f"- `{one}`, {prose(shape.rstrip('.'))}{meaning}")
    parts = [calls(name, cls)] if name in LOSSES else []
    return "\n\n".join([*parts, "\n".join(lines), *([prose(note)] if note else [])])


def plain(parameter: inspect.Parameter) -> str:
    """A parameter without its type."""
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def example(doc: str) -> str:
    """The docstring's examples as one script that prints their results, which stand beside as comments."""
    lines = []
    for one in doctest.DocTestParser().get_examples(inspect.cleandoc(doc)):
        lines.append(printing(one.source.rstrip()) if one.want else one.source.rstrip())
        lines += [f"# → {line}" for line in one.want.splitlines()]
    body = "\n".join(line for line in lines if not line.startswith("from coulomb.losses import"))
    names = [name for name in [*LOSSES, "LearnableTemperature", "ParametricCenters"] if re.search(rf"\b{name}\(", body)]
    imports = ["import math\n"] * ("math." in body) + ["import torch\n"] * ("torch." in body)
    return f"```python\n{''.join(imports)}from coulomb.losses import {', '.join(names)}\n\n{body}\n```"


def printing(source: str) -> str:
    """The source with its last expression printed."""
    node = ast.parse(source).body[-1]
    opened, closed = (b"print((", b"))") if isinstance(node.value, ast.Tuple) else (b"print(", b")")
    lines = source.encode().split(b"\n")
    last = lines[node.end_lineno - 1]
    lines[node.end_lineno - 1] = last[: node.end_col_offset] + closed + last[node.end_col_offset :]
    lines[node.lineno - 1] = opened + lines[node.lineno - 1]
    return b"\n".join(lines).decode()


def formula(line: str) -> str:
    """The formula as a block, one equation a line; nothing if the line is prose."""
    if not re.match(r"L\w* = ", line):
        return ""
    return "```text\n" + re.sub(r",?  (?=\S)", "\n", line.partition("   (")[0].strip()) + "\n```"


def body(name: str, cls: type, level: str) -> str:
    """A class as markdown, without its title."""
    found = sections(cls.__doc__ or "")
    block = formula(found["Formula"])
    parts = [block, prose(found["Text"] if block else f"{found['Formula']}\n\n{found['Text']}").strip()]
    found["Example"] = example(cls.__doc__) if ">>> " in (cls.__doc__ or "") else ""
    for key, title in HEADINGS.items():
        if not found.get(key):
            continue
        if key in ("Args", "Attributes", "Raises"):
            content = items(found[key], inspect.signature(cls))
        elif key == "Shape":
            content = called(name, cls, found[key])
        else:
            content = found[key] if key == "Example" else prose(found[key])
        if key == "Cost":
            content += " [How this is counted](README.md#what-they-cost)."
        first = content[0].upper() if content[0].isascii() else content[0]  # τ stays τ
        parts.append(f"{level} {title}\n\n{first}{content[1:]}")
    return "\n\n".join(part for part in parts if part)


def page(name: str) -> str:
    """The page of a loss."""
    cls = LOSSES[name]
    file = cls.__module__.rpartition(".")[2]
    what = (sys.modules[cls.__module__].__doc__ or "").partition("\n")[0]
    title = f"# {name}\n\n{what} ([Notation](README.md#notation))"
    source = f"[src/coulomb/losses/{file}.py](../../src/coulomb/losses/{file}.py)"
    return f"{title}\n\n{body(name, cls, '##')}\n\n---\n\n[All losses](README.md) · made by `make docs` from {source}\n"


def parts_page() -> str:
    """The page of the objects that losses take and return."""
    chapters = [f"## {name}\n\n{body(name, cls, '###')}" for name, cls in PARTS.items()]
    text = "\n\n".join(["# Parts that losses take and return", *chapters])
    return f"{text}\n\n---\n\n[All losses](README.md) · made by `make docs` from the docstrings\n"


def table() -> str:
    """All losses in a table."""
    titles = ["loss", "formula", "positives", "negatives", "labels", "knob", "cost", "processes"]
    rows = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, cls in LOSSES.items():
        found, parameters = sections(cls.__doc__), inspect.signature(cls).parameters
        short = re.split(r",?  ", found["Formula"])[0].replace("|", "\\|")
        knob = next((f"{KNOBS[k]} = {parameters[k].default:g}" for k in KNOBS if k in parameters), "—")
        cost = re.search(r"\d+u|O\(.*\)", found["Cost"])
        positives, negatives, labels, processes = FACTS[name]
        rows.append(
            f"| [{name}]({name}.md) | `{short}` | {positives} | {negatives} | {labels} | {knob} | {cost[0]} | {processes} |"
        )
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """Every generated page by its path; of README.md the table alone is generated."""
    out = {FOLDER / f"{name}.md": page(name) for name in LOSSES}
    out[FOLDER / "parts.md"] = parts_page()
    index = FOLDER / "README.md"
    before, _, after = index.read_text(encoding="utf-8").partition(BEGIN)
    after = after[after.index(END) :]
    out[index] = f"{before}{BEGIN}\n{table()}\n{after}"
    return out


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
