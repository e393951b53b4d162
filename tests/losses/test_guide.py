"""InfoNCE with a guide, compared with a double loop over the stored matrices in fp64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import InfoNCELoss, LearnableTemperature
from coulomb.similarity import policy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def looped(scores, own, g, limit, same):
    """[N]: every row by a loop over its keys; ``own`` is the positive's score, which is no key here."""
    losses = []
    for i in range(len(scores)):
        kept = [scores[i, j] for j in range(scores.shape[1]) if g[i, j] < limit[i] and not same[i, j]]
        losses.append(torch.stack([own[i], *kept]).logsumexp(0) - own[i])
    return torch.stack(losses)


def dense(parts, guide, scale, margin, kind, symmetric, in_batch, ids):
    """[N], of query, positive and perhaps negatives."""
    n, rows, teacher = len(parts[0]), [normalize(part) for part in parts], [normalize(part) for part in guide]
    queue = len(parts) == 3 and not in_batch
    keys, taught = (rows[2], teacher[2]) if queue else (torch.cat(rows[1:]), torch.cat(teacher[1:]))
    true, own = (teacher[0] * teacher[1]).sum(1), scale * (rows[0] * rows[1]).sum(1)
    limit = true - margin * (true.abs() if kind == "relative" else 1) - 1e-12
    same = torch.zeros(n, len(keys), dtype=torch.bool)
    if not queue:
        same[:, :n] = torch.eye(n, dtype=torch.bool) | ((ids[:, None] == ids) & (ids >= 0))
    there = looped(scale * rows[0] @ keys.T, own, teacher[0] @ taught.T, limit, same)
    if not symmetric:
        return there
    back = looped(scale * rows[1] @ rows[0].T, own, teacher[1] @ teacher[0].T, limit, same[:, :n].T)
    return (there + back) / 2


def compare(ours, truth, parts, tolerance=1e-10):
    torch.testing.assert_close(ours, truth, rtol=0, atol=tolerance)
    found, true = (
        torch.autograd.grad(value.sum(), parts, allow_unused=True, retain_graph=True, materialize_grads=True)
        for value in (ours, truth)
    )
    for mine, its in zip(found, true, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


@settings(max_examples=120, deadline=None)
@given(
    n=st.integers(1, 12),
    hard=st.sampled_from(["batch", "queue", "both"]),
    symmetric=st.booleans(),
    ids=st.booleans(),
    kind=st.sampled_from(["absolute", "relative"]),
    margin=st.sampled_from([0.0, 0.2, -0.3]),
    stored=st.booleans(),
    tile=st.integers(1, 7),
    scale=st.sampled_from([2.0, 14.0, 800.0]),
    seed=st.integers(0, 9),
)
@pytest.mark.filterwarnings("ignore:.*have no negative")
def test_equals_the_double_loop(n, hard, symmetric, ids, kind, margin, stored, tile, scale, seed):
    symmetric, ids = symmetric and hard != "queue", ids and hard != "queue"
    lengths = [n, n] if hard == "batch" else [n, n, 2 + seed]
    parts = [normal(length, 4, seed=seed + step).requires_grad_() for step, length in enumerate(lengths)]
    guide = tuple(normal(length, 3, seed=50 + seed + step) for step, length in enumerate(lengths))
    number = torch.randint(-1, 4, (n,), generator=torch.Generator().manual_seed(seed)) if ids else torch.full((n,), -1)
    temperature = LearnableTemperature(1 / scale, minimum=1e-3).double()
    options = {"symmetric": symmetric, "in_batch": hard == "both", "guide_margin": margin, "guide_margin_kind": kind}
    with policy.override(backend="auto" if stored else "streaming", tile=tile):
        loss = InfoNCELoss(temperature, reduction="none", **options)
        ours = loss(*parts, guide=guide, **({"ids": number} if ids else {}))
        truth = dense(parts, guide, temperature.scale(), margin, kind, symmetric, hard == "both", number)
        compare(ours, truth, [*parts, temperature.log_scale], 1e-10 if scale < 100 else 1e-9)


def test_gist_with_its_four_blocks_is_a_sum_of_guided_blocks():
    """As in sentence-transformers: anchor–positive, anchor–anchor, positive–positive, and hard negatives, in one softmax."""
    from coulomb.similarity import Guide, Similarity

    anchors, positives, hard = (normal(9, 5, seed=seed).requires_grad_() for seed in (0, 1, 2))
    guides = [normalize(normal(9, 4, seed=seed)) for seed in (3, 4, 5)]
    a, p, h = (normalize(part) for part in (anchors, positives, hard))
    limit = (guides[0] * guides[1]).sum(1) - 0.05

    def scores(x, y, gx, gy, own=None):
        hidden = gx @ gy.T > limit[:, None]
        return (20 * x @ y.T).masked_fill(hidden if own is None else hidden & ~own, -torch.inf)

    eye = torch.eye(9, dtype=torch.bool)
    blocks = [
        (a, p, *guides[:2], eye),
        (a, a, guides[0], guides[0]),
        (p, p, guides[1], guides[1]),
        (a, h, guides[0], guides[2]),
    ]
    truth = cross_entropy(torch.cat([scores(*block) for block in blocks], 1), torch.arange(9), reduction="none")

    def lse(x, y, gx, gy, **options):
        return Similarity(x, y, scale=20.0, guide=Guide(gx, gy, limit), **options).lse("negatives")

    parts = [
        lse(a, p, *guides[:2], instances=9),
        lse(a, None, guides[0], None),
        lse(p, None, guides[1], None),
        lse(a, h, guides[0], guides[2]),
    ]
    positive = 20 * (a * p).sum(1)
    ours = torch.stack([positive, *parts]).logsumexp(0) - positive
    compare(ours, truth, [anchors, positives, hard])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("tile", [None, 2])
def test_without_negatives_the_loss_is_0_and_counted(symmetric, tile):
    """A margin of 3 leaves out every key: cosines are at most 2 apart."""
    query, positive, guide = normal(5, 3).requires_grad_(), normal(5, 3, seed=1), (normal(5, 2), normal(5, 2, seed=1))
    with policy.override(tile=tile, backend="streaming" if tile else "auto"):
        with pytest.warns(CoulombWarning, match="5 of 5 anchors have no negative"):
            loss = InfoNCELoss(symmetric=symmetric, guide_margin=3.0)(query, positive, guide=guide)
        loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros_like(query))


