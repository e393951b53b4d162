"""Every sentence that the page of errors quotes is a message of the source."""

import ast
import functools
import re

import pytest

from page_blocks import ROOT

PAGE = ROOT / "docs" / "guide" / "errors.md"
QUOTED = re.findall(r"^> `(.*)`$", PAGE.read_text(encoding="utf-8"), flags=re.M)


@functools.cache
def messages():
    """Returns all strings of the library, with … for the values in them."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def is_message(sentence):
    """Returns True if a message of the source is this sentence, or begins with it before a semicolon."""
    return any(message == sentence or message.startswith(f"{sentence};") for message in messages())


@pytest.mark.parametrize("sentence", QUOTED)
def test_the_sentence_exists(sentence):
    assert is_message(sentence), "no such message in src/: correct docs/guide/errors.md"


def test_there_are_sentences_and_others_are_not_found():
    assert len(QUOTED) >= 25
    assert not is_message("batch_size=…: larger than the … training …s…; use batch_size=… or more")


def test_every_class_of_errors_is_in_the_table():
    from coulomb.ground import errors

    page = PAGE.read_text(encoding="utf-8")
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and cls.__module__ == errors.__name__:
            assert re.search(rf"^\| `{name}`", page, flags=re.M), name
