import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.losses import NCELoss


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def batch(b=4, m=6, d=3, seed=0):
    return normal(b, d, seed=seed), normal(b, d, seed=seed + 10), normal(b, m, d, seed=seed + 20)


def scores(query, positive, noise, tau=0.07):
    query, positive, noise = (normalize(x, dim=-1) for x in (query, positive, noise))
    return (query * positive).sum(1) / tau, (query[:, None] * noise).sum(-1) / tau


@pytest.mark.parametrize("normalizer", [None, "ema", math.exp(1 / 0.07) * 1000])
def test_equal_probabilities_give_the_constant(normalizer):
    # P = Pₙ = 1/n: ln 4097 + 4096·ln(1 + 1/4096)
    same = torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4096, 3)
    assert NCELoss(1000, normalizer=normalizer)(*same).item() == pytest.approx(9.3179, abs=1e-4)


def test_equals_the_authors_formula():
    n, inputs = 50, batch()
    own, others = scores(*inputs)
    z = 123.0
    p, q, prior = own.exp() / z, others.exp() / z, 6 / n
    truth = -((p / (p + prior)).log() + (prior / (q + prior)).log().sum(1))
    torch.testing.assert_close(NCELoss(n, normalizer=z, reduction="none")(*inputs), truth, rtol=0, atol=1e-10)


def test_noise_need_not_be_uniform():
    n, inputs = 5, batch()
    log_prob = normal(n, seed=5).log_softmax(0)
    index = torch.arange(28).view(4, 7) * 3 % n
    own, others = scores(*inputs)
    p, q = own.exp() / 9, others.exp() / 9
    prior = 6 * log_prob.exp()[index]
    truth = -((p / (p + prior[:, 0])).log() + (prior[:, 1:] / (q + prior[:, 1:])).log().sum(1)).mean()
    loss = NCELoss(n, normalizer=9.0, noise_log_prob=log_prob)(*inputs, index)
    torch.testing.assert_close(loss, truth, rtol=0, atol=1e-10)
    uniform = NCELoss(n, normalizer=9.0, noise_log_prob=torch.full((n,), -math.log(n), dtype=torch.float64))
    torch.testing.assert_close(uniform(*inputs, index), NCELoss(n, normalizer=9.0)(*inputs))


def test_the_normalizer_is_estimated_from_the_first_batch():
    n, loss = 50, NCELoss(50)
    assert math.isnan(loss.log_normalizer)
    first = loss(*batch())
    z = scores(*batch())[1].exp().mean() * n
    assert loss.log_normalizer.item() == pytest.approx(z.log().item(), rel=1e-6)
    torch.testing.assert_close(first, NCELoss(n, normalizer=loss.log_normalizer.double().exp().item())(*batch()))
    loss(*batch(seed=1))
    assert loss.log_normalizer.item() == pytest.approx(z.log().item(), rel=1e-6)


def test_non_uniform_noise_estimates_the_same_normalizer():
    # The mean over many draws from Pₙ, weighted by 1/Pₙ, estimates the sum of e^s over all instances.
    n, bank, query = 6, normalize(normal(6, 3)), normalize(normal(1, 3, seed=1))
    log_prob = normal(n, seed=2).log_softmax(0)
    drawn = torch.multinomial(log_prob.exp(), 20000, replacement=True, generator=torch.Generator().manual_seed(0))
    loss = NCELoss(n, 0.5, noise_log_prob=log_prob)
    loss(query, bank[:1], bank[drawn][None], torch.cat([torch.zeros(1, dtype=torch.long), drawn])[None])
    truth = (query @ bank.T / 0.5).exp().sum()
    assert loss.log_normalizer.exp().item() == pytest.approx(truth.item(), rel=0.03)


def test_ema_updates_the_normalizer():
    loss = NCELoss(50, normalizer="ema", momentum=0.75)
    expected = None
    for seed in range(3):
        loss(*batch(seed=seed))
        now = (scores(*batch(seed=seed))[1].exp().mean() * 50).item()
        expected = now if expected is None else 0.75 * expected + 0.25 * now
    assert loss.log_normalizer.exp().item() == pytest.approx(expected, rel=1e-5)
    forgetful = NCELoss(50, normalizer="ema", momentum=0)
    for seed in range(2):
        forgetful(*batch(seed=seed))
    assert forgetful.log_normalizer.exp().item() == pytest.approx((scores(*batch(seed=1))[1].exp().mean() * 50).item())


