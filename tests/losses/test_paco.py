import doctest

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import BalancedSoftmaxLoss, LearnableTemperature, PaCoLoss, ParametricCenters, SupConLoss, paco


def batch(anchors=6, others=8, classes=3):
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(anchors + others, 4, generator=draw, dtype=torch.float64)
    return features, torch.arange(anchors + others) % classes, torch.randn(anchors, classes, generator=draw).double()


def authors_code(features, labels, center_logits, tau, supt=1.0, alpha=0.05, beta=1.0, gamma=1.0, smooth=0.0):
    """The authors' order of operations on the whole matrix: masks of weights, with centers first."""
    z, n, classes = normalize(features), len(center_logits), center_logits.shape[1]
    logits = torch.cat([center_logits / supt, z[:n] @ z.T / tau], 1)
    own = torch.eye(n, len(z), dtype=torch.bool)
    same = (labels[:n, None] == labels) & ~own
    one_hot = torch.eye(classes).double()[labels[:n]]
    one_hot = smooth / (classes - 1) * (1 - one_hot) + (1 - smooth) * one_hot
    weight = torch.cat([beta * one_hot, alpha * same.double()], 1)
    included = torch.cat([torch.ones(n, classes).double(), gamma * (~own).double()], 1)
    log_prob = logits - (logits.exp() * included).sum(1, keepdim=True).log()
    return -((weight * log_prob).sum(1) / weight.sum(1)).mean()


def test_docstring_examples():
    assert doctest.testmod(paco, extraglobs={"torch": torch}).failed == 0


def test_equals_the_matrix_form():
    features, labels, centers = batch()
    for options in ({"alpha": 0.05}, {"alpha": 0.4, "beta": 0.5, "gamma": 0.3, "supt": 2.0}):
        truth = authors_code(features, labels, centers, 0.3, **options)
        named = {("supervised_temperature" if name == "supt" else name): value for name, value in options.items()}
        torch.testing.assert_close(PaCoLoss(temperature=0.3, **named)(features, labels, centers), truth)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_label_smoothing_is_spread_over_the_other_classes_as_in_the_authors_code(smoothing):
    features, labels, centers = batch()
    truth = authors_code(features, labels, centers, 0.3, smooth=smoothing)
    torch.testing.assert_close(PaCoLoss(temperature=0.3, label_smoothing=smoothing)(features, labels, centers), truth)
    single = PaCoLoss(label_smoothing=smoothing)(features, torch.zeros_like(labels), centers[:, :1])
    torch.testing.assert_close(single, PaCoLoss()(features, torch.zeros_like(labels), centers[:, :1]))  # no other class


def test_class_counts_give_a_balanced_softmax_over_the_centers():
    features, labels, centers = batch()
    counts = [100, 10, 5]
    with_counts = PaCoLoss(counts, temperature=0.3)(features, labels, centers)
    by_hand = authors_code(features, labels, centers + torch.tensor(counts).double().div(115).log(), 0.3)
    torch.testing.assert_close(with_counts, by_hand)


def test_without_features_it_equals_cross_entropy():
    features, labels, centers = batch(6, 0)
    alone = {"alpha": 0.0, "gamma": 0.0}
    torch.testing.assert_close(PaCoLoss(**alone)(features, labels, centers), cross_entropy(centers, labels))
    balanced = PaCoLoss([9, 2, 4], **alone)(features, labels, centers)
    truth = BalancedSoftmaxLoss([9, 2, 4])(centers, labels, torch.eye(3).double())
    torch.testing.assert_close(balanced, truth)


def test_without_centers_it_equals_supcon():
    features, labels, centers = batch(14, 0)
    nothing = centers - 1e9
    alone = PaCoLoss(alpha=1.0, beta=0.0, temperature=0.3)(features, labels, nothing)
    torch.testing.assert_close(alone, SupConLoss(0.3)(features, labels))


@pytest.mark.parametrize("positives, alpha", [(4, 0.05), (20, 0.05), (3, 0.5)])
def test_free_logits_converge_to_the_optimum(positives, alpha):
    # The keys are orthogonal to each other, so each s_0j can be optimized independently.
    keys, classes = positives + 30, 5
    labels = torch.cat([torch.zeros(positives + 1), torch.ones(30)]).long()
    scores = torch.zeros(keys, dtype=torch.float64, requires_grad=True)
    centers = torch.zeros(1, classes, dtype=torch.float64, requires_grad=True)
    loss = PaCoLoss(alpha=alpha, beta=1.0, temperature=1.0, normalize=False)
    anchor = torch.eye(keys, dtype=torch.float64).sum(0, keepdim=True)
    optimizer = torch.optim.LBFGS([scores, centers], max_iter=500, line_search_fn="strong_wolfe")

    def step():
        optimizer.zero_grad()
        value = loss(torch.cat([anchor, scores.diag()]), labels, centers)
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(step)
    p = torch.cat([centers[0], scores]).softmax(0).detach()
    assert p[0].item() == pytest.approx(1 / (1 + alpha * positives), rel=0.01)
    for sample in p[classes : classes + positives].tolist():
        assert sample == pytest.approx(alpha / (1 + alpha * positives), rel=0.01)


def test_normalized_false_equals_mean_times_weights():
    features, labels, centers = batch()
    count = (labels[:6, None] == labels).sum(1) - 1
    mean, total = (
        PaCoLoss(normalized=normalized, reduction="none")(features, labels, centers) for normalized in (True, False)
    )
    torch.testing.assert_close(total, mean * (1 + 0.05 * count))


