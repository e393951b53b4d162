import math

import pytest
import torch
from torch.nn.functional import normalize

import method_cases
from coulomb.ground.errors import InputError
from coulomb.methods.debiased import Debiased
from coulomb.methods.hard import Hard
from coulomb.models import ViewRows
from method_cases import built


def made(encoder=method_cases.encoder, **options):
    return built(Hard, encoder(), **{"embedding_dim": 5} | options)


def test_loss_is_the_formula():
    method, seen = made(temperature=0.4, tau_plus=0.05, beta=1.5).eval(), method_cases.views()
    z = normalize(method.tower(torch.cat(seen)))
    s = (z @ z.T / 0.4).exp()
    losses = []
    for i in range(12):
        own = s[i, (i + 6) % 12]
        others = torch.stack([s[i, j] for j in range(12) if j % 6 != i % 6])
        weights = others**1.5
        harder = (weights * others).sum() / weights.mean()
        negatives = (harder - 0.05 * 10 * own) / 0.95
        losses.append(-(own / (own + negatives.clamp_min(10 * math.exp(-1 / 0.4)))).log())
    torch.testing.assert_close(method(ViewRows.of(seen)), torch.stack(losses).mean())


def test_beta_zero_is_debiased():
    seen = method_cases.views()
    torch.testing.assert_close(
        made(beta=0.0)(ViewRows.of(seen)),
        built(Debiased, method_cases.encoder(), embedding_dim=5)(ViewRows.of(seen)),
    )


def test_is_pure_and_resumes():
    method_cases.assert_pure(made())
    method_cases.assert_resumes(made)
    method_cases.assert_every_parameter_learns(made())


def test_equal_images_give_the_value_of_no_signal():
    same = ViewRows.of([torch.full((4, 1, 8, 8), 0.5)] * 2)
    assert float(made().eval()(same).detach()) == pytest.approx(made().no_signal(4, 2)) == pytest.approx(math.log(7))


def test_other_than_two_views_are_refused():
    with pytest.raises(InputError, match="n_views=3"):
        made()(ViewRows.of(method_cases.views(3)))
