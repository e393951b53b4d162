"""Reads JSON and YAML with limits on size and nesting, and checks the entries."""

import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from coulomb.ground.errors import InputError
from coulomb.ground.reading.files import MIB, RESTORE, read_bytes


class Shape(NamedTuple):
    """A kind of value: its description in messages, and the predicate that checks it."""

    wanted: str
    fits: Callable[[Any], bool]


whole = Shape("a whole number of at least 0", lambda value: type(value) is int and value >= 0)
number = Shape("a number", lambda value: type(value) in (int, float))
text = Shape("text", lambda value: isinstance(value, str))
table = Shape("an object", lambda value: isinstance(value, dict))


def finite(value: Any) -> float | None:
    """Returns ``value`` as a float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def list_of(each: Shape) -> Shape:
    """Shape of a list whose items all have the shape ``each``."""
    return Shape(
        f"a list, each item {each.wanted}", lambda value: isinstance(value, list) and all(map(each.fits, value))
    )


def maybe(each: Shape) -> Shape:
    """Shape of ``each`` or null; the entry may also be missing."""
    return Shape(f"{each.wanted} or null", lambda value: value is None or each.fits(value))


def check_shape(path: Path | str, value: Any, entries: Mapping[str, Shape], remedy: str = RESTORE) -> dict[str, Any]:
    """Returns ``value`` if it is an object whose ``entries`` have the given shapes; other entries are not checked.

    Raises:
        InputError: it is not; the message has the ``path``, the entry, its value and the ``remedy``.
    """
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds {reprlib.repr(value)} instead of a JSON object; {remedy}")
    for name, shape in entries.items():
        if not shape.fits(value.get(name)):
            given = reprlib.repr(value[name]) if name in value else "missing"
            raise InputError(f"{path}: {name!r} is {given}, but must be {shape.wanted}; {remedy}")
    return value


DEPTH = 32  # nesting of lists and objects
CONTAINERS = 2**20  # lists and objects in one document
MOST_JSON = 32 * MIB
MOST_YAML = MIB // 4  # the YAML parser is a hundred times slower than the JSON parser
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def read_json(path: Path, *, most: int = MOST_JSON, remedy: str = RESTORE) -> Any:
    """Returns the value in a JSON file.

    Raises:
        InputError: the file is missing, larger than ``most`` bytes, not UTF-8, not valid JSON, nested deeper than 32
            levels, or holds NaN, infinity or a number beyond the range of float64 or int64.
    """
    try:
        return parse_json(read_bytes(path, most=most, remedy=remedy))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); {remedy}") from None


def read_object(
    path: Path, entries: Mapping[str, Shape] | None = None, *, most: int = MOST_JSON, remedy: str = RESTORE
) -> dict[str, Any]:
    """Reads a JSON file with one object, whose ``entries`` are checked by `check_shape`."""
    return check_shape(path, read_json(path, most=most, remedy=remedy), entries or {}, remedy)


def parse_json(content: bytes, *, nonfinite: bool = False) -> Any:
    """Returns the value of JSON text; raises ValueError, see `read_json`. ``nonfinite`` allows NaN and infinity."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    _check_nesting(text)
    try:
        return json.loads(
            text, parse_constant=float if nonfinite else _refused_constant, parse_float=_float, parse_int=_int
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"syntax error in line {error.lineno}") from None


def _check_nesting(text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH:
        return
    depth = count = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        bracket = text[match.start()]
        if bracket in "[{":
            depth, count = depth + 1, count + 1
            if depth > DEPTH:
                raise ValueError(f"nested deeper than {DEPTH} levels")
            if count > CONTAINERS:
                raise ValueError(f"more than {CONTAINERS} lists and objects")
        elif bracket in "]}":
            depth -= 1


def _refused_constant(name: str) -> float:
    raise ValueError(f"holds {name}, which is not a JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"holds the number {digits[:20]}, which is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > 18:
        raise ValueError(f"holds the number {digits[:20]}…, which is too large")
    return int(digits)


def read_yaml(path: Path, *, remedy: str = RESTORE) -> Any:
    """Returns the value in a YAML file of mappings, lists, text and numbers.

    Raises:
        InputError: the file is missing, larger than 256 KiB, not UTF-8, not valid YAML, nested deeper than 32 levels, or
            uses aliases (``*name``, by which a short file can expand to gigabytes) or tags (``!name``).
    """
    content = read_bytes(path, most=MOST_YAML, remedy=remedy)
    try:
        return yaml.load(content.decode("utf-8"), PlainLoader)
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; {remedy}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML ({str(error).splitlines()[0]}); {remedy}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {remedy}") from None


def _line(place: Any) -> str:
    return f"line {place.start_mark.line + 1}"


class PlainLoader(yaml.SafeLoader):
    """A SafeLoader that raises ValueError for aliases, tags, deep nesting and huge integers."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Composes the next node."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{_line(event)} uses an alias (*{event.anchor}), which is not allowed")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"{_line(event)} uses a tag ({event.tag}), which is not allowed")
        self.depth += 1
        if self.depth > DEPTH:
            raise ValueError(f"nested deeper than {DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_int(self, node: Any) -> int:
        """Constructs an integer in the range of int64."""
        value = self.construct_yaml_int(node) if len(node.value) < 100 else 2**63
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{_line(node)} holds a number that is too large")
        return int(value)


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_int)