def test_queries_without_negatives_are_counted():
    """The third query is nearer to every other key than to its positive, by the guide."""
    guide = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
    with pytest.warns(CoulombWarning, match="1 of 3 anchors have no negative"):
        loss = InfoNCELoss(reduction="none")(normal(3, 3), normal(3, 3, seed=1), guide=guide)
    assert (loss > 0).tolist() == [True, True, False]


def test_a_small_loss_is_not_counted():
    """At τ = 0.001 the losses of separated pairs underflow to 0, although all negatives count."""
    rows = torch.eye(3)
    assert float(InfoNCELoss(0.001)(rows, rows, guide=(rows, rows))) == 0


def test_a_margin_of_minus_3_changes_nothing():
    query, positive, negatives = normal(6, 4), normal(6, 4, seed=1), normal(7, 4, seed=2)
    guide = normal(6, 2), normal(6, 2, seed=1), normal(7, 2, seed=2)
    loss, plain = InfoNCELoss(guide_margin=-3.0), InfoNCELoss()
    torch.testing.assert_close(loss(query, positive, guide=guide[:2]), plain(query, positive))
    torch.testing.assert_close(loss(query, positive, negatives, guide=guide), plain(query, positive, negatives))


def test_copies_of_the_positive_are_left_out():
    query, positive, guide = normal(4, 3), normal(4, 3, seed=1), normal(4, 2)
    twice = [torch.cat([part, part]) for part in (query, positive, guide, guide)]
    loss = InfoNCELoss(reduction="none")
    alone = loss(query, positive, guide=(guide, guide))
    repeated = loss(*twice[:2], guide=tuple(twice[2:]))
    scores = normalize(query) @ normalize(positive).T / 0.07
    kept = normalize(guide) @ normalize(guide).T < 1 - 1e-9
    twofold = torch.cat([scores.masked_fill(~kept, -torch.inf)] * 2, 1).logsumexp(1)
    torch.testing.assert_close(repeated[:4], torch.nn.functional.softplus(twofold - scores.diagonal()))
    assert (repeated[:4] > alone).all()


def test_diagnosis_leaves_guided_keys_out():
    query, positive, guide = normal(6, 3), normal(6, 3, seed=1), (normal(6, 2, seed=2), normal(6, 2, seed=3))
    a, b = (normalize(part) for part in guide)
    g = a @ b.T
    cosines = (normalize(query) @ normalize(positive).T).masked_fill(g >= g.diagonal()[:, None], -torch.inf)
    loss = InfoNCELoss(diagnose=True)
    _, diagnosis = loss(query, positive, guide=guide)
    torch.testing.assert_close(diagnosis.hardest_negative, cosines.amax(1))


@pytest.mark.parametrize(
    ("options", "given", "error", "message"),
    [
        ({}, (torch.ones(2, 3),), ValueError, "^guide must be a tuple of 2 tensors, for query, positive; got 1"),
        ({}, torch.ones(2, 3), ValueError, "^guide must be a tuple of 2 tensors, for query, positive; got Tensor"),
        ({}, (torch.ones(3, 3), torch.ones(2, 3)), ValueError, r"^guide\[0\] must have shape \[2, 3\] for query"),
        ({}, (torch.ones(2, 3), torch.ones(2, 4)), ValueError, r"^guide\[1\] must have shape \[2, 3\] for positive"),
        ({}, (torch.ones(2), torch.ones(2)), ValueError, r"^guide\[0\] must have"),
        ({}, (torch.ones(2, 3), torch.ones(2, 3).long()), TypeError, r"^guide\[1\] must be a floating"),
        ({}, (torch.ones(2, 3), None), TypeError, r"^guide\[1\] must be a floating"),
        ({}, (torch.ones(2, 3).fill_(torch.nan), torch.ones(2, 3)), ValueError, r"^guide\[0\] has .*NaN"),
        ({}, (torch.ones(2, 3), torch.ones(2, 3, device="meta")), ValueError, r"^guide\[1\] is on meta"),
        ({"same_id": "positive"}, (torch.ones(2, 3),) * 2, ValueError, "^guide with same_id='positive'"),
    ],
)
def test_invalid_guides_raise(options, given, error, message):
    pair = torch.ones(2, 3)
    with pytest.raises(error, match=message):
        InfoNCELoss(**options)(pair, pair, guide=given)


def test_invalid_margins_raise():
    with pytest.raises(ValueError, match="^guide_margin must be finite"):
        InfoNCELoss(guide_margin=float("nan"))
    with pytest.raises(ValueError, match="^guide_margin_kind must be one of 'absolute', 'relative'"):
        InfoNCELoss(guide_margin_kind="percent")


def test_zero_vectors_of_a_guide_are_counted():
    guide = torch.eye(3), torch.eye(3)
    guide[1][1, 1], guide[1][2, 1] = 0, -1
    with pytest.warns(CoulombWarning, match=r"1 of 3 rows of guide\[1\] are zero vectors"):
        InfoNCELoss()(torch.eye(3), torch.eye(3), guide=guide)
