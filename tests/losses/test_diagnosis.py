import doctest

import torch

from coulomb.losses import diagnosis
from coulomb.losses.diagnosis import diagnose_rows
from coulomb.similarity import Similarity


def test_docstring_example():
    assert doctest.testmod(diagnosis, extraglobs={"torch": torch}).failed == 0


def test_each_statistic_equals_its_definition():
    z = torch.nn.functional.normalize(
        torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ).requires_grad_()
    ids = torch.tensor([0, 0, 1, 1, 1, 2, -1])
    statistics = diagnose_rows(Similarity(z, scale=3.0, query_ids=ids))
    cosines = (z @ z.T).detach()
    for i in range(7):
        mine = [j for j in range(7) if j != i and ids[i] == ids[j] and ids[i] >= 0]
        rest = cosines[i, [j for j in range(7) if j != i and j not in mine]]
        p = (3 * rest).softmax(0)
        torch.testing.assert_close(statistics.hardest_negative[i], rest.max())
        torch.testing.assert_close(statistics.effective_negatives[i], (-(p * p.log()).sum()).exp())
        torch.testing.assert_close(statistics.positive[i], cosines[i, mine].mean(), equal_nan=True)
    assert statistics.without_positive == 2
    assert not statistics.positive.requires_grad


def test_no_negatives_give_minus_infinity_and_zero():
    statistics = diagnose_rows(Similarity(torch.eye(2), query_ids=torch.tensor([0, 0])))
    assert statistics.hardest_negative.tolist() == [-torch.inf] * 2
    assert statistics.effective_negatives.tolist() == [0, 0]
    assert statistics.without_positive == 0


def test_given_positive_similarities_are_used():
    S = Similarity(torch.eye(2), torch.eye(2), instances=2, scale=2.0)
    statistics = diagnose_rows(S, positive=S.positives(), has_positive=torch.tensor([True, False]))
    torch.testing.assert_close(statistics.positive, torch.tensor([1.0, torch.nan]), equal_nan=True)
    assert statistics.without_positive == 1
    assert diagnose_rows(S, positive=S.positives()).without_positive == 0
