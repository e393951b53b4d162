import pytest
import torch
from torch.nn.functional import cosine_similarity

import method_cases
from coulomb.ground.errors import InputError
from coulomb.methods.simsiam import SimSiam
from coulomb.models import ViewRows
from method_cases import built


def made(encoder=method_cases.encoder, **options):
    return built(SimSiam, encoder(), **{"embedding_dim": 8} | options)


def test_loss_is_half_of_both_negative_cosines():
    method, (a, b) = made().eval(), method_cases.views()
    z = [method.tower(view) for view in (a, b)]
    p = [method.predictor(each) for each in z]
    expected = -(cosine_similarity(p[0], z[1]) + cosine_similarity(p[1], z[0])).mean() / 2
    torch.testing.assert_close(method(ViewRows.of([a, b])), expected)


def test_the_gradient_of_the_other_view_is_stopped():
    seen = method_cases.views()
    grads = {}
    for stop in (True, False):
        method = made(stop_gradient=stop)
        z = method.tower(torch.cat(seen))
        p = method.predictor(z).chunk(2)
        target = [part.detach() if stop else part for part in z.chunk(2)]
        by_hand = -(cosine_similarity(p[0], target[1]) + cosine_similarity(p[1], target[0])).mean() / 2
        (expected,) = torch.autograd.grad(by_hand, method.tower.head[0].weight)
        method(ViewRows.of(seen)).backward()
        grads[stop] = method.tower.head[0].weight.grad
        torch.testing.assert_close(grads[stop], expected, rtol=1e-3, atol=1e-7)
    assert not torch.allclose(grads[True], grads[False], rtol=0.1)


def test_is_pure_and_resumes():
    method_cases.assert_pure(made())
    method_cases.assert_resumes(made)
    method_cases.assert_every_parameter_learns(made())


def test_without_stop_gradient_it_collapses():
    # Batch norm keeps each dimension's spread, so collapse is of dimensions: few are left.
    loss, _, rank = method_cases.trained_on_blobs(SimSiam)
    assert loss > -0.98 and rank > 5.5
    loss, _, rank = method_cases.trained_on_blobs(SimSiam, stop_gradient=False)
    assert loss < -0.995 and rank < 3.5


def test_no_signal_is_none_and_one_view_is_refused():
    assert made().no_signal(6, 2) is None and made().floor(6, 2) == -1
    with pytest.raises(InputError, match="n_views=1"):
        made()(ViewRows.of(method_cases.views(1)))
