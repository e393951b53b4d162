import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import method_cases
from coulomb.ground.errors import InputError
from coulomb.methods.instdisc import InstDisc
from coulomb.models import ViewRows
from method_cases import built

INDEX = torch.tensor([3, 1, 4, 15, 9, 2])


def made(encoder=method_cases.encoder, **options):
    return built(InstDisc, encoder(), **{"num_images": 20, "noise_samples": 7, "embedding_dim": 5} | options)


@pytest.mark.parametrize("count", [1, 2])
def test_nce_is_the_formula(count):
    method, seen = made(), method_cases.views(count)
    z, bank, slots = normalize(method.tower(torch.cat(seen))), method.bank.keys(), INDEX.repeat(count)
    own = (z * bank[slots]).sum(1).div(0.07).exp()
    noise = (z[:, None] * method._noise(len(slots))).sum(2).div(0.07).exp()
    normalizer = noise.mean() * 20  # estimated on the first batch
    own, noise, pn = own / normalizer, noise / normalizer, 1 / 20
    expected = -((own / (own + 7 * pn)).log() + (7 * pn / (noise + 7 * pn)).log().sum(1)).mean()
    torch.testing.assert_close(method(ViewRows.of(seen), None, INDEX), expected)


def test_full_is_the_softmax_over_the_bank():
    method, seen = made(full=True, temperature=0.1), method_cases.views(1)
    z = normalize(method.tower(seen[0]))
    expected = cross_entropy(z @ method.bank.keys().T / 0.1, INDEX)
    torch.testing.assert_close(method(ViewRows.of(seen), None, INDEX), expected)


@pytest.mark.parametrize("full", [False, True])
def test_the_proximal_term(full):
    seen = method_cases.views(1)
    method, with_term = made(full=full), made(full=full, proximal=3.0)
    z = normalize(method.tower(seen[0]))
    term = 3 * (z - method.bank.keys()[INDEX]).square().sum(1).mean()
    torch.testing.assert_close(with_term(ViewRows.of(seen), None, INDEX), method(ViewRows.of(seen), None, INDEX) + term)


@pytest.mark.parametrize("options", [{}, {"full": True}, {"normalizer": "ema"}], ids=str)
def test_after_batch_moves_the_slots_of_the_batch(options):
    method, seen = made(**options), method_cases.views()
    method_cases.assert_pure(method, INDEX)
    z = normalize(method.tower(torch.cat(seen))).detach()
    before = method_cases.state_of(method)
    method(ViewRows.of(seen), None, INDEX).backward()
    method.after_batch()
    changed = method_cases.changed(before, method)
    assert changed == {"batches", "bank.rows", "bank.updates"} | (
        set() if method.nce is None else {"nce.log_normalizer"}
    )
    bank = before["bank.rows"].clone()
    bank[INDEX] = normalize(bank[INDEX] + (z[:6] + z[6:]) / 2)
    torch.testing.assert_close(method.bank.keys(), bank)


def test_noise_is_the_same_until_the_batch_is_over():
    method = made()
    first = method._noise(3)
    assert torch.equal(first, method._noise(3))
    method.after_batch()
    assert not torch.equal(first, method._noise(3))


def test_z_is_fixed_after_the_first_batch_or_follows():
    for normalizer, moves in (("first", False), ("ema", True)):
        method = made(normalizer=normalizer)
        found = []
        for seed in (1, 2):
            method(ViewRows.of(method_cases.views(seed=seed)), None, INDEX)
            method.after_batch()
            found.append(float(method.nce.log_normalizer))
        assert math.isfinite(found[0]) and (found[0] != found[1]) == moves


@pytest.mark.parametrize("options", [{}, {"full": True, "proximal": 1.0}, {"normalizer": "ema"}], ids=str)
def test_resumes(options):
    method_cases.assert_resumes(lambda: made(**options))


def test_resumes_with_a_mapped_bank(tmp_path):
    method_cases.assert_resumes(lambda: made(bank_path=str(tmp_path / "bank")))


def test_every_parameter_learns():
    method_cases.assert_every_parameter_learns(made(), INDEX)


def test_no_signal_is_the_loss_of_equal_probabilities():
    seen = method_cases.views(batch=6)
    method = made(full=True)
    method.bank.rows.copy_(torch.ones(5) / math.sqrt(5))
    assert (
        float(method(ViewRows.of(seen), None, INDEX).detach())
        == pytest.approx(method.no_signal(6, 2))
        == pytest.approx(math.log(20))
    )
    method = made(noise_samples=4096)
    method.bank.rows.copy_(torch.ones(5) / math.sqrt(5))
    equal = [torch.full((6, 1, 8, 8), 0.5)]
    found = float(method(ViewRows.of(equal), None, INDEX).detach())
    assert found == pytest.approx(method.no_signal(6, 1)) == pytest.approx(9.3179, abs=1e-4)
    assert made(full=True, proximal=2.0).no_signal(6, 1) == pytest.approx(math.log(20) + 4)


def test_bad_input():
    with pytest.raises(InputError, match="train_row=None: forward needs"):
        made()(ViewRows.of(method_cases.views()))
    with pytest.raises(ValueError, match="index must be from 0 to 4"):
        made(num_images=5)(ViewRows.of(method_cases.views()), None, INDEX)
    for bad in ({"normalizer": "best"}, {"noise_samples": 0}, {"proximal": -1.0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            made(**bad)