def test_base_temperature_is_a_factor():
    data = batch()
    torch.testing.assert_close(
        PaCoLoss(temperature=0.1, base_temperature=0.07)(*data), PaCoLoss(temperature=0.1)(*data) * (0.1 / 0.07)
    )
    with pytest.raises(ValueError, match="base_temperature with a learned temperature"):
        PaCoLoss(temperature=LearnableTemperature(), base_temperature=0.07)


def test_unfilled_queue_entries_are_negatives_only():
    features, labels, centers = batch()
    labels[8:] = -1
    as_a_class_of_its_own = torch.cat([labels[:8], torch.full((6,), 3)])
    wide = torch.cat([centers, torch.full((6, 1), -1e9)], 1)
    torch.testing.assert_close(PaCoLoss()(features, labels, centers), PaCoLoss()(features, as_a_class_of_its_own, wide))


def test_unlabeled_anchors_are_excluded_and_counted():
    features, labels, centers = batch()
    labels[2] = -1
    features.requires_grad_()
    with pytest.warns(CoulombWarning, match="1 of 6 anchors"):
        each = PaCoLoss(reduction="none")(features, labels, centers)
    with pytest.warns(CoulombWarning, match="1 of 6"):
        loss = PaCoLoss()(features, labels, centers)
    assert each[2] == 0
    torch.testing.assert_close(loss, each.sum() / 5)
    with pytest.warns(CoulombWarning, match="6 of 6"):
        loss = PaCoLoss()(features, torch.full_like(labels, -1), centers)
    loss.backward()
    assert loss.item() == 0
    assert torch.isfinite(features.grad).all()


def test_a_single_class_and_sample_warns():
    features = torch.ones(1, 3, requires_grad=True)
    centers = torch.zeros(1, 1, requires_grad=True)
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        loss = PaCoLoss()(features, torch.tensor([0]), centers)
    loss.backward()
    assert loss.item() == 0
    assert torch.isfinite(features.grad).all() and torch.isfinite(centers.grad).all()


def test_losses_near_zero_keep_precision():
    # No positive among the features: L = log(1 + e^−40), which lse − s would round to 0.
    loss = PaCoLoss(gamma=0.0)(torch.ones(1, 2), torch.tensor([0]), torch.tensor([[40.0, 0.0]]))
    assert loss.item() == pytest.approx(4.248354e-18, rel=1e-4, abs=0)


def test_diagnosis_covers_centers_and_features():
    features, labels, centers = batch()
    value, diagnosis = PaCoLoss(diagnose=True)(features, labels, centers)
    torch.testing.assert_close(value, PaCoLoss()(features, labels, centers))
    cosines = normalize(features)[:6] @ normalize(features).T
    assert diagnosis.hardest_negative.shape == (6,)
    torch.testing.assert_close(diagnosis.hardest_negative[0], cosines[0, labels != labels[0]].max())
    assert diagnosis.without_positive == 0


def test_parametric_centers_are_a_linear_layer():
    centers = ParametricCenters(4, 3)
    features, labels, _ = batch()
    logits = centers(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)))
    PaCoLoss([3, 2, 1])(features, labels, logits).backward()
    assert centers.weight.grad.abs().sum() > 0
    assert list(centers.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((2**63, 4), ValueError, r"dim must be below 2\^63"),
        ((4, 2**63), ValueError, r"num_classes must be below 2\^63"),
        ((4, 0), ValueError, "num_classes must be at least 1, got 0"),
        ((4.0, 3), TypeError, r"dim must be a whole number, got 4\.0"),
    ],
)
def test_wrong_sizes_of_parametric_centers(sizes, error, message):
    with pytest.raises(error, match=message):
        ParametricCenters(*sizes)


def test_errors_name_the_argument():
    features, labels, centers = batch()
    with pytest.raises(ValueError, match="^center_logits .*3.*2"):
        PaCoLoss([1, 2])(features, labels, centers)
    with pytest.raises(ValueError, match="^center_logits "):
        PaCoLoss()(features[:3], labels[:3], centers)
    with pytest.raises(ValueError, match="^labels .* 5$"):
        PaCoLoss()(features, labels + 3, centers)
    for options, message in [
        ({"alpha": -1}, "alpha must be"),
        ({"gamma": torch.inf}, "gamma must be"),
        ({"alpha": 0, "beta": 0}, "alpha and beta are both 0"),
        ({"supervised_temperature": 0}, "supervised_temperature"),
        ({"class_counts": [0, 1]}, "class_counts"),
    ]:
        with pytest.raises(ValueError, match=message):
            PaCoLoss(**options)


def test_a_queue_is_more_keys():
    features, labels, centers = batch()
    split = PaCoLoss()(features[:9], labels[:9], centers, features[9:], labels[9:])
    torch.testing.assert_close(split, PaCoLoss()(features, labels, centers), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"^queue_labels .*\[5\]"):
        PaCoLoss()(features[:9], labels[:9], centers, features[9:], labels)
    with pytest.raises(ValueError, match="queue_labels"):
        PaCoLoss()(features[:9], labels[:9], centers, features[9:])


def test_without_anchors_the_loss_is_zero_with_a_warning():
    features, labels, centers = batch()
    features.requires_grad_()
    with pytest.warns(CoulombWarning, match="0 of 14 rows"):
        loss = PaCoLoss()(features, labels, centers[:0])
    loss.backward()
    assert loss.item() == 0 and not features.grad.any()
