"""Untrusted JSON and YAML: limits on size and nesting, and errors of one sentence."""

import os
import time

import pytest

from coulomb.ground.errors import InputError
from coulomb.ground.reading import (
    list_of,
    maybe,
    number,
    parse_json,
    read_json,
    read_lines,
    read_object,
    read_yaml,
    whole,
)

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = [
    (b"", "syntax error in line 1"),
    (b"{\n oops", "syntax error in line 2"),
    (b"[" * 100_000, "nested deeper than 32 levels"),
    (b'{"a":' * 100_000, "nested deeper than 32 levels"),
    (b"[" + b"[],".ljust(3) * 1_100_000 + b"[]]", "more than 1048576 lists and objects"),
    (b"\xff\xfe{\x00}\x00", "not UTF-8 text"),
    (bytes(range(256)), "not UTF-8 text"),
    (b"\x00" * 100, "syntax error"),
    (b"NaN", "NaN, which is not a JSON number"),
    (b"[-Infinity]", "-Infinity, which is not a JSON number"),
    (b"1e999", "1e999, which is too large"),
    (b"9" * 5000, "too large"),
    (b"-" + b"9" * 30, "too large"),
]


@pytest.mark.parametrize(("content", "words"), BAD, ids=lambda value: repr(value[:12]))
def test_error_for_malformed_json_is_one_sentence(tmp_path, content, words):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"a.json: cannot be read as JSON .*{words}.*; mend it$") as error:
        read_json(path, remedy="mend it")
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


def test_brackets_in_text_are_not_nesting():
    assert parse_json(b'{"a": "' + b"[{" * 100 + b'\\" [[", "b": [[1]]}')["b"] == [[1]]
    flat = b"[" + b"[1]," * 10_000 + b"[1]]"
    assert len(parse_json(flat)) == 10_001


def test_large_file_is_refused_without_reading(tmp_path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(InputError, match=r"a\.json: is larger than 32 MiB"):
        read_json(tmp_path / "a.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipe_is_refused_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(InputError, match="is not a regular file"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"[1]", r"holds \[1\] instead of a JSON object"),
        (b"null", "holds None"),
        (b"{}", "'n' is missing, but must be a whole number"),
        (b'{"n": true}', "'n' is True"),
        (b'{"n": -1}', "'n' is -1"),
        (b'{"n": 1, "x": [1, "a"]}', r"'x' is \[1, 'a'\], but must be a list, each item a number or null"),
    ],
)
def test_entries_of_the_wrong_shape_are_named(tmp_path, value, words):
    (tmp_path / "a.json").write_bytes(value)
    with pytest.raises(InputError, match=f"a.json: {words}"):
        read_object(tmp_path / "a.json", {"n": whole, "x": maybe(list_of(number))})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ALIASES, r"line 2 uses an alias \(\*a\)"),
        ("a: &a [*a]", "alias"),
        ("[" * 100_000, "nested deeper than 32 levels"),
        ("a: !!python/object/apply:os.system [ls]", "tag"),
        ("a: !!int ''", "tag"),
        ("a: " + "9" * 5000, "number that is too large"),
        ("a: 99999999999999999999", "number that is too large"),
        ("a: 2026-99-99", "month"),
        ("a: [unclosed", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
    ],
    ids=lambda value: value[:12],
)
def test_error_for_malformed_yaml_is_one_sentence(tmp_path, text, words):
    (tmp_path / "a.yaml").write_text(text)
    begin = time.monotonic()
    with pytest.raises(InputError, match=f"a.yaml: .*{words}.*; restore it from a copy of the run folder$") as error:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert time.monotonic() - begin < 20


def test_yaml_of_another_encoding_or_too_large(tmp_path):
    (tmp_path / "a.yaml").write_bytes("a: ü".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.yaml: not UTF-8 text"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("a: 1\n" * 100_000)
    with pytest.raises(InputError, match=r"a\.yaml: is larger than 256 KiB"):
        read_yaml(tmp_path / "a.yaml")


def test_too_long_line_is_refused(tmp_path):
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(20 * 2**20)
    with pytest.raises(InputError, match="a line longer than 16 MiB"):
        list(read_lines(tmp_path / "a.jsonl"))
