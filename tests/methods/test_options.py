import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.methods import METHODS, Method, MoCo, PaCo, Softmax, SupCon
from coulomb.methods.options import (
    build_method,
    check_method,
    check_method_name,
    complete_options,
    find_method,
    own_options,
    short_name,
    used_options,
)
from method_cases import encoder

OWN = """
from torch import nn

class Good(nn.Module):
    def forward(self, views, labels=None, train_row=None):
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
    assert find_method("simclr") is METHODS["simclr"]
    assert find_method(f"{own}:Good").__name__ == "Good"
    assert short_name(f"{own}:Good") == "Good" and short_name("moco") == "moco"
    check_method("custom:Good", find_method(f"{own}:Good"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simclear", "must be one of simclr, .*did you mean 'simclr'"),
        ("", "must be one of"),
        ("own.py", "must be one of"),
        ("{own}:Missing", "no class or function 'Missing'"),
        ("{own}:number", "no class or function 'number'"),
        ("{own}:NoModule", "torch.nn.Module"),
        ("{own}:TwoArguments", r"forward must take \(views, labels, train_row\)"),
        ("nowhere.py:Good", "no such file nowhere.py"),
        ("custom:Good", "pass it again"),
    ],
)
def test_names_that_are_no_method_are_refused(own, name, words):
    with pytest.raises(InputError, match=words):
        find_method(name.format(own=own))


def test_a_name_is_checked_without_reading_the_file():
    check_method_name("nowhere.py:Good")
    with pytest.raises(InputError, match="derived from torch.nn.Module"):
        check_method("custom:?", 3)


SHARED = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 1, "head_hidden_dim": None, "seed": 1}
UNLABELED = {"num_images": 20, "class_counts": None}


class OpenEnded(nn.Module):
    def __init__(self, tower, *, num_images, strength: float, kind: str = "a", class_counts=None, **rest):
        super().__init__()
        self.tower = tower
        self.given = {"num_images": num_images, "strength": strength, "kind": kind, "counts": class_counts} | rest


class Strict(nn.Module):
    def __init__(self, tower, *, strength: float, module=nn.ReLU, depth: int | None = None):
        super().__init__()


def test_own_options_exclude_shared_options_and_facts():
    assert "queue_size" in own_options(MoCo) and "temperature" not in own_options(MoCo)
    assert "class_counts" not in own_options(PaCo)
    assert list(own_options(SupCon)) == []
    assert list(own_options(OpenEnded)) == ["strength", "kind"]


def test_defaults_complete_the_given_options():
    found = complete_options("moco", MoCo, {"queue_size": 64})
    assert found["queue_size"] == 64 and found["momentum"] == 0.99 and set(found) == set(own_options(MoCo))
    assert complete_options("x", Strict, {"strength": 2}) == {"strength": 2, "depth": None}
    assert complete_options("x", OpenEnded, {"strength": 1.0, "color": "red"})["color"] == "red"


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
        (OpenEnded, {"strength": 1.0, "num_images": 3}, "no option 'num_images'"),
    ],
)
def test_wrong_options_are_refused(method, given, words):
    with pytest.raises(InputError, match=words):
        complete_options("mine", method, given)


def test_a_method_receives_the_arguments_that_it_declares():
    made = build_method(
        "own",
        check_method("own", OpenEnded),
        encoder(),
        shared=SHARED,
        **UNLABELED,
        own={"strength": 2.0, "color": 1},
    )
    assert made.given == {"num_images": 20, "strength": 2.0, "kind": "a", "counts": None, "color": 1}


def test_methods_that_declare_classes_need_labels():
    with pytest.raises(InputError, match=r"softmax.*needs labels \(class_counts\)"):
        build_method("softmax", Softmax, encoder(), shared=SHARED, **UNLABELED, own={})


def test_values_that_a_method_refuses_are_input_errors():
    facts = UNLABELED | {"class_counts": torch.tensor([3, 4])}
    with pytest.raises(InputError, match="method 'paco'.*alpha"):
        build_method("paco", PaCo, encoder(), shared=SHARED, **facts, own={"alpha": -1.0})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_documents_its_options(name):
    for option in own_options(METHODS[name]):
        assert option in METHODS[name].__doc__, option


def test_a_class_without_the_interface_receives_its_defaults():
    class Plain(nn.Module):
        """Derived from torch alone."""

        needs_labels = True

        def __init__(self, tower, **options):
            super().__init__()
            self.tower = tower

        def forward(self, views, labels, train_row):
            return self.tower(views[self.tower.column]).sum()

        def no_signal(self, batch, views):
            return 3.0

    method = check_method("mine", Plain)
    assert issubclass(method, Plain) and issubclass(method, Method) and check_method("again", method) is method
    assert (method.__name__, method.__module__, method.__doc__) == ("Plain", __name__, Plain.__doc__)
    assert method.needs_labels and not method.two_stages and method.constant_lr == ()
    built = method(method.tower_for(encoder()))
    assert built.no_signal(4, 2) == 3.0 and built.floor(4, 2) is None and built.figures() == {}
    assert built.classifier() is None and built.after_batch() is None and built.after_update(0.5) is None


def test_a_submodule_with_the_name_of_a_hook_is_refused():
    class Hiding(nn.Module):
        def __init__(self, tower):
            super().__init__()
            self.tower, self.classifier = tower, nn.Linear(3, 3)

        def forward(self, views, labels, train_row):
            return 0

    method = check_method("mine", Hiding)
    with pytest.raises(InputError, match="attribute 'classifier' has the name of a hook"):
        build_method("mine", method, encoder(), shared=SHARED, **UNLABELED, own={})


def test_a_method_that_loses_its_tower_is_refused():
    class Lost(nn.Module):
        def __init__(self, tower):
            super().__init__()
            self.encoder = tower.encoder

        def forward(self, views, labels, train_row):
            return 0

    with pytest.raises(InputError, match="method='mine': has no tower"):
        build_method("mine", check_method("mine", Lost), encoder(), shared=SHARED, **UNLABELED, own={})


def test_a_tower_has_the_head_of_the_run():
    built = build_method("supcon", SupCon, encoder(), shared=SHARED, **UNLABELED, own={})
    assert [type(part) for part in built.tower.head] == [nn.Linear] and built.tower.embedding_dim == 5
    assert used_options(SupCon) == {"temperature", "embedding_dim", "head_layers", "head_hidden_dim", "seed"}
    assert used_options(Softmax) == {"seed"}


def test_a_method_without_a_head_embeds_features():
    class Bare(nn.Module):
        default_head = None

        def __init__(self, tower):
            super().__init__()
            self.tower = tower

        def forward(self, views, labels, train_row):
            return self.tower(views["image"]).sum()

    built = build_method("mine", check_method("mine", Bare), encoder(), shared=SHARED, **UNLABELED, own={})
    images = torch.rand(3, 1, 8, 8)
    built.eval()
    assert torch.equal(built.tower(images), built.tower.encoder(images))
    assert built.tower.embedding_dim == encoder().feature_dim
