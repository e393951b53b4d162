import doctest
import itertools

import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import TripletLoss, triplet, triplet_terms
from law_rows.triplet import ROWS, triplet_loop
from step_memory import peak_mib

EVERY = [
    {"mining": mining, "soft": soft, "distance": distance}
    for mining, soft, distance in itertools.product(["all", "semihard", "hard"], [False, True], ["cosine", "euclidean"])
]


def batch(n=17, d=4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(-1, 4, (n,), generator=draw)
    return torch.randn(n, d, generator=draw, dtype=torch.float64).requires_grad_(), labels


def loop(x, labels, mining, soft, distance):
    return triplet_loop(None, x, labels, mining, soft, distance == "euclidean")


def test_docstring_example():
    assert doctest.testmod(triplet, extraglobs={"torch": torch}).failed == 0


@pytest.mark.filterwarnings("ignore::coulomb.ground.errors.CoulombWarning")
@pytest.mark.parametrize("options", EVERY, ids=str)
def test_equals_the_triple_loop_for_every_chunk_size_and_unknown_labels(options, monkeypatch):
    x, labels = batch()
    truth = loop(x, labels, **options)
    twist = torch.randn(17, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (right,) = torch.autograd.grad(truth, x, twist)
    for strip in (1, 40, 2**22):
        monkeypatch.setattr(triplet_terms, "STRIP", strip)
        ours = TripletLoss(0.7, reduction="none", **options)(x, labels)
        torch.testing.assert_close(ours, truth)
        torch.testing.assert_close(torch.autograd.grad(ours, x, twist)[0], right)
        mean = TripletLoss(0.7, **options)(x, labels)
        torch.testing.assert_close(mean, truth.sum() / truth.active)


def test_tied_triplets_count_once():
    # Multiples of 90° in two dimensions: every distance is exactly 0, 1 or 2, with many ties.
    x = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1], [1, 0], [0, 1]], dtype=torch.float64).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 1, 0])
    for mining in ("all", "semihard"):
        loss = TripletLoss(1.5, mining, reduction="none")(x, labels)
        inside = (loss - plain_loop(x, labels, mining)).abs().max()
        assert inside.item() < 1e-12


def plain_loop(x, labels, mining):
    d = (1 - x @ x.T).detach()
    sums = torch.zeros(len(x), dtype=torch.float64)
    for a, p, n in itertools.product(range(len(x)), repeat=3):
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]:
            chosen = mining == "all" or 0 < d[a, n] - d[a, p] <= 1.5
            sums[a] += chosen * max(float(d[a, p] - d[a, n]) + 1.5, 0.0)
    return sums


@pytest.mark.parametrize("mining", ["all", "semihard", "hard"])
def test_euclidean_distances_far_from_the_origin_keep_precision(mining):
    x, labels = batch(12, 3)
    labels = torch.arange(12) % 3
    loss = TripletLoss(0.7, mining, distance="euclidean", normalize=False)
    near = loss(x, labels)
    d = torch.cdist(x, x)
    truth = []
    for i in range(12):
        near_ones = [d[i, j] for j in range(12) if j != i and labels[j] == labels[i]]
        far = [d[i, j] for j in range(12) if labels[j] != labels[i]]
        pairs = [(max(near_ones), min(far))] if mining == "hard" else itertools.product(near_ones, far)
        mined = [(p, n) for p, n in pairs if mining != "semihard" or 0 < n - p <= 0.7]
        truth += [p - n + 0.7 for p, n in mined if p - n + 0.7 > 0]
    torch.testing.assert_close(near, torch.stack(truth).mean())
    far_away = (x.detach() + 1000).float()
    torch.testing.assert_close(loss(far_away, labels).double(), near.detach(), rtol=0, atol=2e-3)
    (gradient,) = torch.autograd.grad(near, x)
    assert torch.isfinite(gradient).all() and (gradient != 0).any()


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_duplicates_give_a_finite_gradient(options):
    x = torch.ones(6, 3).requires_grad_()
    labels = torch.arange(6) % 2
    if options["mining"] == "semihard":  # no negative is farther than any positive
        with pytest.warns(CoulombWarning, match="0 of 6 anchors"):
            loss = TripletLoss(**options)(x, labels)
    else:
        loss = TripletLoss(**options)(x, labels)
    loss.backward()
    assert torch.isfinite(x.grad).all()


