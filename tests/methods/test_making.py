import pytest
import torch
from torch import nn

from coulomb.errors import InputError
from coulomb.methods import METHODS, MoCo, PaCo, Softmax, SupCon
from coulomb.methods.making import complete_options, make_method, own_options
from method_cases import encoder

SHARED = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 1, "head_hidden_dim": None, "seed": 1}
UNLABELLED = {"num_images": 20, "class_counts": None, "num_classes": None}


class Own(nn.Module):
    def __init__(self, encoder, *, num_images, strength: float, kind: str = "a", class_counts=None, **rest):
        super().__init__()
        self.given = {"num_images": num_images, "strength": strength, "kind": kind, "counts": class_counts} | rest


class Strict(nn.Module):
    def __init__(self, encoder, *, strength: float, module=nn.ReLU, depth: int | None = None):
        super().__init__()


def test_own_options_are_those_beside_the_shared_and_the_facts():
    assert "queue_size" in own_options(MoCo) and "temperature" not in own_options(MoCo)
    assert "class_counts" not in own_options(PaCo)
    assert list(own_options(SupCon)) == []
    assert list(own_options(Own)) == ["strength", "kind"]


def test_defaults_complete_what_was_given():
    found = complete_options("moco", MoCo, {"queue_size": 64})
    assert found["queue_size"] == 64 and found["momentum"] == 0.99 and set(found) == set(own_options(MoCo))
    assert complete_options("x", Strict, {"strength": 2}) == {"strength": 2, "depth": None}
    assert complete_options("x", Own, {"strength": 1.0, "colour": "red"})["colour"] == "red"


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        (MoCo, {"queue_sise": 3}, "no option 'queue_sise'; did you mean 'queue_size'"),
        (MoCo, {"zebra": 3}, "no option 'zebra'; it has queue_size"),
        (SupCon, {"zebra": 3}, "it has none"),
        (MoCo, {"temperature": 0.1}, "--temperature"),
        (MoCo, {"queue_size": "big"}, "queue_size='big'.*expected int"),
        (MoCo, {"queue_size": 2.5}, "expected int"),
        (MoCo, {"symmetric": 1}, "expected bool"),
        (MoCo, {"queue_size": True}, "expected int"),
        (Strict, {}, "needs strength.*--option strength=VALUE"),
        (Own, {"strength": 1.0, "num_images": 3}, "no option 'num_images'"),
    ],
)
def test_mistakes_are_named(method, given, words):
    with pytest.raises(InputError, match=words):
        complete_options("mine", method, given)


def test_a_method_gets_what_it_asks_for():
    made = make_method("own", Own, encoder(), shared=SHARED, facts=UNLABELLED, own={"strength": 2.0, "colour": 1})
    assert made.given == {"num_images": 20, "strength": 2.0, "kind": "a", "counts": None, "colour": 1}


def test_classes_are_needed_by_those_who_ask():
    with pytest.raises(InputError, match=r"softmax.*needs labels \(class_counts\)"):
        make_method("softmax", Softmax, encoder(), shared=SHARED, facts=UNLABELLED, own={})


def test_values_that_a_method_refuses_are_input_errors():
    facts = UNLABELLED | {"class_counts": torch.tensor([3, 4])}
    with pytest.raises(InputError, match="method 'paco'.*alpha"):
        make_method("paco", PaCo, encoder(), shared=SHARED, facts=facts, own={"alpha": -1.0})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_explains_its_options(name):
    for option in own_options(METHODS[name]):
        assert option in METHODS[name].__doc__, option
