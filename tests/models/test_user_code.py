import pytest

from coulomb.ground.errors import InputError
from coulomb.models.user_code import is_user_code, load_user_code, with_absolute_path


@pytest.mark.parametrize(
    ("text", "answer"), [("a.py:B", True), ("/x/a.py:B", True), ("a.py", False), ("a.py:", False), ("hf:name", False)]
)
def test_names_of_user_code(text, answer):
    assert is_user_code(text) is answer


def test_absolute_path_works_from_another_directory(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("class Net:\n    size = 3\n")
    monkeypatch.chdir(tmp_path)
    text = with_absolute_path("mine.py:Net")
    monkeypatch.chdir("/")
    assert load_user_code("encoder", text).size == 3
    with pytest.raises(InputError, match="encoder='mine.py:Net': no such file"):
        load_user_code("encoder", "mine.py:Net")
