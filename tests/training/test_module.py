"""The order and arguments of a method's hooks, recorded by a user's own class; the first non-finite tensor."""

import pytest
import torch
from torch import nn

import coulomb
from coulomb.ground.errors import InputError
from coulomb.methods import SimCLR
from coulomb.training.module import first_nonfinite, save_batch
from run_cases import comparable, stopped_at

OWN = '''
import torch
from coulomb.methods import SimCLR


class Told(SimCLR):
    """Counts batches and updates in buffers, and records their order."""

    def __init__(self, tower, *, num_images, class_counts=None, temperature=0.5, strength: float = 1.0, kind="plain"):
        super().__init__(tower, temperature=temperature)
        assert num_images == 48 and class_counts.tolist() == [9, 9, 10, 10, 10]
        self.num_images, self.strength = num_images, strength
        self.register_buffer("counts", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(num_images))
        self.order, self.progress = "", 0.0

    def forward(self, views, labels=None, train_row=None):
        self.order += "f"
        self.train_row = train_row
        return self.strength * super().forward(views)

    def after_batch(self):
        assert not torch.is_grad_enabled() and self.tower.head[0].weight.grad is not None
        self.order += "b"
        self.counts[0] += 1
        self.seen[self.train_row] += 1

    def after_update(self, progress):
        self.order += "u"
        self.counts[1] += 1
        self.progress = progress

    def no_signal(self, batch, views):
        return None

    def figures(self):
        order, self.order = self.order, ""
        return {
            "batches": float(self.counts[0]),
            "updates": float(self.counts[1]),
            "progress": self.progress,
            "order": float(["fbu", "fbfbfbu"].index(order)),
            "seen": float(self.seen.sum()),
            "most": float(self.seen.max()),
            "lr": -1.0,  # must not override the trainer's value
        }
'''


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:Told"


@pytest.mark.parametrize("accumulate", [1, 3])
def test_hooks_come_in_order(digit_tree, tmp_path, quick, own, accumulate):
    out = tmp_path / "run"
    run = coulomb.train(
        digit_tree,
        method=own,
        out=out,
        accumulate=accumulate,
        method_options={"strength": 2},
        evaluate=accumulate == 3,
        progress=False,
        **quick,
    )
    lines = [line for line in run.metrics if "loss" in line]
    updates = 18 // accumulate
    assert [line["updates"] for line in lines] == list(range(1, updates + 1))
    assert [line["batches"] for line in lines] == list(range(accumulate, 19, accumulate))
    assert [line["progress"] for line in lines] == [update / updates for update in range(1, updates + 1)]
    assert {line["order"] for line in lines} == {0.0 if accumulate == 1 else 1.0}
    assert lines[-1]["seen"] == 3 * 48 and lines[-1]["most"] == 3  # every position once an epoch
    assert all(line["lr"] >= 0 and line["no_signal"] is None for line in lines)
    assert run.config.method == own and run.config.method_options == {"strength": 2, "kind": "plain"}
    assert accumulate == 1 or "constant embeddings:" not in run.report.read_text()


@pytest.mark.slow
def test_a_stopped_run_with_an_own_method_resumes(digit_tree, tmp_path, quick, own, monkeypatch):
    whole = coulomb.train(digit_tree, method=own, out=tmp_path / "whole", evaluate=False, progress=False, **quick)
    monkeypatch.chdir(tmp_path)
    out = stopped_at(10, digit_tree, tmp_path / "run", method="own.py:Told", **quick)
    monkeypatch.chdir("/")
    named = f"{tmp_path}/own.py:Told"
    with pytest.raises(InputError, match=r"own\.py:Told' is code outside coulomb.*--method .*own\.py:Told"):
        coulomb.train(resume_from=out, evaluate=False, progress=False)
    run = coulomb.train(resume_from=out, method=named, evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    (tmp_path / "own.py").unlink()
    with pytest.raises(InputError, match=r"no such file .*own\.py"):
        coulomb.train(resume_from=out, method=named, progress=False)


def test_a_class_can_be_passed(digit_tree, tmp_path, quick):
    class Mine(SimCLR):
        """SimCLR without changes."""

    run = coulomb.train(digit_tree, method=Mine, out=tmp_path / "run", evaluate=False, progress=False, **quick)
    plain = coulomb.train(digit_tree, out=tmp_path / "plain", evaluate=False, progress=False, **quick)
    assert comparable(run.path) == comparable(plain.path)
    assert run.config.method == "custom:Mine"
    with pytest.raises(InputError, match="pass it again as method"):
        coulomb.train(resume_from=run.path, progress=False)
    with pytest.raises(InputError, match="torch.nn.Module"):
        coulomb.train(digit_tree, method=3, out=tmp_path / "other", progress=False, **quick)


class Poison(nn.Module):
    def forward(self, x):
        return x / 0


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def find(model, x):
    return first_nonfinite(model, {"view0": x}, lambda: model(x).sum())


def test_names_the_layer():
    model = network(nn.Linear(3, 3), Poison(), nn.ReLU())
    assert "output of 1 (Poison)" in find(model, torch.ones(2, 3))


def test_names_the_parameter_first():
    model = network(nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].bias.data[0] = float("inf")
    assert "parameter 1.bias" in find(model, torch.ones(2, 3))


def test_names_the_input():
    assert "input view0" in find(network(nn.Linear(3, 3)), torch.full((2, 3), float("nan")))


def test_finite_tensors_have_no_culprit():
    assert find(network(nn.Linear(3, 3)), torch.ones(2, 3)) is None


def test_a_loss_that_refuses_does_not_hide_the_culprit():
    def refuse():
        model(torch.ones(2, 3))
        raise ValueError("NaN features")

    model = network(nn.Linear(3, 3), Poison())
    assert first_nonfinite(model, {}, refuse) == "output of 1 (Poison)"


def test_the_batch_is_saved(tmp_path):
    path = save_batch({"view0": torch.ones(2, 3)}, tmp_path)
    assert torch.equal(torch.load(path, weights_only=True)["view0"], torch.ones(2, 3))
