import pytest

from coulomb.errors import InputError
from coulomb.models.user_code import absolute, from_own_file, is_own_file


@pytest.mark.parametrize(
    ("text", "answer"), [("a.py:B", True), ("/x/a.py:B", True), ("a.py", False), ("a.py:", False), ("hf:name", False)]
)
def test_what_reads_as_an_own_file(text, answer):
    assert is_own_file(text) is answer


def test_a_class_is_found_from_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("class Net:\n    size = 3\n")
    monkeypatch.chdir(tmp_path)
    text = absolute("mine.py:Net")
    monkeypatch.chdir("/")
    assert from_own_file("encoder", text).size == 3
    with pytest.raises(InputError, match="encoder='mine.py:Net': no such file"):
        from_own_file("encoder", "mine.py:Net")
