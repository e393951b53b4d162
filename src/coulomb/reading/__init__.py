"""Reads files that a stranger may have written: size, nesting and shape are checked, and nothing in them is executed."""

from coulomb.reading.arrays import Arrays, open_arrays
from coulomb.reading.documents import parse_json, read_json, read_object, read_yaml
from coulomb.reading.files import MIB, RESTORE, check_file, read_bytes, read_lines
from coulomb.reading.shape import Shape, check_shape, list_of, maybe, number, table, text, whole

__all__ = [
    "MIB",
    "RESTORE",
    "Arrays",
    "Shape",
    "check_file",
    "check_shape",
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
