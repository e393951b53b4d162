"""The minima of the losses themselves, over free logits: what supervised contrast and PaCo ask of each class."""

import pytest
import torch

from coulomb.errors import InputError
from coulomb.losses import PaCoLoss, SupConLoss
from coulomb.metrics.loss_floor import free_logits, pull_optimum


def free_keys(query, keys):
    """Rows for a loss: the query's similarity to key j is its j-th number, so that every logit is free."""
    return torch.cat([query[None], torch.eye(keys, dtype=query.dtype)])


@pytest.mark.parametrize("own", [1, 4, 20])
def test_supcon_gives_each_positive_one_over_k(own):
    labels = torch.tensor([0] * (own + 1) + [1] * 10)
    loss = SupConLoss(temperature=1.0, normalize=False, reduction="none")
    logits = free_logits(lambda x: loss(free_keys(x, own + 10), labels)[0], own + 10)
    assert torch.allclose(logits.softmax(0)[:own], torch.tensor(1 / own, dtype=torch.float64), rtol=0.01)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("alpha", "own"), [(0.05, 8), (0.05, 40), (0.01, 100), (1.0, 3)])
def test_paco_gives_the_centre_and_each_positive_their_share(alpha, own, normalized):
    others, classes = 10, 5
    labels = torch.tensor([0] * (own + 1) + [1, 2, 3, 4, 1] * 2)
    loss = PaCoLoss(alpha=alpha, temperature=1.0, normalize=False, normalized=normalized)

    def of(x):
        return loss(free_keys(x[classes:], own + others), labels, x[None, :classes])

    share = free_logits(of, classes + own + others).softmax(0)
    assert float(share[0]) == pytest.approx(1 / (1 + alpha * own), rel=0.01)
    assert share[classes : classes + own].tolist() == pytest.approx([alpha / (1 + alpha * own)] * own, rel=0.01)


@pytest.mark.parametrize("weight", [0.41, 0.05, 3.0])
def test_the_pull_of_the_positives_on_the_centre(weight):
    assert pull_optimum(weight) == pytest.approx(1 / (1 + weight), rel=1e-3)


def test_the_figure_of_the_paper():
    assert round(pull_optimum(0.41), 3) == 0.709
    assert 0.05 * round(pull_optimum(0.41), 3) == pytest.approx(0.0355, abs=1e-4)


def test_what_has_no_minimum_to_find_is_refused():
    with pytest.raises(InputError, match="depends on them"):
        free_logits(lambda x: torch.tensor(1.0), 3)
    with pytest.raises(InputError, match="finite scalar"):
        free_logits(lambda x: x.sum() * torch.nan, 3)
    with pytest.raises(InputError, match="weight=-1"):
        pull_optimum(-1)
    with pytest.raises(InputError, match="size=0"):
        free_logits(lambda x: x.sum(), 0)
