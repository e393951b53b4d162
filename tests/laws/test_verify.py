"""`verify`: no false alarm for the losses of this project, broken losses found with their cause, calls inferred or refused."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import coulomb
import coulomb.losses
from broken_losses import BROKEN, FORMULAS, Right, logits_of
from coulomb.ground.errors import InputError
from coulomb.laws import FAILS, HOLDS, NOT_APPLICABLE, verify
from coulomb.laws.call import written
from coulomb.laws.certificate import certify
from coulomb.laws.subject import Subject
from law_rows import all_rows

LOSSES = all_rows()
FIRST = {name.split()[0]: name for name in reversed(LOSSES)}  # the first row of each loss
QUICK = (
    "gradient",
    "factor",
    "order",
    "reductions",
    "micro-batches",
    "degenerate",
    "temperature",
    "deterministic",
    "inputs",
)
DEEP = (*QUICK, "formula", "memory", "work", "precision", "processes")


def subject_of(name):
    row = LOSSES[name]
    inputs = row.inputs(12, 5, lambda *shape: torch.zeros(shape))

    def make(temperature=0.2, **options):
        return row.make(temperature, **options)

    return Subject(
        name,
        make,
        row.inputs,
        tuple(f"input{i}" for i in range(len(inputs))),
        options={"reduction": "mean"} | ({"temperature": 0.2} if row.temperature else {}),
        called="by its row",
        shuffle=row.shuffle,
        split=SPLITS.get(name),
        formula=lambda *a: row.loop(0.2, *a),
        mean=row.mean,
    )


def parts_of_everything(inputs, rank, world):
    """Every process has its own negatives or keys, too."""
    return [one.tensor_split(world)[rank] for one in inputs]


SPLITS = dict.fromkeys(("InfoNCELoss hard negatives", "DistillationLoss pairs"), parts_of_everything)
WITHIN_A_PROCESS = ("SupConLoss mask",)  # a mask is of the samples of each process


def alarms(certificate):
    assert not [one for one in certificate.findings if "refuses the inputs" in one.cause]
    return [f"{one.law}: {one.cause} ({one.figure})\n{one.example}" for one in certificate.failed]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST.values())
def test_no_false_alarm_for_any_loss_of_this_project(name):
    assert alarms(certify(subject_of(name), DEEP)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LOSSES if name not in FIRST.values()])
def test_no_false_alarm_for_any_way_to_call_a_loss(name):
    skipped = {
        law
        for law, skip in (("gradient", not LOSSES[name].derivative), ("processes", name in WITHIN_A_PROCESS))
        if skip
    }
    laws = [law for law in DEEP if law not in skipped]
    assert alarms(certify(subject_of(name), laws)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST.values())
@pytest.mark.filterwarnings("default")
def test_no_false_alarm_when_compiled(name):
    assert alarms(certify(subject_of(name), ["compile"])) == []


MORE_IS_NEEDED = {"ArcFaceLoss", "BalancedSoftmaxLoss", "MatryoshkaLoss", "NCELoss", "PaCoLoss", "SoftmaxLoss"}


@pytest.mark.parametrize("name", sorted({name.split()[0] for name in LOSSES} - MORE_IS_NEEDED))
def test_losses_by_their_class_alone_have_no_false_alarm(name):
    certificate = verify(getattr(coulomb.losses, name), laws=QUICK)
    assert alarms(certificate) == []
    assert "inferred" in certificate.called


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_loss_is_found_with_its_cause_and_a_small_example(broken):
    law, words = BROKEN[broken]
    laws = [key for key in DEEP if key in TOPIC.get(law, law)] or ["degenerate"]
    certificate = verify(broken, formula=FORMULAS.get(broken), laws=laws)
    found = {one.law: one for one in certificate.failed}
    assert law in found, [str(one) for one in certificate.findings]
    assert words in found[law].cause
    assert found[law].example
    assert not certificate.holds


# How findings are called → part of the name of the law that returns them
TOPIC = {
    "upstream factor": "factor",
    "order of samples": "order",
    "memory for backward": "memory",
    "inputs unchanged": "inputs",
    "float16": "precision",
    "2 processes": "processes",
    "3 processes": "processes",
}


def test_the_unbroken_loss_obeys_the_laws_but_for_its_memory_and_what_it_leaves_unsaid():
    certificate = verify(Right, laws=DEEP)
    assert {one.law for one in certificate.failed} == {"memory for backward", "one sample", "zero row"}
    (two,) = [one for one in certificate.findings if one.law == "2 processes"]
    assert two.outcome == NOT_APPLICABLE
    assert "does not use other processes' samples" in two.cause


def test_the_smallest_example_is_small():
    (finding,) = verify(next(one for one in BROKEN if one.__name__ == "Detached"), laws=["gradient"]).failed
    assert finding.example.startswith("z0 = [[")
    assert len(finding.example.splitlines()[0].split(",")) <= 4  # two numbers in two rows
    assert "autograd 0" in finding.example


def test_a_declared_target_needs_no_gradient():
    detached = next(one for one in BROKEN if one.__name__ == "Detached")
    (finding,) = verify(detached, laws=["gradient"], detached=["z1"]).findings
    assert finding.outcome == HOLDS
    assert "no gradient reaches z1" in finding.cause
    with pytest.raises(InputError, match=r"detached=\['z7'\].*z0, z1"):
        verify(detached, laws=["gradient"], detached=["z7"])


def cosine(x, y):
    return 1 - nn.functional.cosine_similarity(x, y).mean()


class Labeled(nn.Module):
    def __init__(self, num_classes, dim):
        super().__init__()
        self.layer = nn.Linear(dim, num_classes)

    def forward(self, embeddings, labels):
        return nn.functional.cross_entropy(self.layer(embeddings), labels)


class Views(nn.Module):
    def forward(self, features, labels=None, mask=None):
        assert features.ndim == 3
        return (features[:, 0] - features[:, 1]).square().mean()


class Scaled(nn.Module):
    def forward(self, image_features, text_features, logit_scale, logit_bias=None, output_dict=False):
        logits = logit_scale * image_features @ text_features.T
        return {"contrastive_loss": nn.functional.cross_entropy(logits, torch.arange(len(logits)))}


@pytest.mark.parametrize(
    ("loss", "options", "called"),
    [
        (Right, {"temperature": 0.3}, "loss(z0 [N, D], z1 [N, D])"),
        (Right(0.3), {}, "loss(z0 [N, D], z1 [N, D])"),
        (cosine, {}, "loss(x [N, D], y [N, D])"),
        (lambda what, that, other: what.sum(), {}, None),
        (Labeled, {"num_classes": 3, "dim": 7}, "loss(embeddings [N, D], labels [N], two samples per class)"),
        (Views, {}, "loss(features [N, 2, D], labels [N], two samples per class)"),
        (
            Scaled,
            {},
            "loss(image_features [N, D], unit rows, text_features [N, D], unit rows, logit_scale a number, 10)",
        ),
        (nn.TripletMarginLoss, {}, "loss(anchor [N, D], positive [N, D], negative [N, D])"),
    ],
)
def test_the_call_is_inferred_and_said_or_asked_for(loss, options, called):
    if called is None:
        with pytest.raises(InputError, match="call"):
            verify(loss, options=options, laws=["gradient"])
        return
    certificate = verify(loss, options=options, laws=["gradient", "order"])
    assert called in certificate.called
    assert alarms(certificate) == []


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("(z0, z1)", [(6, 5), (6, 5)]),
        ("(features[N, 2, D], labels)", [(6, 2, 5), (6,)]),
        ("(q, k, queue=bank[2N+3,D], scale=s[])", [(6, 5), (6, 5), (15, 5), ()]),
        ("(x[N, 4], y[N])", [(6, 4), (6,)]),
    ],
)
def test_a_written_call_is_read(text, shapes):
    inputs = written(text).inputs(6, 5, lambda *shape: torch.zeros(shape))
    assert [tuple(one.shape) for one in inputs] == shapes


@pytest.mark.parametrize("text", ["z0, z1", "()", "(z0; z1)", "(what)", "(z0[N, 2M])", "(z0, z0)"])
def test_a_call_that_cannot_be_read_is_refused_with_what_can_be_written(text):
    with pytest.raises(InputError, match="^call="):
        written(text)


def test_wrong_arguments_raise_an_error_that_names_them():
    with pytest.raises(InputError, match="laws='gradiant'.*did you mean 'gradient'"):
        verify(Right, laws=["gradiant"])
    with pytest.raises(InputError, match="loss=3"):
        verify(3)
    with pytest.raises(InputError, match="cannot be constructed.*num_classes"):
        verify(Labeled)
    with pytest.raises(InputError, match="fails on an ordinary batch"):
        verify(Right, call="(z0)")
    with pytest.raises(InputError, match=r"loss=.*nan"):
        verify(lambda z0, z1: (z0 * z1).sum() / 0 * 0, call="(z0, z1)")


def test_inputs_and_a_formula_can_be_given():
    def pairs(n, d, draw):
        return draw(n, d), draw(n, d)

    def squared(left, right):
        return (left - right).square().sum(1).mean()

    def loop(left, right):
        return torch.stack([((a - b) ** 2).sum() for a, b in zip(left, right, strict=True)])

    assert verify(squared, pairs, formula=loop, laws=["formula"]).findings[0].outcome == HOLDS
    (finding,) = verify(squared, pairs, formula=lambda a, b: 2 * loop(a, b), laws=["formula"]).failed
    assert "0.5 times" in finding.cause


def in_numpy(z0, z1):
    weights = torch.from_numpy(np.exp(-(z0 - z1).square().sum(1).detach().numpy()))
    return torch.tensor(float(weights.sum()), requires_grad=True)


def test_a_loss_without_any_gradient_says_so():
    with pytest.raises(
        InputError, match=r"^call: loss\(z0 \[N, D\], z1 \[N, D\]\) works, but no argument gets a gradient.*NumPy"
    ):
        verify(in_numpy, laws=["gradient"])


class Centered(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.register_buffer("center", torch.zeros(dim))

    def forward(self, student, teacher):
        loss = (student - (teacher - self.center).detach()).square().sum(1).mean()
        self.center = 0.9 * self.center + 0.1 * teacher.detach().mean(0)
        return loss


def test_a_loss_of_one_width_is_called_in_its_default_and_its_state_is_named():
    certificate = verify(Centered, laws=["gradient", "deterministic"])
    assert certificate.called.endswith("in 8 dimensions")
    (finding,) = certificate.failed
    assert finding.law == "deterministic" and "the loss keeps a state" in finding.cause


class Refusing(Right):
    def forward(self, z0, z1):
        if torch.distributed.is_initialized():
            raise self.error("one process only")
        return super().forward(z0, z1)


@pytest.mark.parametrize(("error", "outcome"), [(ValueError, NOT_APPLICABLE), (IndexError, FAILS)])
def test_a_loss_that_refuses_several_processes_is_no_failure_and_one_that_breaks_is(error, outcome):
    refusing = type("Refusing", (Refusing,), {"error": error})
    found = verify(refusing, laws=["processes"]).findings
    assert {one.outcome for one in found} == {outcome}
    assert "one process only" in found[0].cause


class GathersAPool(Right):
    def forward(self, z0, z1, pool):
        keys = pool
        if torch.distributed.is_initialized():
            parts = [torch.empty_like(pool) for _ in range(torch.distributed.get_world_size())]
            torch.distributed.all_gather(parts, pool.detach())
            keys = torch.cat(parts)
        scores = logits_of(z0, torch.cat([z1, keys]), self.temperature)
        return nn.functional.cross_entropy(scores, torch.arange(len(z0)))


def test_rows_beside_the_samples_are_the_same_in_all_processes_unless_they_are_split():
    (finding, _) = verify(GathersAPool, call="(z0, z1, pool[N+3, D])", detached=["pool"], laws=["processes"]).findings
    assert finding.outcome == NOT_APPLICABLE
    assert "all rows of pool" in finding.cause and "split=" in finding.cause


def test_the_result_is_text_and_json():
    certificate = verify(Right, laws=["gradient", "degenerate"])
    text, content = str(certificate), json.loads(json.dumps(certificate.to_dict()))
    assert "loss(z0 [N, D], z1 [N, D])" in text and "one sample: returns 0" in text
    assert content["holds"] is False
    assert {one["outcome"] for one in content["findings"]} == {HOLDS, FAILS, NOT_APPLICABLE}


def test_the_global_random_state_stays():
    torch.manual_seed(4)
    before = torch.get_rng_state()
    verify(Right, laws=["gradient", "deterministic"])
    assert torch.equal(before, torch.get_rng_state())


def test_coulomb_verify_is_this_function():
    assert coulomb.verify is verify
