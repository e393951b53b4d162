import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import DistillationLoss, InfoNCELoss, LearnableTemperature
from coulomb.similarity import Similarity, policy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compare(ours, truth, parts, tolerance=1e-10):
    torch.testing.assert_close(ours, truth, rtol=0, atol=tolerance)
    found, true = (torch.autograd.grad(value.sum(), parts) for value in (ours, truth))
    for mine, its in zip(found, true, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


@pytest.fixture(
    params=[{}, {"backend": "dense"}, {"backend": "streaming", "tile": 3}, {"backend": "streaming"}], ids=str
)
def path(request):
    with policy.override(**request.param):
        yield


def test_equals_the_authors_loss_with_a_queue(path):
    """SEED: logits of the teacher's own embedding and of the queue, for both; soft cross-entropy."""
    student, teacher, queue = normal(7, 5).requires_grad_(), normal(7, 5, seed=1), normal(13, 5, seed=2)
    s, t, k = (normalize(part) for part in (student, teacher, queue))
    logits = torch.cat([(s * t).sum(1, keepdim=True), s @ k.T], 1) / 0.2
    targets = (torch.cat([(t * t).sum(1, keepdim=True), t @ k.T], 1) / 0.05).softmax(1)
    truth = -(targets * log_softmax(logits, 1)).sum(1)
    compare(DistillationLoss(0.2, 0.05, reduction="none")(student, teacher, queue=queue), truth, [student])


@pytest.mark.parametrize("kl", [False, True])
def test_equals_torch_on_pairs_whose_teacher_is_wider(path, kl):
    student, keys = normal(6, 4).requires_grad_(), normal(9, 4, seed=1).requires_grad_()
    teacher, taught = normal(6, 11, seed=2), normal(9, 11, seed=3)
    temperature = LearnableTemperature(0.3).double()
    scores = normalize(student) @ normalize(keys).T * temperature.scale()
    targets = normalize(teacher) @ normalize(taught).T / 0.1
    if kl:
        truth = kl_div(log_softmax(scores, 1), log_softmax(targets, 1), log_target=True, reduction="none").sum(1)
    else:
        truth = cross_entropy(scores, targets.softmax(1), reduction="none")
    loss = DistillationLoss(temperature, 0.1, kl=kl, reduction="none")
    compare(loss(student, teacher, keys, taught), truth, [student, keys, temperature.log_scale])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_batches_in_low_precision(dtype):
    n = 1600
    student, teacher = normal(n, 24).to(dtype).requires_grad_(), normal(n, 40, seed=1)
    exact = student.detach().double().requires_grad_()
    ours = DistillationLoss(0.2, 0.1)(student, teacher)
    hidden = torch.eye(n, dtype=torch.bool)
    scores, targets = (
        (normalize(part) @ normalize(part).T / tau).masked_fill(hidden, -torch.inf)
        for part, tau in ((exact, 0.2), (teacher, 0.1))
    )
    p = targets.softmax(1)
    truth = (scores.logsumexp(1) - (p * scores.masked_fill(hidden, 0)).sum(1)).mean()
    torch.testing.assert_close(ours.double(), truth, rtol=1e-5 if dtype == torch.float32 else 2e-3, atol=0)
    (mine,), (its,) = torch.autograd.grad(ours, student), torch.autograd.grad(truth, exact)
    assert (mine.double() - its).abs().max() < (1e-5 if dtype == torch.float32 else 2e-2) * its.abs().max()


def test_a_student_that_equals_its_teacher_has_reached_the_minimum(path):
    student = normal(8, 4).requires_grad_()
    loss = DistillationLoss(0.2, 0.2, kl=True, reduction="none")(student, student)
    (grad,) = torch.autograd.grad(loss.sum(), student)
    assert loss.abs().max() < 1e-12 and grad.abs().max() < 1e-12
    assert (DistillationLoss(0.2, 0.1, kl=True, reduction="none")(student, student) > 0).all()


def test_a_cold_teacher_of_pairs_is_infonce():
    """As τ_t → 0 the nearest key, here the other half of the pair, is the only positive."""
    query, key, teacher = normal(6, 4).requires_grad_(), normal(6, 4, seed=1).requires_grad_(), torch.eye(6).double()
    ours = DistillationLoss(0.1, 1e-3)(query, teacher, key, teacher)
    compare(ours, InfoNCELoss(0.1)(query, key), [query, key])


def test_the_teacher_gets_no_gradient():
    student, teacher = normal(5, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    DistillationLoss()(student, teacher).backward()
    assert teacher.grad is None and student.grad is not None
    queue = normal(4, 3, seed=2).requires_grad_()
    DistillationLoss()(student, teacher, queue=queue).backward()
    assert queue.grad is None


def test_expected_similarities_equal_the_double_loop(path):
    queries, keys, taught = normal(5, 3).requires_grad_(), normal(7, 3, seed=1).requires_grad_(), normal(12, 4, seed=2)
    S, T = Similarity(queries, keys, scale=2.0), Similarity(taught[:5], taught[5:], scale=3.0)
    rows = []
    for i in range(5):
        t = [3 * taught[i] @ taught[5 + j] for j in range(7)]
        total = sum(one.exp() for one in t)
        rows.append(sum(one.exp() / total * 2 * queries[i] @ keys[j] for j, one in enumerate(t)))
    compare(S.expected(T), torch.stack(rows), [queries, keys])
    with pytest.raises(ValueError, match=r"teacher must have the shape \(5, 7\)"):
        S.expected(Similarity(taught[:5]))


def test_without_keys_the_loss_is_0_and_counted():
    one, none = normal(1, 3).requires_grad_(), torch.zeros(0, 3, dtype=torch.float64)
    for given in ({}, {"queue": none}):
        with pytest.warns(CoulombWarning, match="1 of 1 samples have no key"):
            loss = DistillationLoss()(one, normal(1, 3, seed=1), **given)
        (grad,) = torch.autograd.grad(loss, one)
        assert abs(loss.item()) < 1e-12 and grad.abs().max() < 1e-12


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((torch.ones(3, 2), torch.ones(2, 2)), ValueError, "^teacher has 2 rows, but the student's embeddings have 3"),
        (
            (torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 2)),
            ValueError,
            "^student_keys and teacher_keys must be given",
        ),
        (
            (torch.ones(3, 2), torch.ones(3, 4), torch.ones(3, 2), torch.ones(3, 3)),
            ValueError,
            "^teacher_keys has 3 dim",
        ),
        (
            (torch.ones(3, 2), torch.ones(3, 4), torch.ones(3, 2), torch.ones(4, 4)),
            ValueError,
            "^teacher_keys has 4 rows",
        ),
        ((torch.ones(3, 2), torch.ones(3, 2, device="meta")), ValueError, "^teacher is on meta"),
        ((torch.ones(3, 2), torch.ones(3, 2).long()), TypeError, "^teacher must be a floating"),
        ((torch.ones(3, 2), torch.ones(3, 2) * torch.nan), ValueError, "^teacher has .*NaN"),
    ],
)
def test_errors_name_the_argument(given, error, message):
    with pytest.raises(error, match=message):
        DistillationLoss()(*given)


def test_a_queue_must_have_the_width_of_both():
    with pytest.raises(ValueError, match="^queue has 3 dimensions"):
        DistillationLoss()(torch.ones(3, 2), torch.ones(3, 2), queue=torch.ones(4, 3))
    with pytest.raises(ValueError, match="^teacher has 4 dimensions, but with a queue"):
        DistillationLoss()(torch.ones(3, 2), torch.ones(3, 4), queue=torch.ones(4, 2))
    with pytest.raises(ValueError, match="not with a queue"):
        DistillationLoss()(*[torch.ones(3, 2)] * 4, queue=torch.ones(4, 2))
