"""The analysis of a loss's arguments agrees with the loss's own ``diagnose=True``."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from coulomb.losses import (
    DebiasedLoss,
    DecoupledLoss,
    HardContrastiveLoss,
    HardNegativeLoss,
    InfoNCELoss,
    NCELoss,
    NTXentLoss,
    PaCoLoss,
    SimpleContrastiveLoss,
    SoftmaxLoss,
    SupConLoss,
)
from coulomb.negatives import MemoryBank, Queue
from coulomb.training.watching import loss_inputs
from coulomb.training.watching.loss_inputs import Labels, LossInputs, read_inputs

NONE = nn.Module()


def rows(n, seed, d=6):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


CLASSES = torch.tensor([0, 1, 0, 2, -1, 1, 2, 0])
STACKED = torch.stack([rows(8, 0), rows(8, 0) + rows(8, 1)], dim=1)
QUEUE = rows(30, 2)
CALLS = {
    "ntxent": (NTXentLoss, (STACKED,)),
    "ntxent of pairs": (NTXentLoss, tuple(STACKED.unbind(1))),
    "decoupled": (DecoupledLoss, tuple(STACKED.unbind(1))),
    "debiased": (DebiasedLoss, tuple(STACKED.unbind(1))),
    "supcon": (SupConLoss, (STACKED, CLASSES)),
    "supcon without labels": (SupConLoss, (STACKED,)),
    "infonce": (InfoNCELoss, tuple(STACKED.unbind(1))),
    "infonce and a queue": (InfoNCELoss, (*STACKED.unbind(1), QUEUE)),
    "hard contrastive": (HardContrastiveLoss, (*STACKED.unbind(1), QUEUE)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_analysis_agrees_with_the_diagnosis_of_the_loss(name):
    kind, given = CALLS[name]
    loss = kind(temperature=0.3, diagnose=True)
    said = loss(*given)[1]
    found = read_inputs(loss, given, {}, NONE, Labels())
    has = said.effective_negatives > 0
    assert found.hardness.effective_negatives == pytest.approx(float(said.effective_negatives[has].mean()), rel=1e-4)
    if not name.startswith("supcon"):  # whose positives are the whole class
        assert found.positive == pytest.approx(float(said.positive.mean()), rel=1e-4)
    named = dict(zip(("query", "positive", "negatives"), given, strict=False))
    if "query" in loss.forward.__code__.co_varnames:
        assert read_inputs(loss, (), named, NONE, Labels()) == found


def test_hard_negatives_are_weighed_by_beta():
    given = tuple(STACKED.unbind(1))
    hard = read_inputs(HardNegativeLoss(0.6, beta=2.0), given, {}, NONE, Labels()).hardness
    plain = read_inputs(DebiasedLoss(0.2), given, {}, NONE, Labels()).hardness
    assert hard.effective_negatives == pytest.approx(plain.effective_negatives)


def test_keys_of_the_own_image_are_excluded():
    call = {"ids": torch.arange(8), "negative_ids": torch.arange(30) - 1}
    given = (*STACKED.unbind(1), QUEUE)
    said = InfoNCELoss(0.3, diagnose=True)(*given, **call)[1]
    found = read_inputs(InfoNCELoss(0.3), given, call, NONE, Labels())
    assert found.hardness.negatives == 29
    assert found.hardness.effective_negatives == pytest.approx(float(said.effective_negatives.mean()), rel=1e-4)


PAIRS_OF_IDS = torch.stack([CLASSES, torch.arange(8) // 2], 1)


@pytest.mark.parametrize(
    ("given", "call"),
    [
        (tuple(STACKED.unbind(1)), {"ids": CLASSES}),
        (tuple(STACKED.unbind(1)), {"ids": PAIRS_OF_IDS}),
        ((*STACKED.unbind(1), QUEUE), {}),
        ((*STACKED.unbind(1), QUEUE), {"ids": PAIRS_OF_IDS}),
        ((*STACKED.unbind(1), QUEUE[:8]), {"ids": PAIRS_OF_IDS, "negative_ids": PAIRS_OF_IDS.flip(0)}),
    ],
)
def test_equal_ids_and_hard_negatives(given, call):
    loss = InfoNCELoss(0.3, in_batch=True, diagnose=True)
    said = loss(*given, **call)[1]
    found = read_inputs(loss, given, call, NONE, Labels())
    assert found.hardness.effective_negatives == pytest.approx(float(said.effective_negatives.mean()), rel=1e-4)


def test_paco_pushes_other_classes_away():
    features, labels = torch.cat([rows(8, 0), rows(8, 3), QUEUE]), torch.cat([CLASSES, CLASSES, torch.full((30,), 1)])
    order = torch.cat([(CLASSES >= 0).nonzero().squeeze(1), (CLASSES < 0).nonzero().squeeze(1)])
    features[:8], labels[:8] = features[order], labels[order]
    loss = PaCoLoss(temperature=0.3)
    found = read_inputs(loss, (features, labels, torch.zeros(7, 3)), {}, NONE, Labels(batch=CLASSES))
    unit = normalize(features, dim=1)
    expected = []
    for i in range(7):
        s = torch.stack([unit[i] @ unit[j] / 0.3 for j in range(46) if labels[j] != labels[i] or labels[j] < 0])
        expected.append(float(torch.special.entr(s.softmax(0)).sum().exp()))
    assert found.hardness.effective_negatives == pytest.approx(sum(expected) / 7, rel=1e-4)
    assert found.positive == pytest.approx(float((unit[:8] * unit[8:16][order]).sum(1).mean()), rel=1e-4)
    queue = features[16:], labels[16:]
    apart = read_inputs(loss, (features[:16], labels[:16], torch.zeros(7, 3), *queue), {}, NONE, Labels(batch=CLASSES))
    assert apart == found


def test_noise_and_memory_bank():
    noise = torch.stack([rows(9, seed) for seed in range(8)])
    found = read_inputs(NCELoss(20, 0.3), (rows(8, 0), rows(8, 1), noise), {}, NONE, Labels())
    shares = (normalize(rows(8, 0), dim=1)[:, None] * normalize(noise, dim=2)).sum(2).div(0.3).softmax(1)
    assert found.hardness.top1 == pytest.approx(float(shares.max(1).values.mean()), rel=1e-4)
    method = nn.Module()
    method.bank = MemoryBank(20, 6)
    loss, slots = SoftmaxLoss(temperature=0.3, normalize=True), torch.arange(8)
    by_train_row = torch.arange(20) % 3
    found = read_inputs(
        loss, (rows(8, 0), slots, method.bank.keys()), {}, method, Labels(by_train_row[slots], by_train_row)
    )
    scores = (normalize(rows(8, 0), dim=1) @ method.bank.keys().T / 0.3).masked_fill(
        slots[:, None] == torch.arange(20), -99
    )
    alike = by_train_row[slots, None] == by_train_row
    assert found.hardness.negatives == 19
    assert found.hardness.same_class == pytest.approx(float((scores.softmax(1) * alike).sum(1).mean()), rel=1e-4)
    assert (
        read_inputs(loss, (rows(8, 0), slots, rows(9, 1)), {}, method, Labels()) == LossInputs()
    )  # classes, not a bank


def test_labels_of_a_queue_are_looked_up_by_train_row():
    method = nn.Module()
    method.queue = Queue(30, 6)
    method.queue.enqueue(QUEUE, ids=torch.arange(30) % 10)
    by_train_row = torch.tensor([0, 1, 2, 0, -1, 1, 2, 0, 1, 2])
    given = (*STACKED.unbind(1), method.queue.keys())
    found = read_inputs(InfoNCELoss(0.3), given, {}, method, Labels(CLASSES, by_train_row)).hardness
    shares = (normalize(given[0], dim=1) @ method.queue.keys().T / 0.3).softmax(1)
    alike = CLASSES[:, None] == by_train_row[torch.arange(30) % 10]
    known = CLASSES >= 0
    assert found.same_class == pytest.approx(float((shares * alike)[known].sum(1).mean()), rel=1e-4)
    assert read_inputs(InfoNCELoss(0.3), given, {}, method, Labels(CLASSES)).hardness.same_class is None


def test_few_anchors_of_many_keys(monkeypatch):
    monkeypatch.setattr(loss_inputs, "ELEMENTS", 100)
    found = read_inputs(InfoNCELoss(0.3), (rows(50, 0), rows(50, 1), QUEUE), {}, NONE, Labels())
    assert found.hardness.anchors == 8


def test_unknown_losses_have_no_analysis():
    given = tuple(STACKED.unbind(1))
    assert read_inputs(SimpleContrastiveLoss(), given, {}, NONE, Labels()) == LossInputs()
    empty = read_inputs(InfoNCELoss(0.3), (*given, torch.empty(0, 6)), {}, NONE, Labels())
    assert empty.hardness is None
    assert empty.positive is not None
    assert read_inputs(SupConLoss(), (STACKED,), {"mask": torch.eye(8)}, NONE, Labels()) == LossInputs()

    class Other(NTXentLoss):
        def forward(self, everything):
            return super().forward(everything)

    assert read_inputs(Other(), (STACKED,), {}, NONE, Labels()) == LossInputs()  # its arguments have names of their own
