"""Keys with an id of the query are no negatives, or are positives: compared with the stored matrix in fp64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize, softplus

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import InfoNCELoss, LearnableTemperature, SigmoidLoss
from coulomb.similarity import policy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def equal(ids, key_ids):
    """[N, M]: pairs of which any id is equal."""
    ids, key_ids = (one[:, None] if one.ndim == 1 else one for one in (ids, key_ids))
    return ((ids[:, None] == key_ids) & (ids[:, None] >= 0)).any(2)


def dense_infonce(query, positive, scale, ids, negatives=None, negative_ids=None, symmetric=False, same_id="left_out"):
    """[N], by plain torch on the stored matrix: in-batch, with ``negatives`` in addition."""
    n, query, positive = len(query), normalize(query), normalize(positive)
    keys, key_ids = positive, ids
    if negatives is not None:
        others = ids.new_full((len(negatives), *ids.shape[1:]), -1) if negative_ids is None else negative_ids
        keys, key_ids = torch.cat([positive, normalize(negatives)]), torch.cat([ids, others])
    scores = scale * query @ keys.T
    own = torch.eye(n, len(keys), dtype=torch.bool)
    same = equal(ids, key_ids) | own

    def one_direction(scores, same, own):
        if same_id == "left_out":
            scores = scores.masked_fill(same & ~own, -torch.inf)
            return scores.logsumexp(1) - scores.diagonal()
        return scores.logsumexp(1) - (scores * same).sum(1) / same.sum(1)

    there = one_direction(scores, same, own)
    return (there + one_direction(scores[:, :n].T, same[:, :n].T, own[:, :n])) / 2 if symmetric else there


def dense_sigmoid(query, positive, scale, bias, ids, same_id):
    scores = scale * normalize(query) @ normalize(positive).T + bias
    own = torch.eye(len(query), dtype=torch.bool)
    same = equal(ids, ids) | own
    attracted = same if same_id == "positive" else own
    return (softplus(-scores) * attracted + softplus(scores) * ~same).sum(1)


def assert_equal_gradients(ours, truth, parts, tolerance=1e-10):
    torch.testing.assert_close(ours, truth, rtol=0, atol=tolerance)
    found, true = (torch.autograd.grad(value.sum(), parts, allow_unused=True) for value in (ours, truth))
    for mine, its in zip(found, true, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


def ids_lists(width):
    row = st.integers(-1, 3) if width is None else st.lists(st.integers(-1, 3), min_size=width, max_size=width)
    return st.lists(row, min_size=1, max_size=11)


@settings(max_examples=120, deadline=None)
@given(
    ids=st.sampled_from([None, 1, 2, 3]).flatmap(ids_lists),
    dim=st.integers(1, 5),
    symmetric=st.booleans(),
    hard=st.sampled_from([None, "unknown", "known"]),
    same_id=st.sampled_from(["left_out", "positive"]),
    stored=st.booleans(),
    tile=st.integers(1, 7),
    scale=st.sampled_from([2.0, 14.0, 800.0]),
    seed=st.integers(0, 5),
)
@pytest.mark.filterwarnings("ignore:.*have no negative")
def test_infonce_equals_the_stored_matrix(ids, dim, symmetric, hard, same_id, stored, tile, scale, seed):
    ids = torch.tensor(ids)
    if same_id == "positive" and ids.ndim == 2:
        ids = ids[:, 0]
    n, k = len(ids), 1 + seed
    parts = [normal(rows, dim, seed=seed + step).requires_grad_() for step, rows in enumerate((n, n, k))]
    temperature = LearnableTemperature(1 / scale, minimum=1e-3).double()
    given = {"ids": ids}
    if hard == "known":
        given["negative_ids"] = torch.randint(-1, 4, (k, *ids.shape[1:]), generator=torch.Generator().manual_seed(seed))
    used = parts[: 2 + (hard is not None)]
    options = {"symmetric": symmetric, "in_batch": hard is not None, "same_id": same_id, "reduction": "none"}
    with policy.override(backend="auto" if stored else "streaming", tile=tile):
        ours = InfoNCELoss(temperature, **options)(*used, **given)
        others = {"negatives": used[-1] if hard else None, "negative_ids": given.get("negative_ids")}
        truth = dense_infonce(*parts[:2], temperature.scale(), ids, **others, symmetric=symmetric, same_id=same_id)
        tolerance = 1e-10 if scale < 100 else 1e-9
        assert_equal_gradients(ours, truth, [*used, temperature.log_scale], tolerance)


@settings(max_examples=60, deadline=None)
@given(
    ids=st.sampled_from([None, 1, 2, 3]).flatmap(ids_lists),
    same_id=st.sampled_from(["left_out", "positive"]),
    stored=st.booleans(),
    tile=st.integers(1, 7),
)
@pytest.mark.filterwarnings("ignore:.*have no negative")
def test_sigmoid_equals_the_stored_matrix(ids, same_id, stored, tile):
    ids = torch.tensor(ids)
    query, positive = (normal(len(ids), 4, seed=seed).requires_grad_() for seed in (0, 1))
    loss = SigmoidLoss(4.0, -1.0, same_id=same_id, reduction="none").double()
    with policy.override(backend="auto" if stored else "streaming", tile=tile):
        ours = loss(query, positive, ids)
        truth = dense_sigmoid(query, positive, loss.log_scale.exp(), loss.learned_bias, ids, same_id)
        assert_equal_gradients(ours, truth, [query, positive, loss.log_scale, loss.learned_bias])


def test_a_chain_is_not_closed():
    """A shares the picture with B and B the caption with C: A and C stay negatives of each other."""
    ids = torch.tensor([[0, 5], [0, 7], [2, 7], [3, 8]])
    counted = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 0]]).bool()
    query, positive = normal(4, 4), normal(4, 4, seed=1)
    scores = 2 * normalize(query) @ normalize(positive).T
    expected = softplus(scores.masked_fill(~counted, -torch.inf).logsumexp(1) - scores.diagonal())
    torch.testing.assert_close(InfoNCELoss(0.5, reduction="none")(query, positive, ids=ids), expected)


@pytest.mark.parametrize("ids", [torch.zeros(5).long(), torch.tensor([[0, 1], [0, 2], [0, -1], [0, 1], [0, 4]])])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("tile", [None, 2])
def test_without_negatives_the_loss_is_0_and_counted(ids, symmetric, tile):
    query, positive = normal(5, 3).requires_grad_(), normal(5, 3, seed=1)
    with policy.override(tile=tile, backend="streaming" if tile else "auto"):
        with pytest.warns(CoulombWarning, match="5 of 5 anchors have no negative"):
            loss = InfoNCELoss(symmetric=symmetric)(query, positive, ids=ids)
        loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros_like(query))


def test_queries_without_negatives_are_counted():
    ids = torch.tensor([[0, 1], [0, 2], [3, 2], [-1, -1]])
    with pytest.warns(CoulombWarning, match="1 of 3 anchors have no negative"):
        loss = InfoNCELoss(reduction="none")(normal(3, 3), normal(3, 3, seed=1), ids=ids[:3])
    assert (loss > 0).tolist() == [True, False, True]
    InfoNCELoss()(normal(4, 3), normal(4, 3), ids=ids)  # the fourth is a negative of the second: no warning


def test_unknown_ids_change_nothing():
    query, positive = normal(6, 4), normal(6, 4, seed=1)
    for ids in (torch.full((6,), -1), torch.full((6, 2), -1), torch.tensor([[-1, 0], [0, -1], [1, -1]])):
        some = query[: len(ids)], positive[: len(ids)]
        torch.testing.assert_close(InfoNCELoss()(*some, ids=ids), InfoNCELoss()(*some), rtol=0, atol=1e-14)


def test_several_ids_per_sample_cannot_be_positives():
    pair = torch.eye(3)
    with pytest.raises(ValueError, match=r"^ids of shape \[3, 2\] with same_id='positive'"):
        InfoNCELoss(same_id="positive")(pair, pair, ids=torch.zeros(3, 2).long())
    one = InfoNCELoss(same_id="positive")(pair, pair, ids=torch.tensor([[0], [0], [1]]))  # a column is one id
    torch.testing.assert_close(one, InfoNCELoss(same_id="positive")(pair, pair, ids=torch.tensor([0, 0, 1])))


def test_given_negatives_are_added_to_the_batch():
    """As the candidates of sentence-transformers' MultipleNegativesRankingLoss for columns anchor, positive, negative."""
    query, positive, negatives = (normal(rows, 3, seed=rows) for rows in (4, 4, 7))
    scores = 20 * normalize(query) @ normalize(torch.cat([positive, negatives])).T
    ours = InfoNCELoss(0.05, in_batch=True)(query, positive, negatives)
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(scores, torch.arange(4)))
    back = torch.nn.functional.cross_entropy(scores[:, :4].T, torch.arange(4))
    both = InfoNCELoss(0.05, in_batch=True, symmetric=True)(query, positive, negatives)
    torch.testing.assert_close(both, (ours + back) / 2)
    torch.testing.assert_close(InfoNCELoss(0.05, in_batch=True)(query, positive), InfoNCELoss(0.05)(query, positive))


