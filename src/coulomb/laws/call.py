"""How a loss is called: from the names of its arguments, or as the user writes it."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.laws.subject import Draw, Tensors

# Kind → the inputs that it stands for.
KINDS = {
    "rows": "[N, D]",
    "unit": "[N, D], unit rows",
    "views": "[N, 2, D]",
    "pool": "[N+3, D]",
    "labels": "[N], two samples per class",
    "scale": "a number, 10",
    "temperature": "a number, 0.1",
    "bias": "a number, −1",
}
# Name → the kinds that it may be, in the order in which they are tried.
NAMES = {
    r"(image|text|img|txt)_(features?|emb\w*)": ("unit",),
    r"labels?|class(es)?|ids?|class_labels|y_true": ("labels",),
    r"targets?|y": ("labels", "rows"),
    r"features?|feats?": ("rows", "views"),
    r"logit_scale|scale": ("scale",),
    r"temperature|tau|temp": ("temperature",),
    r"logit_bias|bias": ("bias",),
    r"neg|negatives?|negative_keys?|queue|keys_neg": ("rows", "pool"),
    r"(z|x|h|p|q|v|out|view|emb|proj|rep|repr)_?(\d|[ijabkqtxy])?": ("rows", "views"),
    r"query|queries|keys?|k|positives?|pos|positive_keys?|anchors?|predictions?|a|b|img|txt|images?|texts?": ("rows",),
    r"emb\w*|input\d?|outputs?\d?|rep\w*|vec\w*": ("rows", "views"),
}
OPTIONAL = r"labels?|targets?|y"  # passed even if they have a default
CLASSES = ("num_classes", "n_classes", "classes", "number_of_classes")
TRIES = 24
ITEM = re.compile(r"\s*(?:(\w+)\s*=\s*)?(\w+)\s*(\[[^\]]*\])?\s*")
SHAPE = "NAME[N, D], with N, D, whole numbers, 2N or N+3; [N] is labels, [] a number"


@dataclass(frozen=True)
class Argument:
    """One argument of a call: its name, how it is drawn, and whether it is passed by keyword."""

    name: str
    shown: str
    draw: Callable[[int, int, Draw], Any]
    keyword: bool = False


@dataclass(frozen=True)
class Call:
    """All arguments of a call."""

    arguments: tuple[Argument, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each argument."""
        return tuple(one.name for one in self.arguments)

    @property
    def keywords(self) -> frozenset[str]:
        """The arguments that are passed by keyword."""
        return frozenset(one.name for one in self.arguments if one.keyword)

    def inputs(self, n: int, d: int, draw: Draw) -> Tensors:
        """Returns the arguments of a call with ``n`` samples in ``d`` dimensions."""
        return tuple(one.draw(n, d, draw) for one in self.arguments)

    def __str__(self) -> str:
        listed = ", ".join(f"{one.name + '=' if one.keyword else ''}{one.name} {one.shown}" for one in self.arguments)
        return f"loss({listed})"


def written(text: str, classes: int | None = None) -> Call:
    """Returns the call in ``text``: ``"(z0, z1)"``, ``"(features[N, 2, D], labels)"`` or ``"(q, k, queue=pool[512, D])"``.

    Raises:
        InputError: it cannot be read; the message says what can be written.
    """
    inside = text.strip()
    if not (inside.startswith("(") and inside.endswith(")") and inside[1:-1].strip()):
        raise InputError(f"call={text!r}: write the arguments in parentheses, such as (z0, z1) or (features, labels)")
    arguments, place = [], 0
    inside = inside[1:-1]
    while place < len(inside):
        match = ITEM.match(inside, place)
        if match is None or (match.end() < len(inside) and inside[match.end()] != ","):
            raise InputError(f"call={text!r}: cannot read {inside[place:].strip()!r}; write names, or {SHAPE}")
        keyword, name, shape = match.groups()
        if shape is None:
            kinds = kinds_of(name)
            if not kinds:
                raise InputError(f"call={text!r}: {name} is no name with a known meaning; give its shape as {SHAPE}")
            arguments.append(of_kind(keyword or name, kinds[0], classes, keyword is not None))
        else:
            arguments.append(shaped(text, keyword or name, shape, classes, keyword is not None))
        place = match.end() + 1
    names = [one.name for one in arguments]
    if len(set(names)) < len(names):
        raise InputError(f"call={text!r}: two arguments have the same name; give each another one, such as z0 and z1")
    return Call(tuple(arguments))


