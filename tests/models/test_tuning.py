import pytest

from coulomb.errors import InputError
from coulomb.models.tuning import Tune


@pytest.mark.parametrize(
    ("text", "kind", "number", "frozen"),
    [
        ("all", "all", None, False),
        ("last:2", "last", 2, False),
        ("lora:8", "lora", 8, False),
        ("norm", "norm", None, False),
        ("head", "head", None, True),
        ("none", "none", None, True),
        ("whiten", "whiten", None, True),
    ],
)
def test_each_kind_is_parsed(text, kind, number, frozen):
    tune = Tune.parse(text)
    assert (tune.kind, tune.number, tune.frozen) == (kind, number, frozen)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("whitten", "whiten"),
        ("", "one of all, last:K, head, lora:R"),
        ("last", "last:2"),
        ("last:0", "at least 1"),
        ("lora:-1", "at least 1"),
        ("lora:¹", "at least 1"),
        ("last:" + "9" * 5000, "at least 1"),
        ("none:3", "has no number"),
    ],
)
def test_other_values_are_refused_with_the_remedy(text, part):
    with pytest.raises(InputError, match=part):
        Tune.parse(text)
