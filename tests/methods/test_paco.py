import pytest
import torch

from coulomb.ground.errors import CoulombWarning, InputError
from coulomb.ground.randomness import seeded_initialization
from coulomb.losses import PaCoLoss, ParametricCenters
from coulomb.methods.paco import PaCo
from coulomb.models import ViewRows
from method_cases import built, changed, encoder, state_of, views

LABELS = torch.tensor([0, 0, 1, 1, -1, 2])
COUNTS = torch.tensor([90, 9, 1])


def made(**options):
    return built(PaCo, encoder(), class_counts=COUNTS, **{"embedding_dim": 5, "queue_size": 10} | options)


def fill(method, count=4):
    draw = torch.Generator().manual_seed(3)
    method.queue.enqueue(torch.randn(count, 5, generator=draw), torch.arange(count) % 3)


@pytest.mark.parametrize("balanced", [True, False])
def test_loss_is_paco_of_queries_keys_and_queue(balanced):
    method, (a, b) = made(balanced=balanced).eval(), views()
    fill(method)
    features, known = method.tower.encoder(a), LABELS >= 0
    queries, keys = method.tower.head(features), method.momentum_encoder(b)
    rows = torch.cat([queries[known], queries[~known], keys, method.queue.keys()])
    labels = torch.cat([LABELS[known], LABELS[~known], LABELS, method.queue.labels()])
    expected = PaCoLoss(COUNTS if balanced else None)(rows, labels, method.centers(features[known]))
    torch.testing.assert_close(method(ViewRows.of([a, b]), LABELS), expected)


def test_generalized_every_view_is_an_anchor_with_a_gradient():
    method, seen = made(generalized=True, queue_size=0, label_smoothing=0.1).eval(), views()
    assert method.momentum_encoder is None and method.queue is None
    features, labels = torch.cat([method.tower.encoder(view) for view in seen]), LABELS.clamp_min(0)
    expected = PaCoLoss(COUNTS, label_smoothing=0.1)(
        method.tower.head(features), labels.repeat(2), method.centers(features)
    )
    torch.testing.assert_close(method(ViewRows.of(seen), labels), expected)
    second = seen[1].clone().requires_grad_()
    method(ViewRows.of([seen[0], second]), labels).backward()
    assert second.grad.abs().sum() > 0


@pytest.mark.parametrize("generalized", [False, True])
def test_the_queue_takes_keys_with_labels_after_the_batch(generalized):
    method = made(generalized=generalized)
    method(ViewRows.of(views()), LABELS)
    assert len(method.queue) == 0
    method.after_batch()
    assert method.queue.labels().tolist() == (LABELS.repeat(2).tolist()[-10:] if generalized else LABELS.tolist())
    assert method.figures() == {"queue_keys": 10.0 if generalized else 6.0, "queue_age": 0.0}


def test_a_batch_without_any_label_warns_and_has_no_gradient():
    method = made()
    with pytest.warns(CoulombWarning, match="0 of 12 rows are anchors"):
        loss = method(ViewRows.of(views()), torch.full((6,), -1))
    loss.backward()
    assert float(loss.detach()) == 0 and not any(p.grad.any() for p in method.parameters() if p.grad is not None)


def test_the_momentum_encoder_follows_the_update():
    method = made(momentum=0.5)
    before = state_of(method)
    with torch.no_grad():
        method.tower.encoder.backbone.layers[0].weight += 1.0
    method.after_update(0.1)
    (name,) = {key for key in changed(before, method) if key.startswith("momentum_encoder")}
    torch.testing.assert_close(method.state_dict()[name], before[name] + 0.5)


def test_one_view_is_refused():
    with pytest.raises(InputError, match="n_views=1"):
        made()(ViewRows.of(views(1)), LABELS)


def test_the_purposes_of_its_seeds_stay():
    with seeded_initialization(0, "centres"):  # the spelling of this word is part of the seed
        centers = ParametricCenters(encoder().feature_dim, 3)
    assert torch.equal(made().centers.weight, centers.weight)