@pytest.mark.parametrize("in_batch", [False, True])
def test_negatives_with_the_id_of_the_query_may_be_positives(in_batch):
    query, positive, negatives = (normal(rows, 3, seed=step) for step, rows in enumerate((4, 4, 6)))
    ids, negative_ids = torch.tensor([0, 1, -1, 0]), torch.tensor([1, 0, 1, -1, 7, -1])
    loss = InfoNCELoss(0.3, same_id="positive", reduction="none", in_batch=in_batch)
    ours = loss(query, positive, negatives, ids=ids, negative_ids=negative_ids)
    if in_batch:
        truth = dense_infonce(query, positive, 1 / 0.3, ids, negatives, negative_ids, same_id="positive")
    else:
        keys = normalize(torch.cat([positive, negatives]))
        scores = normalize(query) @ keys.T / 0.3
        same = torch.cat([torch.eye(4).bool(), equal(ids, negative_ids)], 1)
        counted = torch.cat([torch.eye(4).bool(), torch.ones(4, 6).bool()], 1)
        lse = scores.masked_fill(~counted, -torch.inf).logsumexp(1)
        truth = lse - (scores * same).sum(1) / same.sum(1)
    torch.testing.assert_close(ours, truth)


def test_diagnosis_leaves_equal_ids_out():
    query, positive, ids = normal(5, 3), normal(5, 3, seed=1), torch.tensor([[0, 1], [0, 2], [3, 2], [4, 5], [6, 1]])
    cosines = normalize(query) @ normalize(positive).T
    _, diagnosis = InfoNCELoss(diagnose=True)(query, positive, ids=ids)
    hardest = cosines.masked_fill(equal(ids, ids), -torch.inf).amax(1)
    torch.testing.assert_close(diagnosis.hardest_negative, hardest)
    torch.testing.assert_close(diagnosis.positive, cosines.diagonal())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_large_batches_in_low_precision(dtype):
    """N = 3,000 through tiles, ids of pictures (five captions each) and of captions (some repeated)."""
    generator = torch.Generator().manual_seed(0)
    n = 3000
    ids = torch.stack([torch.arange(n) // 5, torch.randint(2000, (n,), generator=generator)], 1)[
        torch.randperm(n, generator=generator)
    ]
    parts = [torch.randn(n, 24, generator=generator).to(dtype).requires_grad_() for _ in range(2)]
    exact = [part.detach().double().requires_grad_() for part in parts]
    ours = InfoNCELoss(0.1, symmetric=True)(*parts, ids=ids)
    truth = dense_infonce(*exact, 10.0, ids, symmetric=True).mean()
    ours.backward()
    truth.backward()
    torch.testing.assert_close(ours.double(), truth, rtol=2e-5 if dtype == torch.float32 else 2e-3, atol=0)
    for part, its in zip(parts, exact, strict=True):
        error = (part.grad.double() - its.grad).abs().max() / its.grad.abs().max()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)