def test_zero_vectors_have_a_defined_distance():
    # The zero vector has cosine 0 with all others, a distance of 1: it is nearer than the other negative (at 1.5).
    x = torch.tensor([[1.0, 0], [1, 0], [0, 0], [-0.5, 0.75**0.5]])
    with pytest.warns(CoulombWarning, match="1 of 4 rows of embeddings"):
        each = TripletLoss(1.25, "hard", reduction="none")(x, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(each[:2], torch.tensor([0.25, 0.25]))
    x[3] = torch.tensor([0.25, (15 / 16) ** 0.5])  # cosine 0.25: now the other negative is nearer, at 0.75
    with pytest.warns(CoulombWarning, match="zero vectors"):
        each = TripletLoss(1.25, "hard", reduction="none")(x, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(each[:2], torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_second_derivatives_are_correct(options):
    x, _ = batch(6, 3)
    labels = torch.arange(6) % 2
    loss = TripletLoss(0.7, **options)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), x)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels), x)


@pytest.mark.parametrize("mining", ["all", "semihard", "hard"])
def test_excluded_anchors_are_counted(mining):
    x, _ = batch(5, 3)
    loss = TripletLoss(2.5, mining, reduction="none")
    with pytest.warns(CoulombWarning, match="3 of 5 anchors"):
        each = loss(x, torch.tensor([0, 0, 1, 2, -1]))
    assert (each[2:] == 0).all()
    for labels in ([0] * 5, [-1] * 5, [0, 1, 2, 3, 4]):
        with pytest.warns(CoulombWarning, match="5 of 5 anchors"):
            value = TripletLoss(2.5, mining)(x, torch.tensor(labels))
        assert value.item() == 0
        assert (torch.autograd.grad(value, x)[0] == 0).all()


def test_unlabeled_samples_are_not_negatives():
    x, labels = torch.eye(4)[[0, 0, 0, 1]], torch.tensor([0, 0, -1, 1])
    with pytest.warns(CoulombWarning, match="2 of 4"):
        each = TripletLoss(1.25, "hard", reduction="none")(x, labels)
    assert each.tolist() == [0.25, 0.25, 0, 0]


def test_no_active_triplet_warns():
    x, labels = torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])
    for mining in ("all", "semihard", "hard"):
        with pytest.warns(CoulombWarning, match="0 of 4 anchors"):
            assert TripletLoss(0.5, mining)(x, labels).item() == 0


def test_errors_name_the_argument():
    for options, message in [
        ({"margin": -1}, "margin"),
        ({"mining": "easy"}, "mining"),
        ({"distance": "taxi"}, "distance"),
    ]:
        with pytest.raises(ValueError, match=message):
            TripletLoss(**options)


def test_every_mining_option_has_a_law():
    assert {name.split()[1].strip(",") for name in ROWS if " " in name} >= {"soft", "semihard", "hard", "euclidean"}


STEP = """
from coulomb.losses import TripletLoss
def step(n):
    x = torch.randn(n, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    TripletLoss(mining="{mining}")(x, torch.arange(n) % (n // 8)).backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mining, n, limit", [("hard", 16384, 150), ("all", 6144, 250)])
def test_memory_stays_below_the_limit(mining, n, limit):
    # 16384 × 16384 floats are 1 GiB; the batch is 4 MiB. There are 260 million triplets of 6144 samples in classes of 8.
    assert 0 < peak_mib(STEP.format(mining=mining), 1024, n) < limit
