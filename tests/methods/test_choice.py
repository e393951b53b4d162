import pytest

from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.methods.choice import check_method_name, checked_class, method_class, short_name

OWN = """
from torch import nn

class Good(nn.Module):
    def forward(self, views, labels=None, index=None):
        return 0

class TwoArguments(nn.Module):
    def forward(self, views, labels):
        return 0

class NoModule:
    pass

number = 3
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_names_and_own_classes(own):
    assert method_class("simclr") is METHODS["simclr"]
    assert method_class(f"{own}:Good").__name__ == "Good"
    assert short_name(f"{own}:Good") == "Good" and short_name("moco") == "moco"
    checked_class("custom:Good", method_class(f"{own}:Good"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simclear", "must be one of simclr, .*did you mean 'simclr'"),
        ("", "must be one of"),
        ("own.py", "must be one of"),
        ("{own}:Missing", "no class or function 'Missing'"),
        ("{own}:number", "no class or function 'number'"),
        ("{own}:NoModule", "torch.nn.Module"),
        ("{own}:TwoArguments", r"forward must take \(views, labels, index\)"),
        ("nowhere.py:Good", "no such file nowhere.py"),
        ("custom:Good", "pass it again"),
    ],
)
def test_mistakes_are_named(own, name, words):
    with pytest.raises(InputError, match=words):
        method_class(name.format(own=own))


def test_a_name_is_checked_without_reading_the_file():
    check_method_name("nowhere.py:Good")
    with pytest.raises(InputError, match="a class derived"):
        checked_class("custom:?", 3)