def kinds_of(name: str) -> tuple[str, ...]:
    """Returns what an argument of this name may be; empty if the name says nothing."""
    return next((kinds for pattern, kinds in NAMES.items() if re.fullmatch(pattern, name.lower())), ())


def of_kind(name: str, kind: str, classes: int | None, keyword: bool = False) -> Argument:
    """Returns an argument of a kind."""
    draws: dict[str, Callable[[int, int, Draw], Any]] = {
        "rows": lambda n, d, draw: draw(n, d),
        "unit": lambda n, d, draw: torch.nn.functional.normalize(draw(n, d), dim=1),
        "views": lambda n, d, draw: draw(n, 2, d),
        "pool": lambda n, d, draw: draw(n + 3, d),
        "labels": lambda n, d, draw: labels(n, classes),
        "scale": lambda n, d, draw: torch.tensor(10.0, dtype=torch.float64),
        "temperature": lambda n, d, draw: torch.tensor(0.1, dtype=torch.float64),
        "bias": lambda n, d, draw: torch.tensor(-1.0, dtype=torch.float64),
    }
    return Argument(name, KINDS[kind], draws[kind], keyword)


def labels(n: int, classes: int | None) -> Tensor:
    """Returns two neighbors per class, so that parts of the batch have positives; classes return if there are few."""
    return torch.arange(n) // 2 % max(1, min(n // 2, classes or n))


def shaped(text: str, name: str, shape: str, classes: int | None, keyword: bool) -> Argument:
    """Returns an argument of a given shape."""
    sizes = [one.strip() for one in shape[1:-1].split(",") if one.strip()]
    parsed = [re.fullmatch(r"(\d*)([ND]?)(?:\+(\d+))?", size) for size in sizes]
    if any(one is None or not (one[1] or one[2]) for one in parsed):
        raise InputError(f"call={text!r}: cannot read the shape {shape}; write {SHAPE}")
    if sizes == ["N"]:
        return of_kind(name, "labels", classes, keyword)
    if not sizes:
        return of_kind(name, next(iter(kinds_of(name)), "scale"), classes, keyword)

    def size(one: re.Match[str], n: int, d: int) -> int:
        number = int(one[1] or 1)
        return (number * {"N": n, "D": d}[one[2]] if one[2] else number) + int(one[3] or 0)

    matches = [one for one in parsed if one is not None]
    return Argument(
        name, f"[{', '.join(sizes)}]", lambda n, d, draw: draw(*(size(one, n, d) for one in matches)), keyword
    )


def inferred(loss: Callable[..., Any], classes: int | None) -> Iterator[Call]:
    """Yields the calls that the names of the parameters allow, the most likely first.

    Raises:
        InputError: a required parameter has a name that says nothing.
    """
    function = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InputError("call: the parameters of the loss cannot be read; give the call, such as (z0, z1)") from None
    required = [
        one
        for one in parameters
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and (one.default is one.empty or re.fullmatch(OPTIONAL, one.name))
    ]
    if not required:
        raise InputError("call: the loss has no required parameter to infer the call from; give it, such as (z0, z1)")
    # Two parameters whose names say nothing are two views, or embeddings and labels.
    unknown = [one.name for one in required if not kinds_of(one.name)]
    if unknown and len(required) > 2:
        listed = ", ".join(one.name for one in required)
        raise InputError(
            f"call: cannot infer what {unknown[0]} is in ({listed}); give the call with shapes, such as ({unknown[0]}[N, D])"
        )
    kinds = [
        kinds_of(one.name) or (("rows", "views") if not place else ("rows", "labels"))
        for place, one in enumerate(required)
    ]
    for chosen in itertools.islice(itertools.product(*kinds), TRIES):
        yield Call(
            tuple(
                of_kind(one.name, kind, classes, one.kind is one.KEYWORD_ONLY)
                for one, kind in zip(required, chosen, strict=True)
            )
        )


def number_of_classes(*sources: Any) -> int | None:
    """Returns the number of classes that options or attributes name; None if none does."""
    for source, name in itertools.product(sources, CLASSES):
        value = source.get(name) if isinstance(source, dict) else getattr(source, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def first_error(errors: Sequence[tuple[Call, Exception]]) -> str:
    """Returns the calls that were tried with their errors, for a message."""
    return "; ".join(f"{call}: {type(error).__name__}: {str(error)[:120]}" for call, error in errors[:3])
