import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import LearnableTemperature, SupConLoss, multi_label
from coulomb.similarity import policy


def features(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def authors_code(z, is_positive, tau):
    """The authors' order of operations, from the paper's formula on the whole matrix (without subtracting the row maximum)."""
    others = ~torch.eye(len(z), dtype=torch.bool)
    scores = z @ z.T / tau
    log_prob = scores - (scores.exp() * others).sum(1, keepdim=True).log()
    mask = is_positive & others
    return -((mask * log_prob).sum(1) / mask.sum(1)).mean()


def test_equals_the_matrix_form():
    x = torch.nn.functional.normalize(features(9, 2, 4), dim=-1)
    labels = torch.arange(9) % 4
    tiled = labels.repeat(2)
    truth = authors_code(torch.cat(x.unbind(1)), tiled[:, None] == tiled, 0.2)
    torch.testing.assert_close(SupConLoss(0.2)(x, labels), truth)


def test_base_temperature_is_a_factor():
    x, labels = features(6, 2, 3), torch.arange(6) % 2
    torch.testing.assert_close(
        SupConLoss(0.1, base_temperature=0.07)(x, labels), SupConLoss(0.1)(x, labels) * (0.1 / 0.07)
    )
    with pytest.raises(ValueError, match="base_temperature with a learned temperature"):
        SupConLoss(LearnableTemperature(), base_temperature=0.07)


def test_an_equivalent_mask_equals_labels():
    x, labels = features(6, 2, 3), torch.arange(6) % 2
    mask = labels[:, None] == labels
    for mode in ("all", "one"):
        for form in ("out", "in"):
            loss = SupConLoss(0.2, contrast_mode=mode, positives=form)
            torch.testing.assert_close(loss(x, mask=mask), loss(x, labels))
            torch.testing.assert_close(loss(x, mask=mask.double() / 2), loss(x, labels))


def test_the_mask_is_not_modified():
    mask = torch.ones(4, 4, dtype=torch.bool)
    SupConLoss()(features(4, 3), mask=mask)
    assert mask.all()


def test_each_unknown_label_is_its_own_class():
    x = features(6, 2, 3)
    unknown = SupConLoss()(x, torch.tensor([0, 0, 1, 1, -1, -1]))
    own_class = SupConLoss()(x, torch.tensor([0, 0, 1, 1, 2, 3]))
    torch.testing.assert_close(unknown, own_class)
    torch.testing.assert_close(SupConLoss()(x, torch.full((6,), -1)), SupConLoss()(x))


@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
@pytest.mark.parametrize("form", ["out", "in"])
def test_anchors_without_positives_are_counted(form, elements):
    with policy.override(stored=elements):
        x, labels = features(5, 3).requires_grad_(), torch.tensor([0, 0, 1, 2, -1])
        each = SupConLoss(positives=form, reduction="none")
        with pytest.warns(CoulombWarning, match="3 of 5 anchors"):
            losses = each(x, labels)
        assert torch.equal(losses[2:], torch.zeros(3, dtype=torch.float64))
        with pytest.warns(CoulombWarning, match="count as a loss of 0"):
            zero = SupConLoss(positives=form)(x, labels)
        with pytest.warns(CoulombWarning, match="left out of the mean"):
            excluded = SupConLoss(positives=form, no_positive="exclude")(x, labels)
        torch.testing.assert_close(zero, losses[:2].sum() / 5)
        torch.testing.assert_close(excluded, losses[:2].mean())
        zero.backward()
        assert torch.isfinite(x.grad).all()
        with pytest.raises(ValueError, match="3 of 5 anchors"):
            SupConLoss(positives=form, no_positive="raise")(x, labels)


@pytest.mark.parametrize("choice", ["zero", "exclude"])
def test_no_positives_give_zero_and_a_warning(choice):
    x = features(4, 3).requires_grad_()
    with pytest.warns(CoulombWarning, match="4 of 4 anchors"):
        loss = SupConLoss(no_positive=choice)(x)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(x.grad, torch.zeros(4, 3, dtype=torch.float64))


def test_a_single_class_is_finite():
    x = features(4, 2, 3)
    assert torch.isfinite(SupConLoss()(x, torch.zeros(4, dtype=torch.long)))


def test_a_single_sample_warns():
    with pytest.warns(CoulombWarning, match="gives no gradient"):
        assert float(SupConLoss()(features(1, 2, 3))) == pytest.approx(0, abs=1e-12)
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        assert float(SupConLoss()(features(1, 3))) == 0


def test_invalid_labels_and_masks_raise():
    x = features(4, 2, 3)
    with pytest.raises(TypeError, match="^labels "):
        SupConLoss()(x, torch.rand(4))
    with pytest.raises(ValueError, match=r"^labels .*\[4\]"):
        SupConLoss()(x, torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match="got -2"):
        SupConLoss()(x, torch.tensor([0, 1, -2, 0]))
    with pytest.raises(ValueError, match=r"^mask .*\[4, 4\]"):
        SupConLoss()(x, mask=torch.ones(8, 8))
    with pytest.raises(ValueError, match="not both"):
        SupConLoss()(x, torch.zeros(4, dtype=torch.long), torch.ones(4, 4))
    with pytest.raises(ValueError, match="mask.s weights"):
        SupConLoss()(x, mask=-torch.ones(4, 4))
    for option in ("contrast_mode", "positives", "no_positive", "overlap"):
        with pytest.raises(ValueError, match=option):
            SupConLoss(**{option: "some"})


SEVERAL = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]])
OVERLAPS = ("any", "count", "jaccard")


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("form", ["out", "in"])
def test_one_hot_labels_equal_integer_labels(overlap, form):
    x, labels = features(6, 2, 3), torch.tensor([0, 1, 1, 2, 0, -1])
    multi_hot = torch.nn.functional.one_hot(labels.clamp_min(0), 3) * (labels >= 0)[:, None]
    loss = SupConLoss(0.2, positives=form, overlap=overlap)
    for dtype in (torch.long, torch.bool, torch.float32):
        torch.testing.assert_close(loss(x, multi_hot.to(dtype)), loss(x, labels))


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("mode", ["all", "one"])
@pytest.mark.parametrize("strip", [1, 10**6])
def test_multi_hot_labels_equal_their_overlap_mask(overlap, mode, strip, monkeypatch):
    monkeypatch.setattr(multi_label, "STRIP", strip)
    x = features(5, 2, 3).requires_grad_()
    weights = {
        "any": [[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1]],
        "count": [[2, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 2, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1]],
        "jaccard": [
            [1, 0, 1 / 3, 0, 1 / 2],
            [0, 1, 1 / 2, 0, 0],
            [1 / 3, 1 / 2, 1, 0, 0],
            [0, 0, 0, 1, 0],
            [1 / 2, 0, 0, 0, 1],
        ],
    }[overlap]
    loss = SupConLoss(0.2, contrast_mode=mode, overlap=overlap)
    ours, truth = loss(x, SEVERAL), loss(x, mask=torch.tensor(weights, dtype=torch.float64))
    torch.testing.assert_close(ours, truth)
    for mine, true in zip(torch.autograd.grad(ours, x), torch.autograd.grad(truth, x), strict=True):
        torch.testing.assert_close(mine, true)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("form", ["out", "in"])
