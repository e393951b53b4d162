"""Text for CSV files: spreadsheets run text as a formula if it begins with = + - @, a tab or a carriage return."""

import re

FORMULA = r"^'*[=+\-@\t\r]"  # apostrophes, too, so that the original text can be restored
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_FORMULA, _NUMBER = re.compile(FORMULA), re.compile(NUMBER, re.ASCII)


def to_cell(value: object) -> object:
    """Returns a value for a CSV file: text that a spreadsheet would run gets an apostrophe before it; numbers stay numbers."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.match(value):
        return f"'{value}"
    return value


def from_cell(text: str) -> str:
    """Returns the original of a text that `to_cell` returned."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
