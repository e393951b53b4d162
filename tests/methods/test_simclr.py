import math

import pytest
import torch
from torch.nn.functional import normalize

import method_cases
from coulomb.ground.errors import InputError
from coulomb.losses import NTXentLoss
from coulomb.methods.simclr import SimCLR
from coulomb.models import ViewRows
from method_cases import built


def made(encoder=method_cases.encoder, **options):
    return built(SimCLR, encoder(), **{"embedding_dim": 5, "temperature": 0.4, "top_k": 3} | options)


def by_hand(embeddings, row):
    """Returns the mean over both directions of ``row(s⁺, negatives)``, cosines."""
    first, second = normalize(embeddings, dim=2).unbind(1)
    losses = []
    for query, keys in ((first, second), (second, first)):
        s = query @ keys.T
        losses += [row(s[i, i], s[i, torch.arange(6) != i]) for i in range(6)]
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("loss", "row"),
    [
        ("simple", lambda own, others: others.mean() - own),
        ("hard_simple", lambda own, others: others.topk(3).values.mean() - own),
        ("hard", lambda own, others: torch.cat([own[None], others.topk(3).values]).div(0.4).logsumexp(0) - own / 0.4),
    ],
)
def test_pair_losses_follow_their_formulas(loss, row):
    embeddings = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made(loss=loss).criterion(*embeddings.unbind(1)), by_hand(embeddings, row))
    half = made(loss=loss, top_k=None)  # 3 of 5
    torch.testing.assert_close(half.criterion(*embeddings.unbind(1)), by_hand(embeddings, row))
    views = list(torch.rand(2, 6, 1, 8, 8))
    method = made(loss=loss).eval()
    expected = method.criterion(*(method.tower(view) for view in views))
    torch.testing.assert_close(method(ViewRows.of(views)), expected)


@pytest.mark.parametrize("loss", ["simple", "hard", "hard_simple"])
def test_pair_losses_are_pure_and_resume_and_equal_images_give_no_signal(loss):
    method_cases.assert_pure(made(loss=loss))
    method_cases.assert_resumes(lambda **options: made(loss=loss, **options))
    same = ViewRows.of([torch.full((4, 1, 8, 8), 0.5)] * 2)
    assert float(made(loss=loss).eval()(same).detach()) == pytest.approx(made(loss=loss).no_signal(4, 2), abs=1e-6)
    assert made(loss="hard").no_signal(9, 2) == math.log(4)
    assert made(loss="hard", top_k=None).no_signal(9, 2) == math.log(5)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="loss='soft': must be contrastive, hard"):
        made(loss="soft")
    with pytest.raises(InputError, match="top_k=0"):
        made(loss="hard", top_k=0)
    with pytest.raises(InputError, match="n_views=3: SimCLR needs exactly 2"):
        made(loss="simple")(ViewRows.of(method_cases.views(3)))


@pytest.mark.parametrize("count", [2, 3])
def test_simclr_is_ntxent_of_the_head(count):
    method = built(SimCLR, method_cases.encoder(), temperature=0.3, embedding_dim=5).eval()
    seen = method_cases.views(count)
    embeddings = torch.stack([method.tower(view) for view in seen], dim=1)
    torch.testing.assert_close(method(ViewRows.of(seen)), NTXentLoss(temperature=0.3)(embeddings))


def test_simclr_uses_the_reductions_of_the_engine():
    loss = built(SimCLR, method_cases.encoder())(ViewRows.of(method_cases.views()))  # keeps its graph
    nodes, names = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        names.add(type(node).__name__)
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    assert "ReduceBackward" in names


def test_simclr_needs_two_views():
    with pytest.raises(InputError, match="n_views=1"):
        built(SimCLR, method_cases.encoder())(ViewRows.of(method_cases.views(1)))


def simplex(n):
    """Returns n unit vectors with cosines −1/(n − 1)."""
    centered = torch.eye(n, dtype=torch.float64) - 1 / n
    return centered / centered.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("n", [2, 3, 8, 40])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 2.0])
def test_the_floor_of_simclr_is_reached_by_a_simplex_only(n, temperature):
    method = built(SimCLR, method_cases.encoder(), temperature=temperature, embedding_dim=5)
    floor, corners = method.floor(n, 2), simplex(n)
    assert floor == pytest.approx(float(method.criterion(corners, corners)), rel=1e-9)
    generator = torch.Generator().manual_seed(0)
    assert float(method.criterion(torch.randn(n, 2, 5, generator=generator, dtype=torch.float64))) > floor


def test_the_floor_is_none_where_it_is_unknown():
    assert (
        built(SimCLR, method_cases.encoder()).floor(8, 4) is None
        and built(SimCLR, method_cases.encoder()).floor(1, 2) is None
    )
    assert built(SimCLR, method_cases.encoder(), loss="hard").floor(8, 2) is None
