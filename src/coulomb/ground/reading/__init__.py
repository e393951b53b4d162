"""Readers of untrusted files: they check size, nesting and shape, and execute nothing."""

from coulomb.ground.reading.documents import (
    Shape,
    check_shape,
    finite,
    list_of,
    maybe,
    number,
    parse_json,
    read_json,
    read_object,
    read_yaml,
    table,
    text,
    whole,
)
from coulomb.ground.reading.files import MIB, RESTORE, Arrays, check_file, open_arrays, read_bytes, read_lines

__all__ = [
    "MIB",
    "RESTORE",
    "Arrays",
    "Shape",
    "check_file",
    "check_shape",
    "finite",
    "list_of",
    "maybe",
    "number",
    "open_arrays",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_object",
    "read_yaml",
    "table",
    "text",
    "whole",
]
