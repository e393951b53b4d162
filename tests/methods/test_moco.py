import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import method_cases
from coulomb.ground.errors import CoulombWarning, InputError
from coulomb.methods.moco import MoCo
from coulomb.models import ViewRows
from method_cases import built

INDEX = torch.tensor([3, 1, 4, 15, 9, 2])


def made(encoder=method_cases.encoder, **options):
    return built(MoCo, encoder(), **{"queue_size": 16, "embedding_dim": 5} | options)


def oracle(method, query_view, key_view, own=None):
    """Returns the cross-entropy of [q·k, q·queue]/τ with the first as target."""
    query = normalize(method.tower(query_view))
    key = normalize(method.momentum_encoder(key_view))
    queue = query @ method.queue.keys().T
    if own is not None:
        queue = queue.masked_fill(own[:, None] == method.queue.ids(), -torch.inf)
    logits = torch.cat([(query * key).sum(1, keepdim=True), queue], 1) / 0.2
    return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


@pytest.mark.parametrize("symmetric", [False, True])
def test_loss_is_cross_entropy_against_the_queue(symmetric):
    method, (a, b) = made(symmetric=symmetric).eval(), method_cases.views()
    expected = (oracle(method, a, b) + oracle(method, b, a)) / 2 if symmetric else oracle(method, a, b)
    torch.testing.assert_close(method(ViewRows.of([a, b]), None, INDEX), expected)


def test_keys_of_the_same_image_can_be_excluded():
    method, (a, b) = made(exclude_own=True).eval(), method_cases.views()
    method.queue.enqueue(torch.randn(6, 5), ids=torch.tensor([1, 9, 9, 7, 4, 0]))
    expected = oracle(method, a, b, own=INDEX)
    torch.testing.assert_close(method(ViewRows.of([a, b]), None, INDEX), expected)
    assert not torch.isclose(expected, oracle(method, a, b))
    with pytest.raises(InputError, match="exclude_own=True: forward needs the train_row"):
        method(ViewRows.of([a, b]))


def test_three_views():
    method, (a, b, c) = made().eval(), method_cases.views(3)
    expected = (oracle(method, a, b) + oracle(method, a, c)) / 2
    torch.testing.assert_close(method(ViewRows.of([a, b, c])), expected)


@pytest.mark.parametrize("symmetric", [False, True])
def test_each_hook_changes_only_its_own_state(symmetric):
    method, (a, b) = made(symmetric=symmetric), method_cases.views()
    method_cases.assert_pure(method, INDEX)
    keys = normalize(torch.cat([method._keys(torch.cat([a, b]) if symmetric else b)]))
    before = method_cases.state_of(method)
    method(ViewRows.of([a, b]), None, INDEX).backward()
    method.after_batch()
    changed = method_cases.changed(before, method)
    assert changed == {"batches"} | {f"queue.{name}" for name in ("rows", "row_ids", "born", "written", "enqueues")}
    count = 12 if symmetric else 6
    torch.testing.assert_close(method.queue.keys()[-count:], keys)
    assert method.queue.ids()[-count:].tolist() == INDEX.repeat(count // 6).tolist()
    before = method_cases.state_of(method)
    with torch.no_grad():
        method.tower.head[0].weight.add_(1)
    method.after_update(0.5)
    assert method_cases.changed(before, method) == {"tower.head.0.weight", "momentum_encoder.module.head.0.weight"}
    moved = method.momentum_encoder.module.head[0].weight - before["momentum_encoder.module.head.0.weight"]
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-3, atol=1e-6)


def test_a_forward_without_backward_enqueues_no_keys():
    method = made()
    method(ViewRows.of(method_cases.views(seed=1)))
    method(ViewRows.of(method_cases.views(seed=2)), None, INDEX)
    method.after_batch()
    method.after_batch()  # nothing pending any more
    assert int(method.queue.enqueues) == 1 and method.queue.ids()[-1] == INDEX[-1]


def test_no_gradient_reaches_the_momentum_encoder():
    method_cases.assert_every_parameter_learns(made(), INDEX)
    assert not any(p.requires_grad for p in made().momentum_encoder.parameters())


def test_key_groups_have_statistics_of_their_own():
    whole, grouped = made(key_groups=1), made(key_groups=3)
    image = method_cases.views(1, batch=12)[0]
    keys = grouped._keys(image)
    assert torch.equal(keys, grouped._keys(image))  # the same groups until the batch is over
    assert not torch.allclose(keys, whole._keys(image))
    grouped.after_batch()
    assert not torch.allclose(keys, grouped._keys(image))  # other groups
    grouped.eval(), whole.eval()
    torch.testing.assert_close(grouped._keys(image), whole._keys(image))  # each key in its own place


def test_groups_change_nothing_without_batch_norm():
    loss = [
        float(made(method_cases.plain_encoder, key_groups=n)(ViewRows.of(method_cases.views())).detach())
        for n in (1, 3, 99)
    ]
    assert loss == pytest.approx([loss[0]] * 3, abs=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"symmetric": True, "exclude_own": True, "queue_fill": "empty", "queue_size": 9}]
)
@pytest.mark.filterwarnings("ignore::coulomb.ground.errors.CoulombWarning")
def test_resumes(options):
    method_cases.assert_resumes(lambda: made(**options))


def test_no_signal_is_the_loss_of_equal_embeddings():
    method = made(method_cases.plain_encoder)
    same = [torch.full((4, 1, 8, 8), 0.5)] * 2
    method.queue.enqueue(method.momentum_encoder(torch.full((16, 1, 8, 8), 0.5)))
    assert (
        float(method(ViewRows.of(same)).detach())
        == pytest.approx(method.no_signal(4, 2), rel=1e-5)
        == pytest.approx(math.log(17))
    )


def test_an_empty_queue_warns():
    method = made(queue_fill="empty")
    assert method.no_signal(6, 2) is None
    with pytest.warns(CoulombWarning, match="6 of 6 anchors have no negative"):
        assert float(method(ViewRows.of(method_cases.views())).detach()) == 0
    method.after_batch()
    assert method.figures() == {"queue_keys": 6, "queue_age_mean": 0, "queue_age_max": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"key_groups": 0}, "key_groups=0"), ({"queue_size": 0}, "size must"), ({"momentum": 2.0}, "momentum")],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_one_view_is_refused():
    with pytest.raises(InputError, match="n_views=1"):
        made()(ViewRows.of(method_cases.views(1)))