def test_multi_hot_anchors_without_positives_are_counted(overlap, form):
    x = features(5, 3).requires_grad_()  # one view: the sample without classes has no positive
    with pytest.warns(CoulombWarning, match="1 of 5 anchors"):
        loss = SupConLoss(positives=form, overlap=overlap, reduction="none")(x, SEVERAL)
    assert loss[3] == 0
    loss.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_invalid_multi_hot_labels_raise():
    x = features(5, 2, 3)
    with pytest.raises(ValueError, match="must be 0 or 1"):
        SupConLoss()(x, SEVERAL * 2)
    with pytest.raises(ValueError, match=r"^labels .*\[5, 3\]"):
        SupConLoss()(x, SEVERAL[:4])
    with pytest.raises(ValueError, match="not both"):
        SupConLoss()(x, SEVERAL, torch.ones(5, 5))


@pytest.mark.parametrize("how", ["labels", "multi-hot", "mask", "nothing"])
@pytest.mark.parametrize("mode", ["all", "one"])
def test_diagnosis_equals_its_definition(how, mode):
    x, labels = features(6, 2, 3), torch.tensor([0, 1, 1, 0, 2, -1])
    multi_hot = torch.nn.functional.one_hot(labels.clamp_min(0), 3) * (labels >= 0)[:, None]
    same = ((labels[:, None] == labels) & (labels >= 0)) | torch.eye(6, dtype=torch.bool)
    arguments = {
        "labels": {"labels": labels},
        "multi-hot": {"labels": multi_hot},
        "mask": {"mask": same},
        "nothing": {},
    }
    same = torch.eye(6, dtype=torch.bool) if how == "nothing" else same
    loss, diagnosis = SupConLoss(0.5, contrast_mode=mode, diagnose=True)(x, **arguments[how])
    torch.testing.assert_close(loss, SupConLoss(0.5, contrast_mode=mode)(x, **arguments[how]))
    z = torch.nn.functional.normalize(torch.cat(x.unbind(1)), dim=1)
    anchors = 6 if mode == "one" else 12
    cosines, positive = (z @ z.T)[:anchors], same.repeat(2, 2)[:anchors]
    negatives = cosines.masked_fill(positive, -torch.inf)
    mine = (positive & ~torch.eye(12, dtype=torch.bool)[:anchors]).double()
    torch.testing.assert_close(diagnosis.positive, (cosines * mine).sum(1) / mine.sum(1))
    torch.testing.assert_close(diagnosis.hardest_negative, negatives.amax(1))
    p = (2 * negatives).softmax(1)
    torch.testing.assert_close(diagnosis.effective_negatives, (-torch.xlogy(p, p).sum(1)).exp())
    assert diagnosis.without_positive == 0


@pytest.mark.filterwarnings("default")
def test_compiled_loss_equals_eager_without_reading_values():
    x, labels = features(5, 3), torch.tensor([0, 0, 1, 2, -1])
    with pytest.warns(CoulombWarning):
        eager = SupConLoss(no_positive="exclude")(x, labels)
    compiled = torch.compile(SupConLoss(no_positive="exclude"), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, labels), eager)
    raising = torch.compile(SupConLoss(no_positive="raise"), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(raising(x, labels), eager * 2 / 5)  # 3 of 5 anchors have a loss of 0
