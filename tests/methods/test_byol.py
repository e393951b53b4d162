import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

import method_cases
from coulomb.ground.errors import InputError
from coulomb.methods.byol import BYOL
from coulomb.models import ViewRows
from method_cases import built


def made(encoder=method_cases.encoder, **options):
    return built(BYOL, encoder(), **{"embedding_dim": 5, "momentum": 0.9} | options)


def test_loss_is_the_symmetric_squared_distance_of_unit_vectors():
    method, (a, b) = made().eval(), method_cases.views()
    predicted = [method.predictor(method.tower(view)) for view in (a, b)]
    targets = [method.target(view) for view in (a, b)]
    expected = 4 - 2 * cosine_similarity(predicted[0], targets[1]) - 2 * cosine_similarity(predicted[1], targets[0])
    torch.testing.assert_close(method(ViewRows.of([a, b])), expected.mean())


def test_three_views_are_six_pairs():
    method, seen = made().eval(), method_cases.views(3)
    pairs = [[seen[i], seen[j]] for i, j in ((0, 1), (0, 2), (1, 2))]
    torch.testing.assert_close(
        method(ViewRows.of(seen)), torch.stack([method(ViewRows.of(pair)) for pair in pairs]).mean()
    )


def test_the_target_follows_by_the_cosine_schedule():
    method = made()
    method_cases.assert_pure(method)
    before = method_cases.state_of(method)
    with torch.no_grad():
        method.tower.head[0].weight.add_(1)
    method.after_update(0.5)
    assert method_cases.changed(before, method) == {"tower.head.0.weight", "target.module.head.0.weight"}
    moved = method.target.module.head[0].weight - before["target.module.head.0.weight"]
    torch.testing.assert_close(
        moved, torch.full_like(moved, 0.1 * (math.cos(math.pi / 2) + 1) / 2), rtol=1e-4, atol=1e-6
    )
    before = method_cases.state_of(method)
    method.after_update(1.0)
    assert method_cases.changed(before, method) == set()  # m is 1 at the end


def test_no_gradient_reaches_the_target():
    method_cases.assert_every_parameter_learns(made())
    assert not any(p.requires_grad for p in made().target.parameters())


def test_without_stop_gradient_the_target_learns():
    method, (a, b) = made(method_cases.plain_encoder, stop_gradient=False, use_predictor=False), method_cases.views()
    assert method.target is None
    first, second = method.tower(torch.cat([a, b])).chunk(2)
    torch.testing.assert_close(method(ViewRows.of([a, b])), 4 - 4 * cosine_similarity(first, second).mean())
    method.after_update(0.5)
    method_cases.assert_every_parameter_learns(method)


@pytest.mark.parametrize("options", [{}, {"stop_gradient": False}, {"use_predictor": False}], ids=str)
def test_resumes(options):
    method_cases.assert_resumes(lambda: made(**options))


def test_without_stop_gradient_it_collapses():
    loss, spread, rank = method_cases.trained_on_blobs(BYOL)
    assert loss > 0.1 and spread > 0.6 and rank > 8
    loss, spread, rank = method_cases.trained_on_blobs(BYOL, stop_gradient=False)
    assert loss < 0.01 and spread < 0.2 and rank < 3.5


def test_no_signal_is_none_and_one_view_is_refused():
    assert made().no_signal(6, 2) is None and made().floor(6, 2) == 0
    with pytest.raises(InputError, match="n_views=1"):
        made()(ViewRows.of(method_cases.views(1)))