def test_evaluation_does_not_update_the_normalizer():
    loss = NCELoss(50, normalizer="ema").eval()
    value = loss(*batch())
    assert math.isnan(loss.log_normalizer)
    torch.testing.assert_close(value, loss.train()(*batch()))
    known = loss.log_normalizer.clone()
    loss.eval()(*batch(seed=1))
    assert torch.equal(loss.log_normalizer, known)


def test_the_normalizer_is_saved_with_the_model():
    loss, resumed = NCELoss(50), NCELoss(50)
    loss(*batch())
    resumed.load_state_dict(loss.state_dict())
    torch.testing.assert_close(resumed(*batch(seed=1)), loss(*batch(seed=1)), rtol=0, atol=0)
    unset = NCELoss(50)
    unset.load_state_dict(NCELoss(50).state_dict())
    assert math.isnan(unset.log_normalizer)


def test_no_gradient_flows_through_the_estimate():
    inputs = batch()
    query = inputs[0].requires_grad_()
    estimated = NCELoss(50)
    (mine,) = torch.autograd.grad(estimated(*inputs), query)
    fixed = NCELoss(50, normalizer=estimated.log_normalizer.double().exp().item())
    (truth,) = torch.autograd.grad(fixed(*inputs), query)
    torch.testing.assert_close(mine, truth)
    assert not estimated.log_normalizer.requires_grad


@pytest.mark.parametrize("normalizer", [None, "ema"])
def test_the_compiled_loss_updates_the_normalizer(normalizer):
    torch._dynamo.reset()
    loss, eager = NCELoss(50, normalizer=normalizer), NCELoss(50, normalizer=normalizer)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        torch.testing.assert_close(compiled(*batch(seed=seed)), eager(*batch(seed=seed)))
    torch.testing.assert_close(loss.log_normalizer, eager.log_normalizer)


def test_more_noise_than_one_chunk():
    query, positive, noise = normal(2, 3), normal(2, 3, seed=1), normal(2, 1300, 3, seed=2)
    own, others = scores(query, positive, noise)
    prior = math.log(1300 / 50)
    softplus = torch.nn.functional.softplus
    truth = softplus(prior - own + math.log(9)) + softplus(others - math.log(9) - prior, threshold=60).sum(1)
    torch.testing.assert_close(NCELoss(50, normalizer=9.0)(query, positive, noise), truth.mean())


def test_diagnosis_uses_the_noise_as_negatives():
    loss, diagnosis = NCELoss(50, 0.5, normalizer=9.0, diagnose=True)(*batch())
    own, others = scores(*batch(), tau=0.5)
    p = others.softmax(1)
    torch.testing.assert_close(loss, NCELoss(50, 0.5, normalizer=9.0)(*batch()))
    torch.testing.assert_close(diagnosis.positive, own * 0.5)
    torch.testing.assert_close(diagnosis.hardest_negative, others.amax(1) * 0.5)
    torch.testing.assert_close(diagnosis.effective_negatives, (-(p * p.log()).sum(1)).exp())
    assert diagnosis.without_positive == 0


def test_invalid_arguments_raise():
    query, positive, noise = batch()
    for bad in ("first", 0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="^normalizer "):
            NCELoss(5, normalizer=bad)
    with pytest.raises(ValueError, match="^num_instances .* 0$"):
        NCELoss(0)
    with pytest.raises(ValueError, match=r"^noise_log_prob .*\(4,\)"):
        NCELoss(5, noise_log_prob=torch.zeros(4))
    with pytest.raises(ValueError, match="^noise_log_prob .*1.609"):
        NCELoss(5, noise_log_prob=torch.zeros(5))
    with pytest.raises(TypeError, match="^noise_log_prob "):
        NCELoss(5, noise_log_prob=[0.2] * 5)
    with pytest.raises(ValueError, match=r"^noise .*\(4, 0, 3\)"):
        NCELoss(5)(query, positive, noise[:, :0])
    with pytest.raises(ValueError, match="^noise .*3"):
        NCELoss(5)(query, positive, noise[0])
    with pytest.raises(ValueError, match="^noise .*2.*3"):
        NCELoss(5)(query, positive, noise[..., :2])
    index = torch.zeros(4, 7, dtype=torch.long)
    weighted = NCELoss(5, noise_log_prob=torch.zeros(5).log_softmax(0))
    with pytest.raises(ValueError, match="noise_index .* is required with noise_log_prob"):
        weighted(query, positive, noise)
    with pytest.raises(ValueError, match=r"^noise_index .*\[4, 7\]"):
        weighted(query, positive, noise, index[:, 1:])
    with pytest.raises(ValueError, match="^noise_index .*5"):
        weighted(query, positive, noise, index + 5)
    with pytest.raises(TypeError, match="^noise_index .*torch.float32"):
        weighted(query, positive, noise, index.float())
