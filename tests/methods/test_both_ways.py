import math

import pytest
import torch
from torch.nn.functional import normalize

import method_cases
from coulomb.errors import InputError
from coulomb.methods.simclr import SimCLR


def made(encoder=method_cases.encoder, **options):
    return SimCLR(encoder(), **{"embedding_dim": 5, "temperature": 0.4, "top_k": 3} | options)


def by_hand(embeddings, row):
    """Mean over both directions of ``row(s⁺, negatives)``, cosines."""
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
def test_loss_is_the_formula(loss, row):
    embeddings = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made(loss=loss).criterion(embeddings), by_hand(embeddings, row))
    half = made(loss=loss, top_k=None)  # 3 of 5
    torch.testing.assert_close(half.criterion(embeddings), by_hand(embeddings, row))
    views = list(torch.rand(2, 6, 1, 8, 8))
    method = made(loss=loss).eval()
    expected = method.criterion(torch.stack([method.head(method.encoder(view)) for view in views], dim=1))
    torch.testing.assert_close(method(views), expected)


@pytest.mark.parametrize("loss", ["simple", "hard", "hard_simple"])
def test_is_pure_and_resumes_and_equal_images_give_no_signal(loss):
    method_cases.assert_pure(made(loss=loss))
    method_cases.assert_resumes(lambda **options: made(loss=loss, **options))
    same = [torch.full((4, 1, 8, 8), 0.5)] * 2
    assert float(made(loss=loss).eval()(same).detach()) == pytest.approx(made(loss=loss).no_signal(4, 2), abs=1e-6)
    assert made(loss="hard").no_signal(9, 2) == math.log(4)
    assert made(loss="hard", top_k=None).no_signal(9, 2) == math.log(5)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="loss='soft': must be contrastive, hard"):
        made(loss="soft")
    with pytest.raises(InputError, match="top_k=0"):
        made(loss="hard", top_k=0)
    with pytest.raises(InputError, match="n_views=3: loss='simple'"):
        made(loss="simple")(method_cases.views(3))
